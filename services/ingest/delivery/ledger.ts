import { setTimeout } from 'node:timers/promises';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { RowBinary } from '../evaluate/row-binary.ts';
import type { LedgerEntry, RecordMark } from './ports.ts';

/** The row of one batch. */
export interface LedgerRow {
  readonly source: string;
  readonly topic: string;
  readonly partition: number;
  readonly group: string;
  readonly entry: LedgerEntry;
}

/** Resolves when the row is in the ledger. */
export type Ledger = (row: LedgerRow) => Promise<void>;

const COLUMNS = [
  'topic',
  'incarnation',
  'partition',
  'first',
  'last',
  'source',
  'consumer_group',
  'stored',
  'dead_lettered',
  'null_values',
  'no_records',
  'gap',
  'evaluated_at',
  'rules',
  'period',
  'begin_offset',
  'begin_record_time',
  'begin_checksum',
  'end_offset',
  'end_record_time',
  'end_checksum',
  'closes',
  'min_timestamp',
] as const;

/**
 * No token: a row that is written twice counts once anyway. An engine that is killed may have noted a token without its
 * row. That token would keep the repetition out.
 */
const SETTINGS = { insert_deduplicate: 0 } as const;

/**
 * An insert begins this long after the one before it at the earliest. Where partitions trickle, one insert then has the
 * rows of several batches. The row of a large batch does not wait for it: the next batch of its partition is ready.
 */
const INTERVAL_MS = 150;
const LARGE_BATCH_ROWS = 1_000;
/** a row has some 200 bytes */
const PIECE_BYTES = 16 * 1024;

/** The ledger of one process on one shard. Rows that come before an insert begins share it. */
export function createLedger(
  clickhouse: Pick<ClickHouse, 'insertRows'>,
  nextInterval: () => Promise<void> = () => setTimeout(INTERVAL_MS),
): Ledger {
  let waiting: LedgerRow[] = [];
  let running = Promise.resolve();
  let next: Promise<void> | undefined;
  let interval = Promise.resolve();
  let endInterval = (): void => {};

  return (row) => {
    waiting.push(row);
    if (row.entry.stored.rows >= LARGE_BATCH_ROWS) endInterval();
    next ??= Promise.all([running, interval]).then(async () => {
      const rows = waiting;
      waiting = [];
      const inserting = clickhouse.insertRows({
        table: 'batches',
        columns: COLUMNS,
        pieces: encodeRows(rows),
        settings: SETTINGS,
      });
      running = inserting.catch(() => {});
      interval = new Promise((resolve) => {
        endInterval = resolve;
        void nextInterval().then(resolve);
      });
      next = undefined;
      return inserting;
    });
    return next;
  };
}

/** As RowBinary, in the order of COLUMNS. */
function encodeRows(rows: readonly LedgerRow[]): Uint8Array[] {
  const out = new RowBinary(PIECE_BYTES);
  for (const { source, topic, partition, group, entry } of rows) {
    const { incarnation, first, last, rules, stored, nullValues, noRecords, gap, begin, end, closes } = entry;
    out.begin();
    out.text(topic);
    out.uint32(incarnation);
    out.uint32(partition);
    out.int64(first);
    out.int64(last);
    out.text(source);
    out.text(group);
    for (const count of [stored.rows, stored.deadLetters, nullValues]) out.uint32(count);
    out.int64(noRecords);
    out.int64(gap);
    out.int64(rules.evaluatedAt);
    out.uint16(rules.version);
    out.uint32(rules.period);
    writeMark(out, begin);
    writeMark(out, end);
    out.uint8(closes ? 1 : 0);
    out.uint8(stored.minTimestamp === undefined ? 1 : 0);
    if (stored.minTimestamp !== undefined) out.int64(stored.minTimestamp);
  }
  return out.take();
}

function writeMark(out: RowBinary, mark: RecordMark | undefined): void {
  out.uint8(mark === undefined ? 1 : 0);
  if (mark !== undefined) out.int64(mark.offset);
  out.int64(mark?.time ?? -1);
  out.uint8(mark === undefined ? 1 : 0);
  if (mark !== undefined) out.uint32(mark.checksum);
}
