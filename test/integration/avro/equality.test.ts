import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { rows } from '../../../common/clickhouse/clickhouse.ts';
import { sources, type SourceName } from '../../../common/sources.ts';
import { createTraffic } from '../../../demo/traffic.ts';
import { createRegistry } from '../../../services/ingest/avro/registry.ts';
import {
  DEAD_LETTER_COLUMNS,
  evaluateBatch,
  RULES_VERSION,
  schemaIdsOf,
} from '../../../services/ingest/evaluate/evaluate.ts';
import { rawInsert } from '../../../services/ingest/evaluate/raw-rows.ts';
import type { Record as KafkaRecord } from '../../../services/ingest/evaluate/record.ts';
import { confluent, schemaOf, singleObject, testDecoder, writerOf } from '../../harness/avro.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { startRegistry, type TestRegistry } from '../../harness/schema-registry.ts';

// An Avro event gives the same row as the same event in JSON. Each way of writing it is one batch of the same partition
// and offsets in another life of the topic, so that derived ids are the same too.

const SEED = Number(process.env['SEED'] ?? 20_260_301);
const RECORD_TIME = Date.UTC(2026, 2, 1, 12);
const ways = ['json', 'single_object', 'confluent', 'raw_datum'] as const;

let engine: TestClickHouse;
let registry: TestRegistry;

beforeAll(async () => {
  engine = await openTestClickHouse();
  registry = await startRegistry();
});
afterAll(async () => {
  await engine.close();
  await registry.stop();
});

interface Row {
  readonly message: string;
  readonly kafka_offset: number;
  readonly [column: string]: unknown;
}

/** The rows and the dead letters of the events, by the way in which they were written. */
async function storeAll(
  source: SourceName,
  topic: string,
  events: readonly unknown[],
  evaluatedAt: number,
  recordTime: number,
): Promise<Map<string, { rows: Row[]; deadLetters: Row[] }>> {
  const schema = schemaOf(source);
  const datum = writerOf(schema);
  const id = registry.register(schema);
  const client = createRegistry({ url: registry.url, onLookup: () => {} });
  const written: Record<(typeof ways)[number], (event: unknown) => Buffer> = {
    json: (event) => Buffer.from(JSON.stringify(event)),
    single_object: (event) => singleObject(schema, event),
    confluent: (event) => confluent(id, datum(event)),
    raw_datum: datum,
  };
  const result = new Map<string, { rows: Row[]; deadLetters: Row[] }>();
  for (const [incarnation, way] of ways.entries()) {
    const records = events.map((event, offset): KafkaRecord => ({
      offset,
      time: recordTime,
      key: Buffer.from('key'),
      value: written[way](event),
      headers: [],
    }));
    const avro = testDecoder(source, { registry: client });
    const limits = { maxEventBytes: 8 * 1024 * 1024, rawAvro: way === 'raw_datum' };
    const schemaIds = await schemaIdsOf(avro, records, limits);
    expect(schemaIds).toEqual(way === 'confluent' ? [id] : []);
    const rules = { ...limits, version: RULES_VERSION, evaluatedAt, retentionDays: 90, schemaIds, period: 0 };
    const batch = await evaluateBatch(
      source,
      { topic, partition: 0, incarnation, batchLast: records.length - 1 },
      rules,
      records,
      avro,
    );
    const settings = { async_insert: 0, max_partitions_per_insert_block: 0 };
    if (batch.rowOffsets.length > 0) await engine.clickhouse.insertRows({ ...rawInsert([batch.rows]), settings });
    if (batch.deadLetters.length > 0)
      await engine.clickhouse.insertRows({
        table: 'dead_letters',
        columns: DEAD_LETTER_COLUMNS,
        pieces: batch.deadLetters,
        settings,
      });
    const read = async (table: string, columns: string): Promise<Row[]> =>
      rows<Row>(
        await engine.clickhouse.read({
          sql: `SELECT ${columns} FROM ${table} WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} ORDER BY kafka_offset`,
          params: { topic, incarnation },
          format: 'JSONEachRow',
        }),
      );
    const deadLetters = await read('dead_letters', 'kafka_offset, reason, detail, hex(value) AS message');
    for (const [i, letter] of deadLetters.entries())
      expect(letter.message.toLowerCase(), `original bytes of ${i}`).toBe(
        records[letter.kafka_offset]!.value!.toString('hex'),
      );
    result.set(way, { rows: await read(source, '* EXCEPT (kafka_incarnation, inserted_at)'), deadLetters });
  }
  return result;
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, v]) => v !== null)
      .map(([k, v]) => [k, withoutNulls(v)]),
  );
}

