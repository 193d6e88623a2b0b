import { setImmediate as nextTurn } from 'node:timers/promises';
import { eventReaderOf, timeRangeAt } from '../../../common/evaluate/event.ts';
import { sourceOf, type SourceName } from '../../../common/sources.ts';
import type { AvroDecoder } from '../avro/decoder.ts';
import { rawRowWriter, type RawRows } from './raw-rows.ts';
import { formOf, type BatchPlace, type Reason, type Record, type Refusal } from './record.ts';
import { RowBinary, writeRow, type RowColumns } from './row-binary.ts';

/**
 * Message → row, dead letter, or nothing (a null value): one pure function for ingest, recovery and replays. It knows
 * no engine, no client and no clock, so the same bytes under the same rules are the same row, whenever and by whomever
 * they are evaluated.
 */

/** Raise it with any change that gives a message another verdict or another column. */
export const RULES_VERSION = 4;

/** What a verdict depends on besides the message. Announced with the batch, so that a recovery decides alike. */
export interface Rules {
  /** RULES_VERSION when the batch was announced */
  readonly version: number;
  /** unix milliseconds */
  readonly evaluatedAt: number;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
  /** every message of the topic is a datum of the source's present schema and nothing else */
  readonly rawAvro: boolean;
  /**
   * ids of the schema registry that messages may be decoded with; any other is unknown, also when it is registered
   * later
   */
  readonly schemaIds: readonly number[];
  /** unix seconds: the least period of a row */
  readonly period: number;
}

export interface EvaluatedBatch {
  readonly rows: RawRows;
  /** RowBinary of DEAD_LETTER_COLUMNS, in pieces */
  readonly deadLetters: readonly Uint8Array[];
  /** offsets of the rows, ascending */
  readonly rowOffsets: readonly number[];
  /** offsets of the dead letters, ascending */
  readonly deadOffsets: readonly number[];
  /** least of the rows, unix microseconds; undefined if there are no rows */
  readonly minTimestamp: number | undefined;
  /** dead letters by reason */
  readonly reasons: ReadonlyMap<Reason, number>;
}

interface DeadLetter {
  readonly source: string;
  readonly place: BatchPlace;
  readonly rules: Rules;
  readonly record: Record;
  readonly refusal: Refusal;
}

const DEAD_LETTER: RowColumns<DeadLetter> = {
  source: (out, { source }) => out.text(source),
  kafka_topic: (out, { place }) => out.text(place.topic),
  kafka_incarnation: (out, { place }) => out.uint32(place.incarnation),
  kafka_partition: (out, { place }) => out.uint32(place.partition),
  kafka_offset: (out, { record }) => out.int64(record.offset),
  batch_last: (out, { place }) => out.int64(place.batchLast),
  evaluated_at: (out, { rules }) => out.int64(rules.evaluatedAt),
  rules: (out, { rules }) => out.uint16(rules.version),
  record_time: (out, { record }) => out.int64(record.time),
  reason: (out, { refusal }) => out.text(refusal.reason),
  detail: (out, { refusal }) => out.text(refusal.detail),
  key: (out, { record }) => out.nullable(record.key),
  headers(out, { record }) {
    out.length(record.headers.length);
    for (const [name, header] of record.headers) {
      out.text(name);
      out.nullable(header);
    }
  },
  value: (out, { record }) => out.string(record.value!),
};
/** The columns of dead_letters in the order of EvaluatedBatch.deadLetters. */
export const DEAD_LETTER_COLUMNS: readonly string[] = Object.keys(DEAD_LETTER);

/** Returns the schema ids that messages of these records may be decoded with today. Throws RegistryError. */
export async function schemaIdsOf(
  avro: Pick<AvroDecoder, 'usableIds'>,
  records: readonly Record[],
  { maxEventBytes, rawAvro }: Pick<Rules, 'maxEventBytes' | 'rawAvro'>,
): Promise<number[]> {
  return await avro.usableIds(messages());

  function* messages(): Generator<Buffer, void, undefined> {
    for (const { value } of records)
      if (value !== null && formOf(value, maxEventBytes, rawAvro) === 'confluent') yield value;
  }
}

/** Returns today's rules for these records. Throws RegistryError. */
export async function rulesFor(
  avro: Pick<AvroDecoder, 'usableIds'>,
  records: readonly Record[],
  settings: Pick<Rules, 'retentionDays' | 'maxEventBytes' | 'rawAvro'>,
  { evaluatedAt, period }: Pick<Rules, 'evaluatedAt' | 'period'>,
): Promise<Rules> {
  const schemaIds = await schemaIdsOf(avro, records, settings);
  return { version: RULES_VERSION, evaluatedAt, ...settings, schemaIds, period };
}

