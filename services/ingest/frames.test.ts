import fc from 'fast-check';
import { expect, test } from 'vitest';
import { encodeFrames, type Frame } from './frames.ts';

/** Reads RowBinary rows of FRAME_STRUCTURE, as https://clickhouse.com/docs/interfaces/formats/RowBinary describes them. */
function decode(rows: Buffer): Frame[] {
  let at = 0;
  const frames: Frame[] = [];
  while (at < rows.length) {
    const offset = Number(rows.readBigUInt64LE(at));
    const time = Number(rows.readBigInt64LE(at + 8));
    at += 16;
    const [reason, detail] = [text(), text()];
    const key = nullable();
    const headers = Array.from({ length: varint() }, () => [text(), nullable()] as const);
    const probe = text();
    const [original, value] = [bytes(), bytes()];
    frames.push({ record: { offset, time, key, headers, value: null }, reason, detail, probe, original, value });
  }
  return frames;

  function varint(): number {
    let n = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = rows[at++]!;
      n += (byte & 0x7f) * factor;
      if (byte < 0x80) return n;
    }
  }
  function bytes(): Buffer {
    const length = varint();
    at += length;
    return rows.subarray(at - length, at);
  }
  function text(): string {
    return bytes().toString('utf8');
  }
  function nullable(): Buffer | null {
    return rows[at++] === 1 ? null : bytes();
  }
}

const anyBytes: fc.Arbitrary<Buffer> = fc.oneof(fc.uint8Array({ maxLength: 300, size: 'max' }), fc.integer({ min: 0, max: 20_000 }).map((n) => Buffer.alloc(n, n))).map((bytes) => Buffer.from(bytes));

const maybeBytes: fc.Arbitrary<Buffer | null> = fc.option(anyBytes, { nil: null });
const anyText = fc.string({ unit: 'grapheme', maxLength: 200, size: 'max' });

const frame: fc.Arbitrary<Frame> = fc.record({
  record: fc.record({
    offset: fc.maxSafeNat(),
    time: fc.oneof(fc.constant(-1), fc.maxSafeInteger()),
    key: maybeBytes,
    headers: fc.array(fc.tuple(anyText, maybeBytes), { maxLength: 3 }),
    value: fc.constant(null),
  }),
  reason: fc.constantFrom('', 'too_large'),
  detail: anyText,
  probe: anyText,
  original: anyBytes,
  value: anyBytes,
});

/** each is valid only until the next one is asked for */
const pieces = (frames: readonly Frame[]): Buffer[] => Array.from(encodeFrames(frames), (piece) => Buffer.from(piece));

/** buffers as text: they are compared a hundred times faster */
const plain = (frames: readonly Frame[]): string => JSON.stringify(frames, (_, v: unknown) => (typeof v === 'object' && v !== null && 'type' in v && 'data' in v ? Buffer.from(v.data as number[]).toString('base64') : v));

test('every frame comes out as it went in, in order, whatever is in it', () => {
  fc.assert(fc.property(fc.array(frame, { maxLength: 4 }), (frames) => {
    expect(plain(decode(Buffer.concat(pieces(frames))))).toBe(plain(frames));
  }));
});

test('a buffer holds whole frames and is 1 MiB at most, unless one frame is larger', () => {
  const of = (size: number): Frame => ({ record: { offset: 1, time: 2, key: null, headers: [], value: null }, reason: '', detail: '', probe: '', original: Buffer.alloc(0), value: Buffer.alloc(size) });
  const all = [of(600_000), of(400_000), of(400_000), of(3_000_000), of(1)];
  expect(pieces(all).map((p) => decode(p).map((f) => f.value.length))).toEqual([[600_000, 400_000], [400_000], [3_000_000], [1]]);
});

test('what was encoded once is encoded again', () => {
  const rows = encodeFrames([{ record: { offset: 1, time: 2, key: null, headers: [], value: null }, reason: '', detail: '', probe: '', original: Buffer.alloc(0), value: Buffer.from('{}') }]);
  expect([...rows]).toEqual([...rows]);
  expect([...rows]).toHaveLength(1);
});