const comparable = ({ message, ...columns }: Row): object => ({ ...columns, event: withoutNulls(JSON.parse(message)) });

function expectEqual(
  stored: Map<string, { rows: Row[]; deadLetters: Row[] }>,
  events: readonly unknown[],
  deadLetters: readonly string[] = [],
): void {
  const json = stored.get('json')!;
  expect(json.rows.map((row) => withoutNulls(JSON.parse(row.message)))).toEqual(
    events.filter((_, i) => !json.deadLetters.some((d) => d.kafka_offset === i)).map(withoutNulls),
  );
  expect(json.deadLetters.map((d) => d['reason'])).toEqual(deadLetters);
  for (const way of ways) {
    expect(stored.get(way)!.rows.map(comparable), way).toEqual(json.rows.map(comparable));
    expect(
      stored.get(way)!.deadLetters.map(({ message: _, ...letter }) => letter),
      way,
    ).toEqual(json.deadLetters.map(({ message: _, ...letter }) => letter));
  }
}

const examples = new URL('../../../schemas/examples/', import.meta.url);

test.each(sources.map((s) => s.name))('every example of %s', async (source) => {
  const folder = new URL(`${source}/`, examples);
  const events = readdirSync(folder).map(
    (file) => JSON.parse(readFileSync(new URL(file, folder), 'utf8')) as { timestamp?: number | string | null },
  );
  const times = events.map(({ timestamp }) =>
    typeof timestamp === 'number'
      ? timestamp / 1000
      : typeof timestamp === 'string'
        ? Date.parse(timestamp)
        : RECORD_TIME,
  );
  const stored = await storeAll(source, `${source}.examples`, events, Math.ceil(Math.max(...times)), RECORD_TIME);
  expectEqual(stored, events);
  expect(stored.get('raw_datum')!.rows).toHaveLength(events.length);
});

test(`events of all sources as they come, with every oddity that Avro can carry (seed ${SEED})`, async () => {
  const traffic = createTraffic({
    seed: SEED,
    projects: 6,
    functionsPerProject: 3,
    selfHostedShare: 0.3,
    untimedShare: 0.2,
    ids: { uuid: 4, empty: 1, null: 1, absent: 1 },
  });
  const now = RECORD_TIME;
  const produced = Array.from({ length: 1500 }, (_, i) => traffic.next((now - i * 1000) * 1000));
  let rowsOfAvro = 0;
  for (const { name } of sources) {
    const events = produced.filter((e) => e.source === name).map((e) => JSON.parse(e.json) as unknown);
    const stored = await storeAll(name, `${name}.traffic`, events, now, now);
    expectEqual(stored, events);
    rowsOfAvro += stored.get('single_object')!.rows.length;
  }
  expect(rowsOfAvro).toBe(produced.length);
});

test('what evaluation refuses is a dead letter with the bytes that came', async () => {
  const events = [
    { project: 'abc', timestamp: 'yesterday' },
    { project: 'abc', timestamp: 1_700_000_000_000_000 },
    { project: '', timestamp: null },
    { project: 'abc', timestamp: 17 },
    { project: 'abc', timestamp: '2026-03-01T11:59:59.123456789Z', event_message: 'stored' },
  ];
  const stored = await storeAll('postgrest_logs', 'refused', events, RECORD_TIME, RECORD_TIME);
  expect(stored.get('confluent')!.deadLetters).toHaveLength(4);
  expectEqual(stored, events, ['bad_timestamp', 'timestamp_out_of_range', 'missing_project', 'bad_timestamp']);
});

test('numbers beyond what doubles hold keep their digits', async () => {
  const events = [
    { project: '12345678901234567890123', timestamp: 1_772_366_400_123_456, metadata: { host: '9007199254740993' } },
  ];
  const stored = await storeAll('pgbouncer_logs', 'exact', events, RECORD_TIME + 1000, RECORD_TIME);
  expectEqual(stored, events);
  expect(stored.get('single_object')!.rows).toMatchObject([
    { project: '12345678901234567890123', timestamp: '2026-03-01 12:00:00.123456' },
  ]);
});
