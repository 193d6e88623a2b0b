import { randomBytes } from 'node:crypto';
import zlib from 'node:zlib';
import { crc32c } from '@node-rs/crc32';
import fc from 'fast-check';
import { compressFrameSync } from 'lz4-napi';
import { describe, expect, test, vi } from 'vitest';
import { compress, oddlyCompressed } from '../../../test/harness/codecs.ts';
import type { Codec } from './codecs.ts';
import { decodeFetchResponse, type Place } from './fetch-response.ts';
import type { FetchedRecord } from './record-batch.ts';

const sleep = vi.hoisted(() => vi.fn<(ms: number) => Promise<void>>(async () => {}));
vi.mock('node:timers/promises', async (original) => ({ ...(await original<object>()), setTimeout: sleep }));

// A log of record batches as a broker keeps it, fetched again and again from the position that kafkajs would take.

interface Rec {
  readonly offset: number;
  readonly key?: Buffer | null;
  readonly value?: Buffer | null;
  readonly timestamp?: number;
  readonly headers?: readonly (readonly [string, Buffer | null])[];
}

interface Stored {
  readonly first: number;
  readonly last: number;
  readonly bytes: Buffer;
}

interface BatchOptions {
  readonly codec?: Codec | undefined;
  readonly producerId?: bigint;
  readonly transactional?: boolean;
  readonly control?: boolean;
  /** where compaction took the records at the ends */
  readonly first?: number;
  readonly last?: number;
  readonly appendTime?: number;
  readonly pack?: (body: Buffer) => Buffer;
}

const T0 = 1_700_000_000_000;

function zigzag(value: bigint | number): Buffer {
  let n = BigInt.asUintN(64, (BigInt(value) << 1n) ^ (BigInt(value) >> 63n));
  const bytes: number[] = [];
  do {
    const low = Number(n & 0x7fn);
    n >>= 7n;
    bytes.push(n === 0n ? low : low | 0x80);
  } while (n !== 0n);
  return Buffer.from(bytes);
}

function field(bytes: Buffer | null): Buffer {
  return bytes === null ? zigzag(-1) : Buffer.concat([zigzag(bytes.length), bytes]);
}

async function batch(
  records: readonly Rec[],
  {
    codec,
    producerId = -1n,
    transactional = false,
    control = false,
    first = records[0]?.offset ?? 0,
    last = records.at(-1)?.offset ?? first,
    appendTime,
    pack,
  }: BatchOptions = {},
): Promise<Stored> {
  const body = Buffer.concat(
    records.map(({ offset, key = null, value = null, timestamp = T0, headers = [] }) => {
      const record = Buffer.concat([
        Buffer.from([0]),
        zigzag(timestamp - T0),
        zigzag(offset - first),
        field(key),
        field(value),
        zigzag(headers.length),
        ...headers.flatMap(([name, v]) => [field(Buffer.from(name)), field(v)]),
      ]);
      return Buffer.concat([zigzag(record.length), record]);
    }),
  );
  const packed = pack?.(body) ?? (codec === undefined ? body : await compress[codec](body));
  const bytes = Buffer.alloc(61 + packed.length);
  bytes.writeBigInt64BE(BigInt(first), 0);
  bytes.writeInt32BE(bytes.length - 12, 8);
  bytes.writeInt8(2, 16);
  const codecs = [undefined, 'gzip', 'snappy', 'lz4', 'zstd'];
  bytes.writeInt16BE(
    codecs.indexOf(codec) | (appendTime === undefined ? 0 : 0x08) | (transactional ? 0x10 : 0) | (control ? 0x20 : 0),
    21,
  );
  bytes.writeInt32BE(last - first, 23);
  bytes.writeBigInt64BE(BigInt(T0), 27);
  bytes.writeBigInt64BE(BigInt(appendTime ?? T0), 35);
  bytes.writeBigInt64BE(producerId, 43);
  bytes.writeInt32BE(records.length, 57);
  packed.copy(bytes, 61);
  return { first, last, bytes: sealed(bytes) };
}

/** With the checksum of what it holds now. */
function sealed(bytes: Buffer): Buffer {
  bytes.writeUInt32BE(crc32c(bytes.subarray(21)), 17);
  return bytes;
}

const abortMarker = (offset: number, producerId: bigint): Promise<Stored> =>
  batch([{ offset, key: Buffer.alloc(4) }], { producerId, transactional: true, control: true });
const commitMarker = (offset: number, producerId: bigint): Promise<Stored> =>
  batch([{ offset, key: Buffer.from([0, 0, 0, 1]) }], { producerId, transactional: true, control: true });

