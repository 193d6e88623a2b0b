import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  compressions,
  createTopic,
  produce,
  produceWithJavaConsole,
  produceWithLibrdkafka,
  readAll,
  type DeliveryReport,
  type TestRecord,
} from '../../harness/kafka.ts';

// Guarantee: what real producers send with any of Kafka's codecs is read byte for byte, at the offsets that the broker
// acknowledged.

/**
 * Values that a codec or a framing could spoil: empty, binary, larger than a block of snappy or lz4, repetitive, 5 MB.
 */
function values(): Buffer[] {
  const binary = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919) % 256));
  return [
    Buffer.from('{"id":"1","event_message":"ünïcödé \u{1F600}"}'),
    Buffer.alloc(0),
    Buffer.from([0]),
    binary,
    Buffer.alloc(300_000, 'a'),
    ...Array.from({ length: 500 }, (_, i) => Buffer.from(JSON.stringify({ id: i, text: 'log line '.repeat(i % 40) }))),
    Buffer.from(JSON.stringify({ text: 'x'.repeat(5_000_000) })),
  ];
}

describe.each(compressions)('%s', (compression) => {
  test('librdkafka', async () => {
    const topic = await createTopic(`codec-${compression}`, { partitions: 2 });
    const records = values().map((value, i) => record(topic, value, i));
    const reports = await produceWithLibrdkafka(records, { compression });
    expect(await readBack(topic)).toEqual(expected(records, reports));
    await expectInPieces(topic, records, reports);
  });

  test('kafkajs', async () => {
    const topic = await createTopic(`codec-${compression}`, { partitions: 2 });
    const records = values().map((value, i) => record(topic, value, i));
    const reports = await produce(records, { compression });
    expect(await readBack(topic)).toEqual(expected(records, reports));
    await expectInPieces(topic, records, reports);
  });

  test("Kafka's console producer (Java)", async () => {
    const topic = await createTopic(`codec-${compression}`);
    const lines = [
      ...Array.from({ length: 2_000 }, (_, i) =>
        JSON.stringify({ id: i, text: 'log line '.repeat(i % 40), u: 'ünïcödé' }),
      ),
      JSON.stringify({ text: 'y'.repeat(5_000_000) }),
    ];
    await produceWithJavaConsole(topic, lines, { compression });
    const read = await readAll(topic);
    expect(read.map((r) => [r.offset, digest(r.message.value)])).toEqual(
      lines.map((line, i) => [BigInt(i), digest(line)]),
    );
    const inPieces = await readAll(topic, { maxDecompressedBytes: SMALL });
    expect(inPieces.map((r) => [r.offset, digest(r.message.value)])).toEqual(
      lines.map((line, i) => [BigInt(i), digest(beginning(Buffer.from(line)))]),
    );
  });
});

function record(topic: string, value: Buffer, i: number): TestRecord {
  return {
    topic,
    partition: i % 2,
    key: `key ${i}`,
    value,
    headers: [
      ['name', `value ${i}`],
      ['other', ''],
    ],
    timestamp: 1_700_000_000_000 + i,
  };
}

/** values are compared by digest: a difference in 5 MB would not be readable */
function digest(value: Buffer | string | null): string | undefined {
  return value === null ? undefined : createHash('sha256').update(value).digest('hex');
}

/**
 * A fetch that may hold only this many bytes decompressed: record batches are taken apart, of larger records the
 * beginning is kept.
 */
const SMALL = 400_000;

function beginning(value: Buffer): Buffer {
  return value.subarray(0, SMALL + 1);
}

async function expectInPieces(
  topic: string,
  records: readonly TestRecord[],
  reports: readonly DeliveryReport[],
): Promise<void> {
  const whole = records.map(({ value, ...rest }) => ({
    ...rest,
    value: beginning(value as Buffer),
    ...((value as Buffer).length > SMALL ? { headers: [] } : {}),
  }));
  expect(await readBack(topic, SMALL)).toEqual(expected(whole, reports));
}

function expected(records: readonly TestRecord[], reports: readonly DeliveryReport[]): Map<string, unknown> {
  return new Map(
    records.map(({ key, value, headers, timestamp }, i) => {
      const { partition, offset } = reports[i] ?? {};
      return [
        `${partition}:${offset}`,
        { key, value: digest(value), headers: Object.fromEntries(headers ?? []), timestamp: String(timestamp) },
      ];
    }),
  );
}

async function readBack(topic: string, maxDecompressedBytes?: number): Promise<Map<string, unknown>> {
  return new Map(
    (await readAll(topic, maxDecompressedBytes === undefined ? {} : { maxDecompressedBytes })).map(
      ({ partition, offset, message: { key, value, headers, time } }) => [
        `${partition}:${offset}`,
        {
          key: key?.toString(),
          value: digest(value),
          headers: Object.fromEntries(headers.map(([name, bytes]) => [name, String(bytes)])),
          timestamp: String(time),
        },
      ],
    ),
  );
}
