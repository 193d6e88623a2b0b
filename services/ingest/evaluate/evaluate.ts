import { setImmediate as nextTurn } from 'node:timers/promises';
import { eventReaderOf, leastPeriod, timeRangeAt, type EventReader } from '../../../common/evaluate/event.ts';
import { sourceOf, type ColumnKind, type KnownSource, type SourceName } from '../../../common/sources.ts';
import type { AvroDecoder } from '../avro/decoder.ts';
import { formOf, type Reason, type Record, type Refusal } from './record.ts';
import { familiesOf, refsOf, REF_LETTERS } from './requests.ts';
import { RowBinary } from './row-binary.ts';

/**
 * Message → row, dead letter, or nothing (a null value): one pure function for ingest, recovery and replays. It knows
 * no engine, no client and no clock, so the same bytes under the same rules are the same row, whenever and by whomever
 * they are evaluated.
 */

/** Raise it with any change that gives a message another verdict or another column. */
export const RULES_VERSION = 2;

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

/** Where the records of a batch stand. */
interface BatchPlace {
  readonly topic: string;
  readonly partition: number;
  readonly incarnation: number;
  readonly batchLast: number;
}

export interface EvaluatedBatch {
  /** RowBinary of `rawColumns(source)`, in pieces; they stay valid until they are recycled */
  readonly rows: readonly Uint8Array[];
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

const RECORD_COLUMNS = [
  'kafka_topic',
  'kafka_incarnation',
  'kafka_partition',
  'kafka_offset',
  'batch_last',
  'evaluated_at',
  'rules',
] as const;

/** Writes RECORD_COLUMNS. `topic`: its bytes. */
function writeRecordColumns(
  out: RowBinary,
  topic: Uint8Array,
  { partition, incarnation, batchLast }: BatchPlace,
  { evaluatedAt, version }: Rules,
  offset: number,
): void {
  out.string(topic);
  out.uint32(incarnation);
  out.uint32(partition);
  out.int64(offset);
  out.int64(batchLast);
  out.int64(evaluatedAt);
  out.uint16(version);
}

/** The columns of dead_letters in the order of EvaluatedBatch.deadLetters. */
export const DEAD_LETTER_COLUMNS: readonly string[] = [
  'source',
  ...RECORD_COLUMNS,
  'record_time',
  'reason',
  'detail',
  'key',
  'headers',
  'value',
];

/** The columns of the raw table in the order of EvaluatedBatch.rows: all but inserted_at, which the engine fills. */
export function rawColumns(source: SourceName): readonly string[] {
  return [
    'project',
    'timestamp',
    'id',
    ...sourceOf(source).columns.flatMap(({ names }) => names),
    'message',
    ...RECORD_COLUMNS,
    'period',
  ];
}

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
 * runs in between: 9,000 edge events take about 100 ms. Records must not change until it resolves; what it returns is
 * independent of them. Call `avro.load(rules.schemaIds, ...)` before it. One large batch after the other: two at once
 * would both be ready late, and the engine idle until then (a tenth fewer events/s, bench/README.md).
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
  const rows = new RowBinary();
  const deadLetters = new RowBinary();
  const row = rowWriter(known, place, rules, reader, rows);
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
      writeDeadLetter(source, place, rules, record, refusal, deadLetters);
      bytes += sizeBeside(record);
    }
  }
  return {
    rows: rows.take(),
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
    row(record.offset, text);
    return undefined;
  }
}

/** Writes the row of the event that the reader has read. */
function rowWriter(
  { columns }: KnownSource,
  place: BatchPlace,
  rules: Rules,
  reader: EventReader,
  out: RowBinary,
): (offset: number, message: Buffer) => void {
  const { nodes, text } = reader;
  const kinds: readonly ColumnKind[] = columns.map(({ kind }) => kind);
  const topic = Buffer.from(place.topic);
  return (offset, message) => {
    out.begin();
    textAt(nodes.project, true);
    out.int64(reader.timestamp);
    if (reader.locate(nodes.id, true) && text.from < text.to) out.string(text.bytes, text.from, text.to);
    else out.text(`${place.topic}-${place.partition}-${offset}`);
    for (let k = 0; k < kinds.length; k++) column(kinds[k]!, nodes.columns[k]!);
    out.string(message);
    writeRecordColumns(out, topic, place, rules, offset);
    out.uint32(Math.max(rules.period, leastPeriod(reader.timestamp / 1_000_000)));
  };

  function column(kind: ColumnKind, node: number): void {
    switch (kind) {
      case 'text':
        return textAt(node, true);
      case 'nullable_text':
        return nullableAt(node, true);
      case 'string':
        return nullableAt(node, false);
      case 'status': {
        const number = reader.numberAt(node);
        const isStatus = number >= 0 && number <= 65_535 && Number.isInteger(number);
        out.uint8(isStatus ? 0 : 1);
        if (isStatus) out.uint16(number);
        return;
      }
      case 'duration': {
        const number = reader.numberAt(node);
        const isDuration = number >= 0 && number < Infinity;
        out.uint8(isDuration ? 0 : 1);
        // -0 is stored as 0
        if (isDuration) out.float64(number + 0);
        return;
      }
      case 'is_object':
        return out.uint8(reader.isObject(node) ? 1 : 0);
      case 'families':
        return out.uint8(reader.locate(node, false) ? familiesOf(text.bytes, text.from, text.to) : 0);
      case 'refs': {
        const refs = reader.locate(node, false) ? refsOf(text.bytes, text.from, text.to) : [];
        out.length(refs?.length ?? 0);
        for (const start of refs ?? []) out.copy(text.bytes, start, start + REF_LETTERS);
        out.uint8(refs === undefined ? 1 : 0);
      }
    }
  }

  function textAt(node: number, numbersToo: boolean): void {
    if (reader.locate(node, numbersToo)) out.string(text.bytes, text.from, text.to);
    else out.length(0);
  }

  function nullableAt(node: number, numbersToo: boolean): void {
    const isText = reader.locate(node, numbersToo);
    out.uint8(isText ? 0 : 1);
    if (isText) out.string(text.bytes, text.from, text.to);
  }
}

function writeDeadLetter(
  source: string,
  place: BatchPlace,
  rules: Rules,
  { offset, time, key, headers, value }: Record,
  { reason, detail }: Refusal,
  out: RowBinary,
): void {
  out.begin();
  out.text(source);
  writeRecordColumns(out, Buffer.from(place.topic), place, rules, offset);
  out.int64(time);
  out.text(reason);
  out.text(detail);
  out.nullable(key);
  out.length(headers.length);
  for (const [name, header] of headers) {
    out.text(name);
    out.nullable(header);
  }
  out.string(value!);
}