interface Partition {
  readonly topic?: string;
  readonly partition?: number;
  readonly records: Buffer;
  readonly aborted?: readonly Aborted[];
}

type Aborted = readonly [producerId: bigint, firstOffset: number, marker: number];

function response(...partitions: readonly Partition[]): Buffer {
  const int = (value: number): Buffer => {
    const b = Buffer.alloc(4);
    b.writeInt32BE(value);
    return b;
  };
  const long = (value: bigint | number): Buffer => {
    const b = Buffer.alloc(8);
    b.writeBigInt64BE(BigInt(value));
    return b;
  };
  return Buffer.concat([
    int(0),
    Buffer.alloc(2),
    int(0),
    int(partitions.length),
    ...partitions.flatMap(({ topic = 't', partition = 0, records, aborted }) => [
      Buffer.from([0, topic.length]),
      Buffer.from(topic),
      int(1),
      int(partition),
      Buffer.alloc(2),
      long(1000),
      long(900),
      long(0),
      ...(aborted === undefined
        ? [int(-1)]
        : [int(aborted.length), ...aborted.flatMap(([id, first]) => [long(id), long(first)])]),
      int(-1),
      int(records.length),
      records,
    ]),
  ]);
}

/** records: of each partition; ends: the last offset that each covers */
async function decode(
  raw: Buffer,
  from = 0,
  maxBytes = 1e9,
): Promise<{
  records: readonly (readonly FetchedRecord[])[];
  ends: readonly (number | undefined)[];
  unreadable: Place[];
  decoded: Awaited<ReturnType<typeof decodeFetchResponse>>;
}> {
  const unreadable: Place[] = [];
  const decoded = await decodeFetchResponse(raw, {
    fetchOffset: () => from,
    maxBytes,
    onUnreadable: (place) => unreadable.push(place),
  });
  const blocks = decoded.responses.flatMap((r) => r.partitions.map((p) => p.messages[0]));
  return {
    records: blocks.map((b) => b?.records ?? []),
    ends: blocks.map((b) => (b === undefined ? undefined : Number(b.offset))),
    unreadable,
    decoded,
  };
}

/** Everything of a log, fetched until its end; each fetch gives what a broker would. */
async function drain(
  log: readonly Stored[],
  { maxBytes = 1e9, from = 0, aborted = [] as readonly Aborted[] } = {},
): Promise<{ records: FetchedRecord[]; fetches: number }> {
  const all: FetchedRecord[] = [];
  let fetches = 0;
  for (let position = from; position <= (log.at(-1)?.last ?? -1);) {
    if (++fetches > 10_000) throw new Error(`stands still at ${position}`);
    const start = position;
    const served = log.filter((b) => b.last >= start);
    const {
      records: [records = []],
      ends: [end],
    } = await decode(
      response({
        records: Buffer.concat(served.map((b) => b.bytes)),
        aborted: aborted.filter(([, , marker]) => marker >= start),
      }),
      position,
      maxBytes,
    );
    for (const { offset } of records) {
      if (offset < position) throw new Error(`${offset} again`);
      position = offset + 1;
    }
    expect(end).toBeGreaterThanOrEqual(position - 1);
    position = end! + 1;
    all.push(...records);
  }
  return { records: all, fetches };
}

const offsets = (records: readonly FetchedRecord[]): number[] => records.map((r) => r.offset);

test('a record keeps all its fields', async () => {
  const stored = await batch([
    {
      offset: 40,
      key: Buffer.from('k'),
      value: Buffer.from('v'),
      timestamp: T0 + 5,
      headers: [
        ['a', Buffer.from('1')],
        ['b', null],
        ['a', Buffer.from('2')],
        ['__proto__', Buffer.from('x')],
      ],
    },
    { offset: 41, timestamp: T0 - 1 },
  ]);
  const {
    records: [records],
    ends,
    decoded,
  } = await decode(response({ topic: 'topic', partition: 7, records: stored.bytes }), 40);
  expect(records?.[0]).toMatchObject({ offset: 40, time: T0 + 5, key: Buffer.from('k'), value: Buffer.from('v') });
  expect(records?.[0]?.headers).toEqual([
    ['a', Buffer.from('1')],
    ['b', null],
    ['a', Buffer.from('2')],
    ['__proto__', Buffer.from('x')],
  ]);
  expect(records?.[1]).toMatchObject({ offset: 41, time: T0 - 1, key: null, value: null });
  expect(ends).toEqual([41]);
  expect(decoded.responses[0]).toMatchObject({
    topicName: 'topic',
    partitions: [
      {
        partition: 7,
        errorCode: 0,
        highWatermark: '1000',
        lastStableOffset: '900',
        messages: [{ stableEnd: 900 }],
        lastStartOffset: '0',
        preferredReadReplica: -1,
      },
    ],
  });
});

