import type { SourceName } from '../../common/sources.ts';
import { createAvroDecoder, type AvroDecoder } from '../../services/ingest/avro/decoder.ts';
import { readKnownSchemas } from '../../services/ingest/avro/schemas.ts';
import {
  evaluateBatch,
  RULES_VERSION,
  type EvaluatedBatch,
  type Rules,
} from '../../services/ingest/evaluate/evaluate.ts';
import type { Record as KafkaRecord } from '../../services/ingest/evaluate/record.ts';
import { rawInsert } from '../../services/ingest/evaluate/raw-rows.ts';
import { readNative } from '../harness/native-reader.ts';
import { RowBinaryReader } from '../harness/row-binary-reader.ts';
import { fateOf, type Fate, type Place } from './oracle.ts';

export const EVALUATED_AT = Date.parse('2026-03-01T12:00:00Z');
/** What every record carries unless a test says otherwise. */
export const RECORD_TIME = Date.parse('2026-03-01T11:59:59.250Z');
const LEAST_PERIOD = Date.parse('2026-02-27T00:00:00Z') / 1000;
export const RULES: Rules = {
  version: RULES_VERSION,
  evaluatedAt: EVALUATED_AT,
  retentionDays: 90,
  maxEventBytes: 8 * 1024 * 1024,
  rawAvro: false,
  schemaIds: [],
  period: LEAST_PERIOD,
};
const PARTITION = 3;
const INCARNATION = 2;

/** A message as a test writes it. */
export type Content = string | Uint8Array | (Partial<KafkaRecord> & { readonly value: Buffer | null });

/** What became of a message, or what has to. */
export interface Outcome {
  readonly row?: { readonly [column: string]: unknown };
  readonly reason?: string;
  /** record time, key, headers and bytes as hex: of a dead letter all, of a row the bytes */
  readonly kept: { readonly [column: string]: unknown };
  /** the batch that it belongs to: where it stands, and when and by which rules it was evaluated */
  readonly batch: { readonly [column: string]: unknown };
}

/** raw-rows.ts leaves more projects, or ids of one time, as they are. */
const MOST_SORTED = 5_000;

/** By offset. */
export type Outcomes = Map<number, Outcome>;

export function recordsOf(contents: readonly Content[]): KafkaRecord[] {
  return contents.map((content, offset) => ({
    offset,
    time: RECORD_TIME,
    key: null,
    headers: [],
    ...(typeof content === 'string' || content instanceof Uint8Array ? { value: Buffer.from(content) } : content),
  }));
}

const schemas = readKnownSchemas(undefined);
const decoders = new Map<SourceName, AvroDecoder>();

/** The messages as one batch of the topic. */
export function evaluated(source: SourceName, topic: string, contents: readonly Content[]): Promise<EvaluatedBatch> {
  if (!decoders.has(source)) decoders.set(source, createAvroDecoder(source, schemas));
  return evaluateBatch(
    source,
    { topic, partition: PARTITION, incarnation: INCARNATION, batchLast: contents.length - 1 },
    RULES,
    recordsOf(contents),
    decoders.get(source)!,
  );
}

/** What the rows and the dead letters of a batch hold. */
export function outcomesOf(
  source: SourceName,
  { rows, deadLetters }: Pick<EvaluatedBatch, 'rows' | 'deadLetters'>,
): Outcomes {
  const outcomes: Outcomes = new Map();
  const add = (offset: bigint, outcome: Outcome): void => {
    if (outcomes.has(Number(offset))) throw new Error(`offset ${offset} is there twice`);
    outcomes.set(Number(offset), outcome);
  };
  const stored = rows.order.length === 0 ? [] : readNative(rawInsert([rows]).pieces);
  expectSorted(stored);
  for (const row of stored) {
    const { message, kafka_offset: offset, ...columns } = row;
    const readable = Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, readableOf(value)]));
    add(offset as bigint, { ...splitBatch(readable), kept: { value: brief(hex(message as Buffer)) } });
  }
  const letter = new RowBinaryReader(deadLetters);
  while (!letter.isAtEnd) {
    if (letter.text() !== source) throw new Error('a dead letter of another source');
    const kafka_topic = letter.text();
    const [kafka_incarnation, kafka_partition] = [letter.uint32(), letter.uint32()];
    const offset = letter.int64();
    const [batch_last, evaluated_at] = [String(letter.int64()), String(letter.int64())];
    const batch = { kafka_topic, kafka_incarnation, kafka_partition, batch_last, evaluated_at, rules: letter.uint16() };
    const record_time = String(letter.int64());
    const reason = letter.text();
    letter.text();
    const key = letter.nullable(() => hex(letter.string()));
    const headers = letter.array(() => [letter.text(), letter.nullable(() => hex(letter.string()))]);
    add(offset, { reason, kept: { value: brief(hex(letter.string())), key, headers, record_time }, batch });
  }
  return outcomes;
}

