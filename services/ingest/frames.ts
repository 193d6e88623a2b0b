import type { Record } from './record.ts';

/**
 * The columns of a frame, one RowBinary row per message: the structure argument of file() and input().
 * Messages are framed, never joined as text: `{"a":` in one and its rest in the next would make one valid row,
 * `{..}{..}` in one message two. RowBinary: integers little-endian, strings and arrays prefixed with their LEB128 length.
 * https://clickhouse.com/docs/interfaces/formats/RowBinary
 */
export const FRAME_STRUCTURE =
  'offset UInt64, record_time Int64, given_reason String, given_detail String, key Nullable(String), headers Array(Tuple(name String, value Nullable(String))), probe String, original String, value String';

export interface Frame {
  readonly record: Record;
  /** JSON text of the event; of a dead letter by its form alone, the message as it came */
  readonly value: Uint8Array;
  /** the message as it came, where value is another text of it; empty = value is the message */
  readonly original: Uint8Array;
  /** '' = to be judged by the mapping SQL */
  readonly reason: string;
  readonly detail: string;
  /** '' = none; see clickhouse/sources/envelope */
  readonly probe: string;
}

/** Bytes of the buffer that frames are written into, unless a single frame is larger. */
const PIECE_BYTES = 1024 * 1024;

/**
 * Frames as pieces which one after the other are the rows; encoded when they are asked for, anew each time. A piece is valid until the next one is asked for: they
 * are the same buffer. Buffers of a whole batch would come from the system, and their pages alone cost 2 to 5 us per edge event.
 */
export function encodeFrames(frames: Iterable<Frame>): Iterable<Buffer> {
  return { [Symbol.iterator]: () => piecesOf(frames) };
}

function* piecesOf(frames: Iterable<Frame>): Generator<Buffer, void, undefined> {
  let piece = Buffer.allocUnsafeSlow(PIECE_BYTES);
  let end = 0;
  for (const frame of frames) {
    const size = frameSize(frame);
    if (end + size > piece.length) {
      if (end > 0) yield piece.subarray(0, end);
      end = 0;
      if (size > piece.length) piece = Buffer.allocUnsafeSlow(size);
    }
    end = writeFrame(piece, end, frame);
  }
  if (end > 0) yield piece.subarray(0, end);
}

function frameSize({ record, value, original, reason, detail, probe }: Frame): number {
  let size = 16 + stringSize(Buffer.byteLength(reason)) + stringSize(Buffer.byteLength(detail)) + 1 + stringSize(Buffer.byteLength(probe)) + stringSize(original.length) + stringSize(value.length);
  const { key } = record;
  if (key !== null) size += stringSize(key.length);
  size += varintSize(record.headers.length);
  for (const [name, header] of record.headers) size += stringSize(Buffer.byteLength(name)) + 1 + (header === null ? 0 : stringSize(header.length));
  return size;
}

function writeFrame(out: Buffer, start: number, { record, value, original, reason, detail, probe }: Frame): number {
  let at = writeInt64(out, start, record.offset);
  at = writeInt64(out, at, record.time);
  at = writeText(out, at, reason);
  at = writeText(out, at, detail);
  at = writeNullable(out, at, record.key);
  at = writeVarint(out, at, record.headers.length);
  for (const [name, header] of record.headers) at = writeNullable(out, writeText(out, at, name), header);
  at = writeText(out, at, probe);
  at = writeBytes(out, at, original);
  return writeBytes(out, at, value);
}

const stringSize = (length: number): number => varintSize(length) + length;

function varintSize(n: number): number {
  let size = 1;
  for (let rest = n; rest >= 0x80; rest = Math.floor(rest / 0x80)) size++;
  return size;
}

function writeVarint(out: Buffer, start: number, n: number): number {
  let at = start;
  let rest = n;
  while (rest >= 0x80) {
    out[at++] = (rest & 0x7f) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  out[at++] = rest;
  return at;
}

/** A safe integer, negative ones in two's complement. */
function writeInt64(out: Buffer, at: number, n: number): number {
  const high = Math.floor(n / 0x1_0000_0000);
  out.writeUInt32LE(n - high * 0x1_0000_0000, at);
  return out.writeInt32LE(high, at + 4);
}

function writeText(out: Buffer, start: number, text: string): number {
  if (text === '') {
    out[start] = 0;
    return start + 1;
  }
  const at = writeVarint(out, start, Buffer.byteLength(text));
  return at + out.write(text, at);
}

function writeBytes(out: Buffer, start: number, bytes: Uint8Array): number {
  const at = writeVarint(out, start, bytes.length);
  out.set(bytes, at);
  return at + bytes.length;
}

function writeNullable(out: Buffer, at: number, bytes: Uint8Array | null): number {
  if (bytes === null) {
    out[at] = 1;
    return at + 1;
  }
  out[at] = 0;
  return writeBytes(out, at + 1, bytes);
}
