import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { SourceName } from '../../../common/sources.ts';
import { createAvroDecoder } from '../../../services/ingest/avro/decoder.ts';
import { readKnownSchemas } from '../../../services/ingest/avro/schemas.ts';
import { DEAD_LETTER_COLUMNS, evaluateBatch, rawColumns, RULES_VERSION } from '../../../services/ingest/evaluate/evaluate.ts';
import type { Record } from '../../../services/ingest/record.ts';
import { fateOf, type Fate, type Place } from './oracle.ts';

export const EVALUATED_AT = Date.parse('2026-03-01T12:00:00Z');
/** What every record carries unless a test says otherwise. */
export const RECORD_TIME = Date.parse('2026-03-01T11:59:59.250Z');
const RETENTION_DAYS = 90;
const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const LEAST_PERIOD = Date.parse('2026-02-27T00:00:00Z') / 1000;
const RULES = { version: RULES_VERSION, evaluatedAt: EVALUATED_AT, retentionDays: RETENTION_DAYS, maxEventBytes: MAX_EVENT_BYTES, rawAvro: false, schemaIds: [], period: LEAST_PERIOD } as const;

/** A message as a test writes it. */
export type Content = string | Uint8Array | Partial<Record> & { readonly value: Buffer | null };

/** What became of a message, or what has to. */
export interface Outcome {
  readonly row?: { readonly [column: string]: unknown };
  readonly reason?: string;
  /** record time, key, headers and bytes as hex: of a dead letter all, of a row the bytes */
  readonly kept: { readonly [column: string]: unknown };
}

export function recordsOf(contents: readonly Content[]): Record[] {
  return contents.map((content, offset) => ({
    offset, time: RECORD_TIME, key: null, headers: [],
    ...(typeof content === 'string' || content instanceof Uint8Array ? { value: Buffer.from(content) } : content),
  }));
}

const hex = (bytes: Uint8Array | null): string | null => (bytes === null ? null : Buffer.from(bytes).toString('hex'));
/** The bytes themselves, or of large ones enough to tell them apart. */
const brief = (text: string | null): string | null => (text !== null && text.length > 20_000 ? `${text.length} ${text.slice(0, 100)}..${text.slice(-100)}` : text);

const HOT: { readonly [source in SourceName]: readonly string[] } = {
  edge_logs: ['url', 'host', 'path', 'method', 'status_code', 'families', 'refs', 'refs_overflow'],
  function_edge_logs: ['function_id', 'is_invocation', 'status_code', 'execution_time_ms'],
  postgres_logs: ['level'],
  function_logs: ['level'],
  auth_logs: ['level'],
  realtime_logs: ['level'],
  storage_logs: ['level'],
  postgrest_logs: ['level'],
  pgbouncer_logs: ['level'],
};

export interface World {
  /** Evaluates the messages as one batch of a topic of its own, inserts what comes of them, and reads it back. */
  store(source: SourceName, contents: readonly Content[]): Promise<Stored>;
}

export interface Stored {
  readonly topic: string;
  /** by offset */
  readonly actual: Map<number, Outcome>;
  readonly expected: Map<number, Outcome>;
}