test('a record that claims the offset of another one takes away none', async () => {
  const log = await Promise.all([
    batch(
      [0, 0, 5].map((offset) => ({ offset })),
      { last: 2 },
    ),
    batch([3, 4, 5].map((offset) => ({ offset }))),
  ]);
  expect(offsets((await drain(log)).records)).toEqual([0, 3, 4, 5]);
  expect(offsets((await drain(log, { maxBytes: 1 })).records)).toEqual([0, 3, 4, 5]);
});

test("the broker's time replaces the producer's if the topic says so", async () => {
  const stored = await batch([{ offset: 0, timestamp: T0 + 5 }], { appendTime: T0 + 99 });
  expect((await decode(response({ records: stored.bytes }))).records[0]?.[0]?.time).toBe(T0 + 99);
});

test('every time that a producer may write becomes a number', async () => {
  const at = async (appendTime: number | bigint): Promise<number | undefined> => {
    const stored = await batch([{ offset: 0 }], { appendTime: 1 });
    stored.bytes.writeBigInt64BE(BigInt(appendTime), 35);
    return (await decode(response({ records: sealed(stored.bytes) }))).records[0]?.[0]?.time;
  };
  expect(await at(-1)).toBe(-1);
  expect(await at(0)).toBe(0);
  expect(await at(2n ** 63n - 1n)).toBe(9007199254740991);
  expect(await at(-(2n ** 63n))).toBe(-9007199254740991);
});

test('records before the position and a batch that the broker cut off are omitted', async () => {
  const a = await batch([0, 1, 2, 3].map((offset) => ({ offset })));
  const b = await batch([4, 5].map((offset) => ({ offset })));
  for (const cut of [0, 10, 16, 40, 60, b.bytes.length - 1]) {
    const {
      records: [records = []],
      ends,
    } = await decode(response({ records: Buffer.concat([a.bytes, b.bytes.subarray(0, cut)]) }), 2);
    expect(offsets(records)).toEqual([2, 3]);
    expect(ends).toEqual([3]);
  }
});

describe('transactions', () => {
  // three open at once, aborted in another order than they began; the broker lists them in the order of their ends
  const aborted = [
    [11n, 1, 6],
    [12n, 2, 7],
    [10n, 0, 8],
  ] as const;
  const log = async (): Promise<Stored[]> =>
    Promise.all([
      ...[10n, 11n, 12n, 10n, 11n, 12n].map((producerId, offset) =>
        batch([{ offset, key: Buffer.alloc(4) }], { producerId, transactional: true }),
      ),
      abortMarker(6, 11n),
      abortMarker(7, 12n),
      abortMarker(8, 10n),
      batch([{ offset: 9, value: Buffer.from('plain') }]),
      batch([{ offset: 10 }], { producerId: 10n, transactional: true }),
      commitMarker(11, 10n),
    ]);

  test.each(Array.from({ length: 12 }, (_, from) => from))(
    'aborted records are nowhere, wherever the fetch begins: %i',
    async (from) => {
      expect(offsets((await drain(await log(), { from, aborted })).records)).toEqual([9, 10].filter((o) => o >= from));
    },
  );

  test('records of an aborted producer outside of a transaction are kept', async () => {
    const stored = await Promise.all([
      batch([{ offset: 0 }], { producerId: 5n, transactional: true }),
      batch([{ offset: 1 }], { producerId: 5n }),
      abortMarker(2, 5n),
    ]);
    expect(offsets((await drain(stored, { aborted: [[5n, 0, 2]] })).records)).toEqual([1]);
  });

  test('a batch of markers alone moves the position to its end', async () => {
    expect(await decode(response({ records: (await commitMarker(5, 1n)).bytes }), 5)).toMatchObject({
      records: [[]],
      ends: [5],
    });
  });
});

describe('compaction', () => {
  test('one fetch passes over offsets without a record, at both ends of a batch and in an empty batch', async () => {
    const log = await Promise.all([
      batch([{ offset: 3 }, { offset: 7 }], { first: 0, last: 5_000 }),
      batch([], { first: 5_001, last: 20_000 }),
    ]);
    const { records, fetches } = await drain(log);
    expect(offsets(records)).toEqual([3, 7]);
    expect(fetches).toBe(1);
    expect((await drain(log, { from: 8 })).fetches).toBe(1);
    expect((await drain(log, { from: 6_000 })).fetches).toBe(1);
  });
});

