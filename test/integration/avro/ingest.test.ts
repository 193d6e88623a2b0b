import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows } from '../../../common/clickhouse/clickhouse.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createKafka } from '../../../common/kafka/client.ts';
import { createRegistry as createMetricsRegistry } from '../../../common/metrics.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import { startIngest, type RunningIngest } from '../../../services/ingest/service.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import { confluent, schemaOf, singleObject, writerOf } from '../../harness/avro.ts';
import { produceWithAvroSerializer } from '../../harness/avro-serializer.ts';
import { openTestClickHouse, temporaryFolder, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { createTopic, kafkaBrokers, produce, uniqueName } from '../../harness/kafka.ts';
import { startRegistry, type TestRegistry } from '../../harness/schema-registry.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Avro through real Kafka: every form and every way in which it can be wrong, beside each other in one partition.

const suffix = uniqueName('avro');
const topicOf = (source: SourceName): string => `${source}.${suffix}`;
const project = 'abcdefghijklmnopqrst';

const folder = temporaryFolder();
let engine: TestClickHouse;
let registry: TestRegistry;
let ingest: RunningIngest;

const edge = schemaOf('edge_logs');
const older = {
  ...edge,
  fields: edge.fields.filter(({ name }) => ['project', 'event_message', 'timestamp'].includes(name)),
};
const newer = {
  ...edge,
  fields: [
    { name: 'tags', type: ['null', { type: 'map', values: 'string' }], default: null },
    ...edge.fields,
    { name: 'shard', type: 'int' },
  ],
};
/**
 * another program's schema of the same events: other types, an own namespace, no union where there is always a value
 */
const loose = {
  type: 'record',
  name: 'edge_logs',
  namespace: 'org.example.producer',
  fields: [
    { name: 'project', type: 'bytes' },
    { name: 'timestamp', type: 'double' },
    {
      name: 'metadata',
      type: {
        type: 'record',
        name: 'Meta',
        fields: [
          {
            name: 'request',
            type: {
              type: 'array',
              items: {
                type: 'record',
                name: 'Req',
                fields: [
                  { name: 'method', type: { type: 'enum', name: 'Method', symbols: ['GET', 'POST'] } },
                  { name: 'path', type: 'string' },
                ],
              },
            },
          },
          {
            name: 'response',
            type: { type: 'record', name: 'Res', fields: [{ name: 'status_code', type: 'string' }] },
          },
        ],
      },
    },
  ],
};

beforeAll(async () => {
  [engine, registry] = await Promise.all([openTestClickHouse(), startRegistry()]);
  const schemasDir = join(folder.path, 'schemas');
  mkdirSync(schemasDir);
  writeFileSync(join(schemasDir, 'older.avsc'), JSON.stringify(older));
  writeFileSync(join(schemasDir, 'newer.avsc'), JSON.stringify(newer));
  for (const { name } of sources) await createTopic('', {}, topicOf(name));
  await produceMixed();
  const settings = readSettings({
    KAFKA_TOPICS: sources.map(({ name }) => `${name}=${topicOf(name)}`).join(','),
    KAFKA_RAW_AVRO_TOPICS: topicOf('auth_logs'),
    KAFKA_GROUP_ID: suffix,
    SCHEMA_REGISTRY_URL: registry.url,
    AVRO_SCHEMAS_DIR: schemasDir,
  });
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: suffix,
    logger: testLogger,
    maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  ingest = await startIngest({
    clickhouse: engine.clickhouse,
    kafka,
    settings,
    logger: testLogger,
    registry: createMetricsRegistry(),
  });
});
afterAll(async () => {
  await ingest.stop();
  await engine.close();
  await registry.stop();
  folder.remove();
});

interface Expected {
  readonly value: Buffer;
  /** the stored text, or the reason */
  readonly becomes: object | string;
  readonly detail?: string;
}

let mixed: Expected[] = [];

async function produceMixed(): Promise<void> {
  const schema = registry.register(edge);
  const looseSchema = registry.register(loose);
  const foreign = registry.register(schemaOf('postgrest_logs'));
  const datum = writerOf(edge);
  const at = Date.now() * 1000;
  const event = (i: number): { project: string; timestamp: number; event_message: string } => ({
    project,
    timestamp: at + i,
    event_message: `event ${i} "é"`,
  });
  const whole = singleObject(edge, event(0));
  const looseEvent = {
    project: Buffer.from(project),
    timestamp: Math.floor(at / 1e6) + 0.5,
    metadata: { request: [{ method: 'POST', path: '/rest/v1/x' }], response: { status_code: '404' } },
  };
  const once: Expected[] = [
    { value: Buffer.from(JSON.stringify(event(1))), becomes: event(1) },
    { value: singleObject(edge, event(2)), becomes: event(2) },
    { value: singleObject(older, event(3)), becomes: event(3) },
    {
      value: singleObject(newer, { ...event(4), tags: { a: 'b' }, shard: 7 }),
      becomes: { ...event(4), tags: { a: 'b' }, shard: 7 },
    },
    { value: confluent(schema, datum(event(5))), becomes: event(5) },
    { value: confluent(looseSchema, writerOf(loose)(looseEvent)), becomes: { ...looseEvent, project } },
    { value: whole.subarray(0, -1), becomes: 'malformed_avro' },
    { value: Buffer.concat([whole, Buffer.of(0)]), becomes: 'malformed_avro', detail: '1 bytes left over' },
    { value: whole.subarray(0, 7), becomes: 'malformed_avro', detail: 'header cut off' },
    { value: confluent(schema, datum(event(6)).subarray(0, 3)), becomes: 'malformed_avro' },
    { value: Buffer.from([0, 0, 0, 1]), becomes: 'malformed_avro', detail: 'header cut off' },
    {
      value: confluent(schema, Buffer.from([2, ...Buffer.from('feffffffffffffffff01', 'hex')])),
      becomes: 'malformed_avro',
    },
    {
      value: Buffer.concat([Buffer.from([0xc3, 1]), Buffer.alloc(8, 0x55), datum(event(7))]),
      becomes: 'unknown_schema',
      detail: 'schema fingerprint 5555555555555555',
    },
    {
      value: singleObject(schemaOf('auth_logs'), event(8)),
      becomes: 'unknown_schema',
      detail: 'schema sluice.auth_logs is not one of edge_logs',
    },
    {
      value: confluent(foreign, writerOf(schemaOf('postgrest_logs'))(event(9))),
      becomes: 'unknown_schema',
      detail: 'schema sluice.postgrest_logs is not one of edge_logs',
    },
    {
      value: confluent(999_999, datum(event(10))),
      becomes: 'unknown_schema',
      detail: 'schema id 999999 is not in the registry',
    },
    { value: datum(event(11)).subarray(1), becomes: 'not_an_event' },
    { value: Buffer.from('[{}]'), becomes: 'not_an_event' },
    { value: Buffer.from('{"project":'), becomes: 'malformed_json' },
    { value: singleObject(edge, { ...event(12), project: null }), becomes: 'missing_project' },
    { value: confluent(schema, datum({ ...event(13), timestamp: 'soon' })), becomes: 'bad_timestamp' },
    {
      value: singleObject(edge, { ...event(14), timestamp: 1_000_000_000_000_000 }),
      becomes: 'timestamp_out_of_range',
    },
  ];
  mixed = Array.from({ length: 40 }).flatMap(() => once);
  await produce(
    mixed.map(({ value }) => ({ topic: topicOf('edge_logs'), partition: 0, value })),
    { compression: 'lz4' },
  );
}

async function stored(source: SourceName): Promise<Map<number, { message: string; [column: string]: unknown }>> {
  const found = await engine.clickhouse.read({
    sql: `SELECT * FROM ${source} WHERE kafka_topic = {topic:String} ORDER BY kafka_offset`,
    params: { topic: topicOf(source) },
    format: 'JSONEachRow',
  });
  return new Map(rows<{ message: string; kafka_offset: number }>(found).map((row) => [row.kafka_offset, row]));
}

async function deadLetters(
  source: SourceName,
): Promise<Map<number, { reason: string; detail: string; value: string }>> {
  const found = await engine.clickhouse.read({
    sql: 'SELECT kafka_offset, reason, detail, lower(hex(value)) AS value FROM dead_letters WHERE kafka_topic = {topic:String} ORDER BY kafka_offset',
    params: { topic: topicOf(source) },
    format: 'JSONEachRow',
  });
  return new Map(
    rows<{ kafka_offset: number; reason: string; detail: string; value: string }>(found).map((row) => [
      row.kafka_offset,
      row,
    ]),
  );
}

async function consumed(source: SourceName): Promise<number> {
  const [row] = rows<{ last: number; batches: number }>(
    await engine.clickhouse.read({
      sql: 'SELECT toInt32(max(last)) AS last, toUInt32(count()) AS batches FROM batches WHERE topic = {topic:String}',
      params: { topic: topicOf(source) },
      format: 'JSONEachRow',
    }),
  );
  return row === undefined || row.batches === 0 ? 0 : row.last + 1;
}

test('all forms in one topic and one batch: each message is one row or one dead letter with its bytes', async () => {
  await waitFor(
    async () => (await consumed('edge_logs')) === mixed.length,
    30_000,
    'the mixed messages are in the ledger',
  );
  const [found, letters] = [await stored('edge_logs'), await deadLetters('edge_logs')];
  for (const [offset, { value, becomes, detail }] of mixed.entries()) {
    if (typeof becomes === 'object') {
      expect(letters.get(offset), `offset ${offset}`).toBeUndefined();
      expect(JSON.parse(found.get(offset)!.message), `offset ${offset}`).toEqual(becomes);
    } else {
      expect(found.get(offset), `offset ${offset}`).toBeUndefined();
      expect(letters.get(offset), `offset ${offset}`).toMatchObject({
        reason: becomes,
        value: value.toString('hex'),
        ...(detail === undefined ? {} : { detail }),
      });
    }
  }
  expect(found.size + letters.size).toBe(mixed.length);
  const [batch] = rows<{ batches: number }>(
    await engine.clickhouse.read({
      sql: 'SELECT toUInt32(count()) AS batches FROM batches WHERE topic = {topic:String}',
      params: { topic: topicOf('edge_logs') },
      format: 'JSONEachRow',
    }),
  );
  expect(batch).toEqual({ batches: 1 });
  const account = await reconcile(engine.clickhouse, 90);
  expect(account.faults).toEqual([]);
});

test("another program's types are read as those of a JSON event", async () => {
  const row = [...(await stored('edge_logs')).values()].find(({ message }) => message.includes('"POST"'))!;
  expect(row).toMatchObject({ project, method: 'POST', path: '/rest/v1/x', status_code: 404, url: null });
  expect(row['timestamp']).toMatch(/\.500000$/);
});

test('the registry was asked once for each id', () => {
  const asked = registry.requests.map(({ path }) => path);
  expect(asked.toSorted()).toEqual([...new Set(asked)].toSorted());
});

test("what Confluent's own serializer writes and registers is read", async () => {
  const events = Array.from({ length: 20 }, (_, i) => ({
    project,
    timestamp: Date.now() * 1000,
    event_message: `line ${i}`,
    metadata: { host: 'db-x', parsed: { error_severity: 'ERROR', process_id: i } },
  }));
  const offsets = await produceWithAvroSerializer(topicOf('postgres_logs'), 'postgres_logs', registry.url, events);
  await waitFor(
    async () => (await consumed('postgres_logs')) === events.length,
    30_000,
    'the messages are in the ledger',
  );
  const found = await stored('postgres_logs');
  expect(offsets.map((offset) => JSON.parse(found.get(offset)!.message) as unknown)).toEqual(events);
  expect(found.get(0)).toMatchObject({ project, level: 'ERROR' });
}, 180_000);

test('a topic of raw datums takes nothing else', async () => {
  const datum = writerOf(schemaOf('auth_logs'));
  const event = {
    project,
    timestamp: Date.now() * 1000,
    event_message: '{"a":1}',
    metadata: { level: 'info', status: '200' },
  };
  const named = { id: 'abc', ...event };
  const values = [
    datum(event),
    Buffer.from(JSON.stringify(event)),
    datum(named),
    singleObject(schemaOf('auth_logs'), event),
    Buffer.alloc(0),
    Buffer.concat([datum(event), datum(event)]),
  ];
  // the first field absent: the datum begins with 00, as Confluent's format does
  expect(values[0]![0]).toBe(0);
  await produce([...values, null].map((value) => ({ topic: topicOf('auth_logs'), partition: 0, value })));
  await waitFor(
    async () => (await consumed('auth_logs')) === values.length + 1,
    30_000,
    'the messages are in the ledger',
  );
  const [found, letters] = [await stored('auth_logs'), await deadLetters('auth_logs')];
  expect([...found].map(([offset, row]) => [offset, JSON.parse(row.message)])).toEqual([
    [0, event],
    [2, named],
  ]);
  expect([...letters].map(([offset, { reason, value }]) => [offset, reason, value])).toEqual([
    [1, 'malformed_avro', values[1]!.toString('hex')],
    [3, 'malformed_avro', values[3]!.toString('hex')],
    [4, 'not_an_event', ''],
    [5, 'malformed_avro', values[5]!.toString('hex')],
  ]);
});

describe('while the registry does not answer', () => {
  const lines = (source: SourceName, count: number): object[] =>
    Array.from({ length: count }, (_, i) => ({
      project,
      timestamp: Date.now() * 1000,
      event_message: `${source} ${i}`,
    }));

  test.each<[SourceName, string, () => Promise<void>, () => Promise<void>]>([
    ['postgrest_logs', 'because it is down', () => registry.stop(), () => registry.start()],
    [
      'pgbouncer_logs',
      'but fails',
      () => {
        registry.fault = { status: 503, body: '' };
        return Promise.resolve();
      },
      () => {
        registry.fault = undefined;
        return Promise.resolve();
      },
    ],
  ])('a batch of %s with an unknown id waits (%s), other partitions go on', async (source, _, breakIt, mendIt) => {
    const schema = schemaOf(source);
    const id = registry.register(schema);
    const events = lines(source, 10);
    await breakIt();
    try {
      await produce([
        ...events.map((event) => ({
          topic: topicOf(source),
          partition: 0,
          value: confluent(id, writerOf(schema)(event)),
        })),
        { topic: topicOf(source), partition: 0, value: JSON.stringify(events[0]) },
      ]);
      const before = await consumed('postgres_logs');
      await produce([
        {
          topic: topicOf('postgres_logs'),
          partition: 0,
          value: JSON.stringify({ project, event_message: 'meanwhile' }),
        },
      ]);
      await waitFor(async () => (await consumed('postgres_logs')) === before + 1, 30_000, 'another partition goes on');
      await waitFor(
        () =>
          registry.fault === undefined || registry.requests.filter(({ path }) => path.endsWith(`/${id}`)).length > 2,
        30_000,
        'the registry is asked again',
      );
      expect([await consumed(source), (await stored(source)).size, (await deadLetters(source)).size]).toEqual([
        0, 0, 0,
      ]);
      expect(ingest.isJoined()).toBe(true);
    } finally {
      await mendIt();
    }
    await waitFor(async () => (await consumed(source)) === 11, 30_000, 'the batch is stored');
    expect([...(await stored(source)).values()].map(({ message }) => JSON.parse(message) as unknown)).toEqual([
      ...events,
      events[0],
    ]);
    expect((await deadLetters(source)).size).toBe(0);
  });
});
