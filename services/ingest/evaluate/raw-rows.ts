import { setImmediate as nextTurn } from 'node:timers/promises';
import { leastPeriod, type EventReader } from '../../../common/evaluate/event.ts';
import { sourceOf, type ColumnKind, type KnownSource, type SourceName } from '../../../common/sources.ts';
import { endOfString, nativeBlock, startOfText, type Column, type Type, type WrittenRows } from './native-block.ts';
import type { BatchPlace, Record } from './record.ts';
import { recycle, RowBinary } from './row-binary.ts';
import { familiesOf, refsOf, REF_LETTERS } from './requests.ts';

/** The types of what each kind fills. The engine makes LowCardinality of it where the table has that. */
const TYPES: { readonly [kind in ColumnKind]: readonly Type[] } = {
  text: ['String'],
  nullable_text: ['Nullable(String)'],
  string: ['Nullable(String)'],
  status: ['Nullable(UInt16)'],
  duration: ['Nullable(Float64)'],
  is_object: ['Bool'],
  families: ['UInt8'],
  refs: ['Array(FixedString(20))', 'Bool'],
};

/** The columns of a raw table: all but inserted_at, which the engine fills. */
function columnsOf(source: SourceName): Column[] {
  return [
    { name: 'project', type: 'String' },
    { name: 'timestamp', type: "DateTime64(6, 'UTC')" },
    { name: 'id', type: 'String' },
    ...sourceOf(source).columns.flatMap(({ names, kind }) => names.map((name, k) => ({ name, type: TYPES[kind][k]! }))),
    { name: 'kafka_offset', type: 'UInt64' },
    { name: 'period', type: "DateTime('UTC')" },
    { name: 'message', type: 'String' },
    // constants of a batch
    { name: 'kafka_topic', type: 'String' },
    { name: 'kafka_incarnation', type: 'UInt32' },
    { name: 'kafka_partition', type: 'UInt32' },
    { name: 'batch_last', type: 'UInt64' },
    { name: 'evaluated_at', type: "DateTime64(3, 'UTC')" },
    { name: 'rules', type: 'UInt16' },
  ];
}

/** Rows of one batch for the raw table of its source. They are valid while the records of the batch are. */
export interface RawRows extends WrittenRows {
  readonly source: SourceName;
  /** the memory of the rows */
  readonly memory: readonly Buffer[];
}

/**
 * Returns what an insert of these rows is made of: one block, whatever the number of batches. They have one source.
 * Only the rows of each batch are sorted among themselves.
 */
export function rawInsert(batches: readonly RawRows[]) {
  const { source } = batches[0]!;
  const columns = columnsOf(source);
  return {
    table: source,
    format: 'Native',
    columns: columns.map(({ name }) => name),
    pieces: nativeBlock(columns, batches),
  } as const;
}

/** The same, once: when the last piece has been used, later rows may take the memory of these. */
export function lastRawInsert(batches: readonly RawRows[]) {
  const { pieces, ...insert } = rawInsert(batches);
  return { ...insert, pieces: thenRecycled() };

  function* thenRecycled(): Generator<Buffer, void, undefined> {
    yield* pieces;
    for (const { memory } of batches) recycle(memory);
  }
}

/** What all rows of a batch are evaluated with; see Rules. */
interface Stamp {
  readonly version: number;
  readonly evaluatedAt: number;
  readonly period: number;
}

function constantsOf({ topic, incarnation, partition, batchLast }: BatchPlace, { evaluatedAt, version }: Stamp) {
  const out = new RowBinary(0);
  out.text(topic);
  return new Map([
    ['kafka_topic', out.take()[0]!],
    ['kafka_incarnation', integer(4, incarnation)],
    ['kafka_partition', integer(4, partition)],
    ['batch_last', integer(8, batchLast)],
    ['evaluated_at', integer(8, evaluatedAt)],
    ['rules', integer(2, version)],
  ]);
}

function integer(bytes: number, value: number): Buffer {
  const little = Buffer.alloc(8);
  little.writeBigInt64LE(BigInt(value));
  return little.subarray(0, bytes);
}

/** So many rows are sorted in one turn of the event loop, unless one project has more: about 1 ms of CPU. */
const TURN_ROWS = 2_000;
/** More projects, or more ids of one time, stay as they are: 25,600 take up to 50 ms. The engine sorts such a block. */
const MOST_TEXTS = 5_000;