describe('bounds', () => {
  const codecs: (Codec | undefined)[] = [undefined, 'gzip', 'snappy', 'lz4', 'zstd'];

  test('every record is read once and in order, for any log, codecs and budget', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            codec: fc.constantFrom(...codecs),
            sizes: fc.array(fc.nat(3_000), { minLength: 1, maxLength: 40, size: 'max' }),
            hole: fc.nat(3),
          }),
          { minLength: 1, maxLength: 6 },
        ),
        fc.integer({ min: 4_000, max: 60_000 }),
        async (batches, maxBytes) => {
          const log: Stored[] = [];
          const expected: [number, number][] = [];
          let next = 0;
          for (const { codec, sizes, hole } of batches) {
            const records = sizes.map((size, i) => ({ offset: next + i, value: Buffer.alloc(size, i) }));
            for (const { offset, value } of records) expected.push([offset, value.length]);
            next += sizes.length + hole;
            log.push(await batch(records, { codec, last: next - 1 }));
          }
          const { records } = await drain(log, { maxBytes });
          expect(records.map((r) => [r.offset, r.value?.length])).toEqual(expected);
        },
      ),
      { numRuns: 150 },
    );
  }, 30_000);

  test.each(codecs)('%s: a batch far above the budget is read in pieces, none much above it', async (codec) => {
    const records = Array.from({ length: 2_000 }, (_, offset) => ({ offset, value: Buffer.alloc(5_000, offset) }));
    const log = [await batch(records, { codec })];
    const maxBytes = 500_000;
    for (let position = 0; position < 2_000;) {
      const {
        records: [read = []],
      } = await decode(response({ records: log[0]!.bytes }), position, maxBytes);
      expect(read.reduce((sum, r) => sum + (r.value?.length ?? 0), 0)).toBeLessThan(maxBytes + 5_000);
      for (const r of read) expect(r.value?.equals(records[position++]!.value)).toBe(true);
    }
  });

  test.each(codecs)(
    '%s: of a record above the budget the beginning is kept, and its neighbours whole',
    async (codec) => {
      const giant = Buffer.alloc(3_000_000, 'g');
      const log = [
        await batch(
          [
            { offset: 0, key: Buffer.from('a'), value: Buffer.from('before') },
            { offset: 1, key: Buffer.from('giant'), value: giant, headers: [['h', giant]] },
            { offset: 2, value: Buffer.from('after') },
          ],
          { codec },
        ),
      ];
      const { records } = await drain(log, { maxBytes: 100_000 });
      expect(records.map((m) => m.value?.length)).toEqual([6, 100_001, 5]);
      expect(records[1]?.key?.toString()).toBe('giant');
    },
  );

  test.each(codecs)('%s: a record of about the budget is read, also as the last of its batch', async (codec) => {
    const before = { offset: 0, value: Buffer.from('before') };
    for (let bytes = 999_980; bytes <= 1_000_005; bytes++) {
      const giant = { offset: 1, value: Buffer.alloc(bytes, 'g') };
      for (const records of [[giant], [before, giant]]) {
        const { records: read } = await drain([await batch(records, { codec })], { maxBytes: 1_000_000 });
        expect(read.map((r) => r.offset)).toEqual(records.map((r) => r.offset));
        expect(read.at(-1)?.value?.length).toBe(Math.min(bytes, 1_000_001));
      }
    }
  });

  test('kept records hold no bytes of the response, and of a batch no more than the budget', async () => {
    for (const codec of codecs) {
      const records = Array.from({ length: 1_000 }, (_, offset) => ({ offset, value: Buffer.alloc(5_000, offset) }));
      const large = (await batch(records, { codec })).bytes;
      const raw = response(
        { records: (await batch([{ offset: 0, value: Buffer.alloc(100_000) }])).bytes },
        { partition: 1, records: large },
      );
      const { records: read } = await decode(raw, 0, 600_000);
      const kept = new Set(read.flat().flatMap((m) => (m.value === null ? [] : [m.value.buffer])));
      expect(kept.has(raw.buffer)).toBe(false);
      // snappy and lz4 unfold whole blocks, here of the whole batch
      expect([...kept].reduce((sum, { byteLength }) => sum + byteLength, 0)).toBeLessThan(
        codec === 'snappy' || codec === 'lz4' ? 6_000_000 : 1_600_000,
      );
    }
  });

  test('freed records are gone at once, and none of their bytes can be read', async () => {
    for (const codec of codecs) {
      const stored = await batch(
        Array.from({ length: 100 }, (_, offset) => ({
          offset,
          key: Buffer.from('k'),
          value: Buffer.alloc(5_000, offset),
        })),
        { codec },
      );
      const {
        records: [records = []],
        decoded,
      } = await decode(response({ records: stored.bytes }));
      const { buffer } = records[0]!.value!;
      expect(buffer.byteLength).toBeGreaterThan(500_000);
      decoded.responses[0]!.partitions[0]!.messages[0]!.free();
      expect(buffer.byteLength, codec).toBe(0);
      for (const record of records) expect(() => record.value).toThrow(/already released/);
    }
  });

  test('a small buffer is not freed, because others may share it', async () => {
    const {
      records: [records = []],
      decoded,
    } = await decode(response({ records: (await batch([{ offset: 0, value: Buffer.from('v') }])).bytes }));
    decoded.responses[0]!.partitions[0]!.messages[0]!.free();
    expect(records[0]!.value?.toString()).toBe('v');
  });

  test('LZ4 frames with a checksum or a size of the whole are split', async () => {
    const records = Array.from({ length: 300 }, (_, offset) => ({ offset, value: Buffer.alloc(1_000) }));
    for (const blockChecksums of [false, true]) {
      const withChecksum = (body: Buffer): Buffer => compressFrameSync(body, { contentChecksum: true, blockChecksums });
      const withSize = (body: Buffer): Buffer => {
        const frame = compressFrameSync(body, { blockChecksums });
        frame[4]! |= 0x08;
        const size = Buffer.alloc(8);
        size.writeBigUInt64LE(BigInt(body.length));
        return Buffer.concat([frame.subarray(0, 6), size, frame.subarray(6)]);
      };
      for (const pack of [withChecksum, withSize]) {
        const log = [await batch(records, { codec: 'lz4', pack })];
        expect((await drain(log, { maxBytes: 100_000 })).records).toHaveLength(300);
      }
    }
  });

  test('a batch of very many records lets other work run', async () => {
    const count = 500_000;
    const one = Buffer.concat([zigzag(6), Buffer.of(0, 0, 0, 1, 1, 0)]);
    const many = await batch([{ offset: 0 }], {
      codec: 'zstd',
      pack: () => zlib.zstdCompressSync(Buffer.alloc(7 * count, one)),
    });
    many.bytes.writeInt32BE(count - 1, 23);
    many.bytes.writeInt32BE(count, 57);
    sealed(many.bytes);
    let turns = 0;
    let isOver = false;
    const turn = (): void => {
      turns++;
      if (!isOver) setImmediate(turn);
    };
    turn();
    const { unreadable, ends } = await decode(response({ records: many.bytes }));
    isOver = true;
    expect([unreadable, ends]).toEqual([[], [count - 1]]);
    expect(turns).toBeGreaterThan(20);
  });

  test('a bomb is never decompressed in memory', async () => {
    const log = [
      await batch(
        [
          { offset: 0, value: Buffer.alloc(100_000_000) },
          { offset: 1, value: Buffer.from('after') },
        ],
        { codec: 'zstd' },
      ),
    ];
    expect(log[0]!.bytes.length).toBeLessThan(50_000);
    const before = process.memoryUsage().rss;
    const { records } = await drain(log, { maxBytes: 2_000_000 });
    expect(records.map((m) => m.value?.length)).toEqual([2_000_001, 5]);
    expect(process.memoryUsage().rss - before).toBeLessThan(50_000_000);
  });

  test('a record whose key alone is a bomb has an empty value, not none: it is no tombstone', async () => {
    const after = { offset: 1, value: Buffer.from('after') };
    for (const codec of ['gzip', 'zstd'] as const)
      // of the second one, what is read ends within the length of its value
      for (const length of [5_000_000, 2 ** 21 - 12]) {
        const bomb = { offset: 0, key: Buffer.alloc(length), value: Buffer.alloc(1_000_000) };
        const { records } = await drain([await batch([bomb, after], { codec })], { maxBytes: 2_000_000 });
        expect(records.map((m) => m.value === null)).toEqual([false, false]);
        expect(records[1]!.value?.toString()).toBe('after');
      }
  });

  test('a record whose value is not kept whole says so, whether the value or the key is too large', async () => {
    const large = Buffer.alloc(1_500_000);
    const records = [
      { offset: 0, key: large, value: large },
      { offset: 1, value: Buffer.alloc(2_500_000) },
      { offset: 2, key: Buffer.alloc(2_000_001) },
      { offset: 3, value: large, headers: [['h', large]] as const },
      { offset: 4, value: large },
    ];
    const { records: read } = await drain([await batch(records, { codec: 'zstd' })], { maxBytes: 2_000_000 });
    expect(read.map(({ isCut }) => isCut)).toEqual([true, true, false, false, false]);
    expect(read[0]?.value?.length).toBeLessThan(1_000_000);
  });

  test('headers count with the memory that they take, which is more than their bytes', async () => {
    const headers = Array.from({ length: 1_000 }, (): [string, Buffer] => ['', Buffer.alloc(0)]);
    const records = (
      await batch(
        Array.from({ length: 50 }, (_, offset) => ({ offset, value: Buffer.alloc(10), headers })),
        { codec: 'gzip' },
      )
    ).bytes;
    const {
      records: [read = []],
    } = await decode(response({ records }), 0, 1_000_000);
    expect(read.length).toBeLessThan(10);
    expect(read[0]?.headers).toHaveLength(1_000);
    expect(read[0]?.bytes).toBeGreaterThan(100_000);
  });

  test('headers that take more memory than a record may are not kept', async () => {
    const headers = Array.from({ length: 1_000 }, (): [string, null] => ['', null]);
    const { records } = await drain([await batch([{ offset: 0, value: Buffer.from('v'), headers }, { offset: 1 }])], {
      maxBytes: 100_000,
    });
    expect(records.map((r) => [r.value?.toString(), r.headers.length])).toEqual([
      ['v', 0],
      [undefined, 0],
    ]);
  });

  test('the budget covers the whole response, and the next fetch gets the rest', async () => {
    const records = (
      await batch(
        Array.from({ length: 100 }, (_, offset) => ({ offset, value: Buffer.alloc(1_000) })),
        { codec: 'lz4' },
      )
    ).bytes;
    const { records: read } = await decode(
      response(...[0, 1, 2, 3].map((partition) => ({ partition, records }))),
      0,
      150_000,
    );
    expect(read.map((r) => r.length)).toEqual([100, expect.toSatisfy((n: number) => n > 0 && n < 50), 0, 0]);
  });

  test('other work runs while a large response is read', async () => {
    const one = await batch(
      Array.from({ length: 500 }, (_, offset) => ({ offset, value: randomBytes(2_000) })),
      { codec: 'lz4' },
    );
    let turns = 0;
    let isReading = true;
    const count = (): void => {
      turns++;
      if (isReading) setImmediate(count);
    };
    setImmediate(count);
    await decode(response({ records: Buffer.concat(Array.from({ length: 60 }, () => one.bytes)) }));
    isReading = false;
    expect(turns).toBeGreaterThan(3);
  });

  test('a batch of 200,000 records is read', async () => {
    const stored = await batch(
      Array.from({ length: 200_000 }, (_, offset) => ({ offset })),
      { codec: 'gzip' },
    );
    expect((await decode(response({ records: stored.bytes }))).records[0]).toHaveLength(200_000);
  });
});