/**
 * What is evaluated in one turn of the event loop: about 0.1 ms of CPU, unless one event is larger. Node accepts one
 * connection in a turn, so many short turns let others in sooner than few long ones (bench/README.md).
 */
const TURN_BYTES = 16 * 1024;
/** what a record counts beside its value */
const RECORD_BYTES = 256;
/** what a header of a dead letter counts beside its name and value */
const HEADER_BYTES = 64;

/**
 * A batch up to this size, about 10 ms of CPU, does not wait for larger ones. On a server, 16 are written at a time.
 */
const SMALL_BATCH_BYTES = 1024 * 1024;

/** resolves when no large batch is evaluated any more */
let idle = Promise.resolve();

/**
 * Evaluates the records of a batch, but not those whose offset is in `without`: they are stored already. Other work
 * runs in between: 9,000 edge events take about 100 ms. Records must not change until its rows are inserted.
 * Call `avro.load(rules.schemaIds, ...)` before it. One large batch after the other: two at once would both be ready
 * late, and the engine idle until then (a tenth fewer events/s, bench/README.md).
 */
export async function evaluateBatch(...batch: Parameters<typeof evaluate>): Promise<EvaluatedBatch> {
  const [, , , records] = batch;
  if (isSmall(records)) return await evaluate(...batch);
  const evaluated = idle.then(() => evaluate(...batch));
  // keeps nothing of the batch
  idle = evaluated.then(() => undefined).catch(() => undefined);
  return await evaluated;
}

function isSmall(records: readonly Record[]): boolean {
  let left = SMALL_BATCH_BYTES;
  for (const { value } of records) if ((left -= RECORD_BYTES + (value?.length ?? 0)) < 0) return false;
  return true;
}

/** What a dead letter holds beside its value; a row has nothing of it. */
function sizeBeside({ key, headers }: Record): number {
  return headers.reduce(
    (sum, [name, header]) => sum + HEADER_BYTES + name.length + (header?.length ?? 0),
    key?.length ?? 0,
  );
}

/** Returns the JSON text of a message: itself, or what its Avro datum says. */
export function textOf(
  value: Buffer,
  avro: AvroDecoder,
  { maxEventBytes, rawAvro }: Pick<Rules, 'maxEventBytes' | 'rawAvro'>,
  schemaIds: ReadonlySet<number>,
): Buffer | Refusal {
  const form = formOf(value, maxEventBytes, rawAvro);
  if (typeof form === 'object') return form;
  return form === 'json' ? value : avro[form](value, maxEventBytes, schemaIds);
}

/** Pauses between records, after TURN_BYTES of them. */
async function evaluate(
  source: SourceName,
  place: BatchPlace,
  rules: Rules,
  records: readonly Record[],
  avro: AvroDecoder,
  without?: ReadonlySet<number>,
): Promise<EvaluatedBatch> {
  const known = sourceOf(source);
  const reader = eventReaderOf(known);
  const rows = rawRowWriter(known, place, rules, reader);
  const deadLetters = new RowBinary();
  const range = timeRangeAt(rules.evaluatedAt, rules.retentionDays);
  const schemaIds = new Set(rules.schemaIds);
  const rowOffsets: number[] = [];
  const deadOffsets: number[] = [];
  const reasons = new Map<Reason, number>();
  let minTimestamp = Infinity;
  let bytes = 0;

  for (const record of records) {
    const { value } = record;
    if (value === null || without?.has(record.offset) === true) continue;
    const size = RECORD_BYTES + value.length;
    if (bytes > 0 && bytes + size > TURN_BYTES) {
      await nextTurn();
      bytes = 0;
    }
    bytes += size;
    const refusal = evaluateRecord(record, value);
    if (refusal === undefined) {
      rowOffsets.push(record.offset);
      minTimestamp = Math.min(minTimestamp, reader.timestamp);
    } else {
      deadOffsets.push(record.offset);
      reasons.set(refusal.reason, (reasons.get(refusal.reason) ?? 0) + 1);
      writeRow(deadLetters, DEAD_LETTER, { source, place, rules, record, refusal });
      bytes += sizeBeside(record);
    }
  }
  return {
    rows: await rows.take(),
    deadLetters: deadLetters.take(),
    rowOffsets,
    deadOffsets,
    reasons,
    minTimestamp: rowOffsets.length > 0 ? minTimestamp : undefined,
  };

  function evaluateRecord(record: Record, value: Buffer): Refusal | undefined {
    if (record.isCut === true) return { reason: 'too_large', detail: `more than ${value.length} bytes` };
    const text = textOf(value, avro, rules, schemaIds);
    if ('reason' in text) return text;
    const reason = text === value ? reader.read(text, record.time, range) : reader.judge(text, record.time, range);
    if (reason !== undefined) return { reason, detail: reader.detail };
    rows.write(record, text, text === value);
    return undefined;
  }
}