/** Writes rows of events that the reader has read. */
export function rawRowWriter(known: KnownSource, place: BatchPlace, stamp: Stamp, reader: EventReader) {
  const { nodes, text } = reader;
  const out = new RowBinary();
  const columns = columnWriter(known, reader, out);
  const pieces: Buffer[] = [];
  const starts: number[] = [];
  const timestamps: number[] = [];
  const messages = messageWriter();
  /** rows by project, whose bytes are the characters of the key */
  const byProject = new Map<string, number[]>();

  return { write, take };

  /** Writes the row of an event. `message`: its JSON text, the value of its record or what that says. */
  function write(record: Record, message: Buffer, isValue: boolean): void {
    const row = starts.length;
    out.begin();
    columns.text(nodes.project);
    out.int64(reader.timestamp);
    if (reader.locate(nodes.id, true) && text.from < text.to) out.string(text.bytes, text.from, text.to);
    else out.text(`${place.topic}-${place.partition}-${record.offset}`);
    columns.hot();
    out.int64(record.offset);
    out.uint32(Math.max(stamp.period, leastPeriod(reader.timestamp / 1_000_000)));
    const project = textIn(out.piece, out.rowStart);
    if (isValue) messages.refer(row, record);
    else messages.write(row, message);
    pieces.push(out.piece);
    starts.push(out.rowStart);
    timestamps.push(reader.timestamp);
    const ofProject = byProject.get(project);
    if (ofProject === undefined) byProject.set(project, [row]);
    else ofProject.push(row);
  }

  /** Returns the rows in the order of their table's sorting key: project, timestamp, id. */
  async function take(): Promise<RawRows> {
    const order: number[] = [];
    const projects = [...byProject.keys()];
    if (projects.length <= MOST_TEXTS) projects.sort();
    let sorted = 0;
    for (const project of projects) {
      const rows = byProject.get(project)!;
      if (sorted > 0 && sorted + rows.length > TURN_ROWS) {
        await nextTurn();
        sorted = 0;
      }
      sorted += rows.length;
      sort(rows);
      for (const row of rows) order.push(row);
    }
    return {
      source: known.name,
      pieces,
      starts,
      order,
      constants: constantsOf(place, stamp),
      elsewhere: new Map([['message', messages]]),
      memory: [...out.take(), ...messages.take()],
    };
  }

  /** Sorts rows of one project by time, then by id. Ids are made only for rows of the same time. */
  function sort(rows: number[]): void {
    rows.sort((a, b) => timestamps[a]! - timestamps[b]!);
    for (let from = 0, to = 0; from < rows.length; from = to) {
      do to++;
      while (to < rows.length && timestamps[rows[to]!] === timestamps[rows[from]!]);
      if (to === from + 1 || to - from > MOST_TEXTS) continue;
      const ofTime = rows.slice(from, to).map((row) => ({ row, id: idOf(row) }));
      ofTime.sort((a, b) => Number(a.id > b.id) - Number(a.id < b.id));
      for (const [k, { row }] of ofTime.entries()) rows[from + k] = row;
    }
  }

  function idOf(row: number): string {
    const piece = pieces[row]!;
    // behind the project and eight bytes of time
    return textIn(piece, endOfString(piece, starts[row]!) + 8);
  }
}

/** Returns a text whose characters are the bytes of the string that begins there with its length. */
function textIn(piece: Buffer, start: number): string {
  return piece.toString('latin1', startOfText(piece, start), endOfString(piece, start));
}

/**
 * Messages stand apart from their rows, which are then found in a few megabytes. One that is the value of its record is
 * read from there when its row is inserted.
 */
function messageWriter() {
  const out = new RowBinary();
  const records: (Record | undefined)[] = [];
  const pieces: (Buffer | undefined)[] = [];
  const starts: (number | undefined)[] = [];
  return {
    records,
    pieces,
    starts,
    take: () => out.take(),
    refer(row: number, record: Record): void {
      records[row] = record;
    },
    write(row: number, message: Buffer): void {
      out.begin();
      out.string(message);
      pieces[row] = out.piece;
      starts[row] = out.rowStart;
    },
  };
}

/** Writes what the reader has found: `text` at a node, `hot` the columns of the source. */
function columnWriter({ columns }: KnownSource, reader: EventReader, out: RowBinary) {
  const { nodes, text } = reader;
  const kinds: readonly ColumnKind[] = columns.map(({ kind }) => kind);

  return { text: (node: number) => textAt(node, true), hot };

  function hot(): void {
    for (let k = 0; k < kinds.length; k++) column(kinds[k]!, nodes.columns[k]!);
  }

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