describe('damage', () => {
  test('stops its partition at that batch and reports the place, while the others continue', async () => {
    const good = await batch([{ offset: 0 }, { offset: 1 }]);
    const bad = await batch([{ offset: 2, value: Buffer.alloc(1000) }], { codec: 'zstd' });
    bad.bytes.fill(0xff, 70);
    sealed(bad.bytes);
    const { records, unreadable } = await decode(
      response({ records: Buffer.concat([good.bytes, bad.bytes]) }, { partition: 1, records: good.bytes }),
    );
    expect(records.map(offsets)).toEqual([
      [0, 1],
      [0, 1],
    ]);
    expect(unreadable).toEqual([{ topic: 't', partition: 0, offset: 2, lastOffset: 2 }]);
  });

  test('of a short message in the format before 0.11 is reported too', async () => {
    const old = Buffer.alloc(40);
    old.writeBigInt64BE(3n, 0);
    old.writeInt32BE(28, 8);
    old.writeInt8(1, 16);
    const other = await batch([{ offset: 3 }]);
    const { records, unreadable } = await decode(response({ records: old }, { partition: 1, records: other.bytes }), 3);
    expect(records.map(offsets)).toEqual([[], [3]]);
    expect(unreadable).toEqual([{ topic: 't', partition: 0, offset: 3 }]);
  });

  test('inside a record batch keeps the records before it, and the position is behind the last of them', async () => {
    const good = await batch([{ offset: 0 }, { offset: 1 }]);
    const bad = await batch([
      { offset: 2, value: Buffer.alloc(100, 1) },
      { offset: 3, value: Buffer.alloc(100, 1) },
    ]);
    bad.bytes.writeInt8(120, bad.bytes.length - 102);
    sealed(bad.bytes);
    for (const records of [Buffer.concat([good.bytes, bad.bytes]), bad.bytes]) {
      const from = records === bad.bytes ? 2 : 0;
      const read = await decode(response({ records }), from);
      expect(read.records.map(offsets)).toEqual([from === 0 ? [0, 1, 2] : [2]]);
      expect(read.ends).toEqual([2]);
      expect(read.unreadable).toEqual([{ topic: 't', partition: 0, offset: 2, lastOffset: 3 }]);
    }
  });

  test.each([
    ...oddlyCompressed,
    [
      'zstd, then text',
      'zstd',
      (body: Buffer) => Buffer.concat([zlib.zstdCompressSync(body), Buffer.from('xyzw')]),
    ] as const,
  ])('is none where all records can be read: %s', async (_, codec, pack) => {
    const records = Array.from({ length: 100 }, (__, offset) => ({ offset, value: Buffer.alloc(1000, offset) }));
    const odd = await batch(records, { codec, pack });
    const next = await batch([{ offset: 100 }]);
    const read = await decode(response({ records: Buffer.concat([odd.bytes, next.bytes]) }));
    expect(read.unreadable).toEqual([]);
    expect(read.records.map(offsets)).toEqual([Array.from({ length: 101 }, (__, i) => i)]);
    // in pieces too
    const { records: drained } = await drain([odd, next], { maxBytes: 10_000 });
    expect(drained.map((r) => r.value?.length)).toEqual([...records.map(() => 1000), undefined]);
  });

  test('ends the batch where a gzip header is cut off, whatever the bytes before it look like', async () => {
    // its name has no end: the search for it must not begin anew in the extra field, where other headers stand
    const pack = (body: Buffer): Buffer => {
      const empty = Buffer.of(3, 0);
      const compressed = zlib.deflateRawSync(Buffer.concat([Buffer.of(body[0]! + 2), body.subarray(1)]));
      const extra = Buffer.alloc(40, 1);
      extra.set(empty);
      extra.set([0x1f, 0x8b, 8, 4, 1, 1, 1, 1, 1, 1], 10);
      extra.writeUInt16LE(40 + compressed.length + 8 - 22 + 10, 20);
      return Buffer.concat([
        Buffer.of(0x1f, 0x8b, 8, 4, 1, 1, 1, 1, 1, 1, 40, 0),
        extra,
        compressed,
        Buffer.alloc(8),
        zlib.gzipSync(''),
        Buffer.of(0x1f, 0x8b, 8, 0x18),
        Buffer.alloc(24, 1),
      ]);
    };
    const evil = await batch([{ offset: 7 }], { codec: 'gzip', pack });
    const other = await batch([{ offset: 0 }]);
    const { records, unreadable } = await decode(
      response({ records: evil.bytes }, { partition: 1, records: other.bytes }),
    );
    expect([records.map(offsets), unreadable]).toEqual([
      [[], [0]],
      [{ topic: 't', partition: 0, offset: 7, lastOffset: 7 }],
    ]);
  });

  test('of very many gzip members holds no more memory than their records', async () => {
    const count = 3_000;
    const records = Array.from({ length: count }, (_, offset) => ({ offset }));
    const one = (offset: number): Buffer => {
      const record = Buffer.concat([Buffer.of(0, 0), zigzag(offset), Buffer.of(1, 1, 0)]);
      return zlib.gzipSync(Buffer.concat([zigzag(record.length), record]));
    };
    const many = await batch(records, {
      codec: 'gzip',
      pack: () =>
        Buffer.concat([...records.map(({ offset }) => one(offset)), Buffer.from('much longer than a trailer')]),
    });
    const before = process.memoryUsage().external;
    const read = await decode(response({ records: many.bytes }));
    expect([read.records[0]!.length, read.unreadable]).toEqual([count, []]);
    expect(process.memoryUsage().external - before).toBeLessThan(50_000_000);
  });

  test('is reported for wrong compressions, formats, lengths, counts, fields and numbers', async () => {
    for (const spoil of [
      (b: Buffer) => b.writeInt16BE(5, 21),
      (b: Buffer) => b.writeInt8(3, 16),
      (b: Buffer) => b.writeInt8(1, 16),
      (b: Buffer) => b.writeInt32BE(-13, 8),
      (b: Buffer) => b.writeInt32BE(40, 8),
      (b: Buffer) => b.writeInt32BE(9, 57),
      (b: Buffer) => b.writeInt8(120, b.length - 102),
      (b: Buffer) => b.fill(0xff, 61),
    ]) {
      const stored = await batch([{ offset: 7, value: Buffer.alloc(100, 1) }]);
      spoil(stored.bytes);
      sealed(stored.bytes);
      const other = await batch([{ offset: 0 }]);
      const { unreadable } = await decode(response({ records: stored.bytes }, { partition: 1, records: other.bytes }));
      expect(unreadable).toMatchObject([{ topic: 't', partition: 0, offset: 7 }]);
    }
  });

  test('a record of less than its least length is reported at once, however many the batch claims to have', async () => {
    const other = await batch([{ offset: 0 }]);
    // attributes, time, and an offset that is not wanted
    const fields = Buffer.concat([Buffer.of(0), zigzag(0), zigzag(-8), Buffer.alloc(20)]);
    for (const length of [-1, -2, -(2 ** 31), 0, 5]) {
      const stored = await batch([{ offset: 7 }], { pack: () => Buffer.concat([zigzag(length), fields]) });
      stored.bytes.writeInt32BE(1_000_000_000, 57);
      sealed(stored.bytes);
      const start = performance.now();
      const { unreadable } = await decode(response({ records: stored.bytes }, { partition: 1, records: other.bytes }));
      expect(performance.now() - start).toBeLessThan(1_000);
      expect(unreadable).toEqual([{ topic: 't', partition: 0, offset: 7, lastOffset: 7 }]);
    }
  });

  test('of one bit is found by the checksum', async () => {
    const stored = await batch(
      [
        { offset: 0, value: Buffer.from('{"id":"a"}') },
        { offset: 1, value: Buffer.from('{"id":"b"}') },
      ],
      { codec: 'lz4' },
    );
    for (let bit = 21 * 8; bit < stored.bytes.length * 8; bit += 7) {
      const bytes = Buffer.from(stored.bytes);
      bytes.writeUInt8(bytes.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      const { records, unreadable } = await decode(
        response({ records: bytes }, { partition: 1, records: stored.bytes }),
      );
      expect(records.map(offsets)).toEqual([[], [0, 1]]);
      expect(unreadable).toHaveLength(1);
    }
    expect(crc32c('123456789')).toBe(0xe306_9283);
  });

  test('is reported for a batch longer than its response if it is alone; beside others the broker cut it off', async () => {
    const stored = await batch([{ offset: 4, value: Buffer.alloc(1000) }]);
    const cut = stored.bytes.subarray(0, 900);
    expect((await decode(response({ records: cut }), 4)).unreadable).toEqual([{ topic: 't', partition: 0, offset: 4 }]);
    const { records, unreadable } = await decode(
      response({ records: stored.bytes }, { partition: 1, records: cut }),
      4,
    );
    expect([records.map(offsets), unreadable]).toEqual([[[4], []], []]);
  });

  test('is answered a second later where nothing else is there, a response without data at once', async () => {
    const cut = (await batch([{ offset: 0, value: Buffer.alloc(1000) }])).bytes.subarray(0, 900);
    sleep.mockClear();
    await decode(response({ records: Buffer.alloc(0) }));
    expect(sleep).not.toHaveBeenCalled();
    await decode(response({ records: cut }));
    expect(sleep.mock.calls).toEqual([[1_000]]);
  });

  test('of any bytes never hangs and is always reported', async () => {
    const good = await batch(
      Array.from({ length: 20 }, (_, offset) => ({
        offset,
        key: Buffer.from('key'),
        value: Buffer.alloc(50, offset),
        headers: [['h', Buffer.from('v')]],
      })),
      { codec: 'snappy' },
    );
    const other = await batch([{ offset: 0 }]);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.integer({ min: 17, max: good.bytes.length - 1 }), fc.nat(255)), {
          minLength: 1,
          maxLength: 8,
        }),
        async (changes) => {
          const bytes = Buffer.from(good.bytes);
          for (const [at, value] of changes) bytes[at] = value;
          sealed(bytes);
          const { records } = await decode(response({ records: bytes }, { partition: 1, records: other.bytes }));
          expect(records[1]).toHaveLength(1);
        },
      ),
      { numRuns: 300 },
    );
  });
});