export function createWorld(clickhouse: ClickHouse): World {
  const schemas = readKnownSchemas(undefined);
  let topics = 0;

  return {
    async store(source, contents) {
      const topic = `${source}.${++topics}`;
      const records = recordsOf(contents);
      const batch = evaluateBatch(source, { topic, partition: 3, incarnation: 2, batchLast: records.length - 1 }, RULES, records, createAvroDecoder({ source, schemas, registry: undefined }));
      for (const [table, columns, pieces] of [[source, rawColumns(source), batch.rows], ['dead_letters', DEAD_LETTER_COLUMNS, batch.deadLetters]] as const) {
        if (pieces.length > 0) await clickhouse.insertRows({ table, columns, pieces, settings: { max_insert_block_size: 10_000_000, max_partitions_per_insert_block: 0 } });
      }
      return { topic, actual: await read(source, topic), expected: expectedOf(source, topic, records) };
    },
  };

  async function read(source: SourceName, topic: string): Promise<Map<number, Outcome>> {
    const outcomes = new Map<number, Outcome>();
    type RawRow = { offset: string; project: string; id: string; timestamp: string; kafka_partition: number; kafka_incarnation: number; batch_last: string; evaluated_at: string; value: string; refs?: string[] };
    const stored = await select<RawRow>(
      `SELECT kafka_offset AS offset, project, id, toUnixTimestamp64Micro(timestamp) AS timestamp, ${HOT[source].join(', ')}, lower(hex(message)) AS value, kafka_partition, kafka_incarnation, batch_last, toUnixTimestamp64Milli(evaluated_at) AS evaluated_at, rules, toUnixTimestamp(period) AS period
       FROM ${source} WHERE kafka_topic = {topic:String} ORDER BY kafka_offset`, topic);
    for (const { offset, value, ...row } of stored) {
      if (outcomes.has(Number(offset))) throw new Error(`offset ${offset} is stored twice`);
      outcomes.set(Number(offset), { row: row.refs === undefined ? row : { ...row, refs: row.refs.toSorted() }, kept: { value: brief(value) } });
    }
    type Letter = { offset: string; reason: string; value: string; key: string | null; headers: [string, string | null][]; record_time: string };
    const letters = await select<Letter>(
      `SELECT kafka_offset AS offset, reason, lower(hex(value)) AS value, lower(hex(key)) AS key, arrayMap(h -> (h.1, lower(hex(h.2))), headers) AS headers, record_time
       FROM dead_letters WHERE kafka_topic = {topic:String} ORDER BY kafka_offset`, topic);
    for (const { offset, reason, value, ...rest } of letters) {
      if (outcomes.has(Number(offset))) throw new Error(`offset ${offset} is there twice`);
      outcomes.set(Number(offset), { reason, kept: { ...rest, value: brief(value) } });
    }
    return outcomes;
  }

  async function select<T>(sql: string, topic: string): Promise<T[]> {
    return rows<T>(await clickhouse.read({ sql, params: { topic }, format: 'JSONEachRow', settings: { output_format_json_quote_64bit_integers: 1, output_format_json_named_tuples_as_objects: 0 } }));
  }
}

function expectedOf(source: SourceName, topic: string, records: readonly Record[]): Map<number, Outcome> {
  const place: Place = { source, topic, partition: 3, evaluatedAt: EVALUATED_AT, retentionDays: RETENTION_DAYS, maxEventBytes: MAX_EVENT_BYTES };
  return new Map(records.flatMap((record) => {
    if (record.value === null) return [];
    const fate = fateOf({ value: record.value, recordTime: record.time, offset: record.offset }, place);
    return [[record.offset, outcomeOf(fate, record, records.length - 1)] as const];
  }));
}

function outcomeOf(fate: Fate, record: Record, last: number): Outcome {
  if ('reason' in fate) {
    return { reason: fate.reason, kept: { value: brief(hex(record.value)), key: hex(record.key), headers: record.headers.map(([name, value]) => [name, hex(value)]), record_time: String(record.time) } };
  }
  const { hot, ...row } = fate.row;
  const sorted = 'refs' in hot ? { ...hot, refs: (hot['refs'] as string[]).toSorted() } : hot;
  return {
    row: { ...row, ...sorted, kafka_partition: 3, kafka_incarnation: 2, batch_last: String(last), evaluated_at: String(EVALUATED_AT), rules: RULES_VERSION, period: periodOf(row.timestamp) },
    kept: { value: brief(hex(record.value)) },
  };
}

/** The UTC day of an hour before the event, but none before LEAST_PERIOD. */
function periodOf(timestamp: string): number {
  const day = 86_400_000_000n;
  return Math.max(LEAST_PERIOD, Number((BigInt(timestamp) - 3_600_000_000n) / day) * 86_400);
}

/** Differences by offset with what the message was, readable; empty = none. */
export function differences({ actual, expected }: Stored, contents: readonly Content[]): object[] {
  const found: object[] = [];
  for (const offset of new Set([...actual.keys(), ...expected.keys()])) {
    const [is, must] = [actual.get(offset), expected.get(offset)];
    if (JSON.stringify(sortKeys(is)) !== JSON.stringify(sortKeys(must))) {
      const content = contents[offset];
      const text = typeof content === 'string' ? content : content === undefined ? undefined : Buffer.from(content instanceof Uint8Array ? content : (content.value ?? '')).toString('latin1');
      found.push({ message: text?.slice(0, 400), is, must });
    }
  }
  return found;
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => [k, sortKeys(v)]));
}