/** Takes the columns of the batch out of those of a row. */
export function splitBatch(columns: Readonly<Record<string, unknown>>): Pick<Outcome, 'row' | 'batch'> {
  const { kafka_topic, kafka_incarnation, kafka_partition, batch_last, evaluated_at, rules, ...row } = columns;
  return { row, batch: { kafka_topic, kafka_incarnation, kafka_partition, batch_last, evaluated_at, rules } };
}

/** Throws unless the rows are in the order of their table's sorting key. Of many rows some may stay as they are. */
function expectSorted(rows: ReturnType<typeof readNative>): void {
  if (rows.length > MOST_SORTED) return;
  for (const [i, row] of rows.slice(1).entries()) {
    const before = rows[i]!;
    const byTime = Number((before['timestamp'] as bigint) - (row['timestamp'] as bigint));
    const [byProject, byId] = ['project', 'id'].map((key) => (before[key] as Buffer).compare(row[key] as Buffer));
    if ((byProject || byTime || byId!) > 0) throw new Error(`row ${i + 1} sorts before the one before it`);
  }
}

/** A value as the oracle writes it. Throws TypeError where a text is not UTF-8. */
function readableOf(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return value.map((item) => String(readableOf(item))).toSorted();
  if (!(value instanceof Uint8Array)) return value;
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(value);
}

/** What a plain reading of the messages says (oracle.ts). */
export function expectedOutcomes(source: SourceName, topic: string, contents: readonly Content[]): Outcomes {
  const place: Place = {
    source,
    topic,
    partition: PARTITION,
    evaluatedAt: EVALUATED_AT,
    retentionDays: RULES.retentionDays,
    maxEventBytes: RULES.maxEventBytes,
  };
  const batch = {
    kafka_topic: topic,
    kafka_incarnation: INCARNATION,
    kafka_partition: PARTITION,
    batch_last: String(contents.length - 1),
    evaluated_at: String(EVALUATED_AT),
    rules: RULES_VERSION,
  };
  return new Map(
    recordsOf(contents).flatMap((record) => {
      if (record.value === null) return [];
      const fate = fateOf({ value: record.value, recordTime: record.time, offset: record.offset }, place);
      return [[record.offset, { ...outcomeOf(fate, record), batch }] as const];
    }),
  );
}

function outcomeOf(fate: Fate, record: KafkaRecord): Omit<Outcome, 'batch'> {
  if ('reason' in fate) {
    return {
      reason: fate.reason,
      kept: {
        value: brief(hex(record.value)),
        key: hex(record.key),
        headers: record.headers.map(([name, value]) => [name, hex(value)]),
        record_time: String(record.time),
      },
    };
  }
  const { hot, ...row } = fate.row;
  const sorted = 'refs' in hot ? { ...hot, refs: (hot['refs'] as string[]).toSorted() } : hot;
  return {
    row: { ...row, ...sorted, period: periodOf(row.timestamp) },
    kept: { value: brief(hex(record.value)) },
  };
}

/** The UTC day of an hour before the event, but none before LEAST_PERIOD. */
function periodOf(timestamp: string): number {
  return Math.max(LEAST_PERIOD, Number((BigInt(timestamp) - 3_600_000_000n) / 86_400_000_000n) * 86_400);
}

export function hex(bytes: Uint8Array | null): string | null {
  return bytes === null ? null : Buffer.from(bytes).toString('hex');
}

/** The bytes themselves, or of large ones enough to tell them apart. */
export function brief(text: string | null): string | null {
  return text !== null && text.length > 20_000 ? `${text.length} ${text.slice(0, 100)}..${text.slice(-100)}` : text;
}

/** Differences by offset with what the message was, readable; empty = none. */
export function differences(actual: Outcomes, expected: Outcomes, contents: readonly Content[]): object[] {
  const found: object[] = [];
  for (const offset of new Set([...actual.keys(), ...expected.keys()])) {
    const [is, must] = [actual.get(offset), expected.get(offset)];
    if (JSON.stringify(sortKeys(is)) !== JSON.stringify(sortKeys(must))) {
      const content = contents[offset];
      const text =
        typeof content === 'string'
          ? content
          : content === undefined
            ? undefined
            : Buffer.from(content instanceof Uint8Array ? content : (content.value ?? '')).toString('latin1');
      found.push({ message: text?.slice(0, 400), is, must });
    }
  }
  return found;
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([k, v]) => [k, sortKeys(v)]),
  );
}
