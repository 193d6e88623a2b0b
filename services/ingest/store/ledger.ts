import { setTimeout } from 'node:timers/promises';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { insertOf, type RowColumns } from '../evaluate/row-binary.ts';
import type { LedgerEntry } from '../delivery/ports.ts';

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

const COLUMNS: RowColumns<LedgerRow> = {
  topic: (out, { topic }) => out.text(topic),
  incarnation: (out, { entry }) => out.uint32(entry.incarnation),
  partition: (out, { partition }) => out.uint32(partition),
  first: (out, { entry }) => out.int64(entry.first),
  last: (out, { entry }) => out.int64(entry.last),
  source: (out, { source }) => out.text(source),
  consumer_group: (out, { group }) => out.text(group),
  stored: (out, { entry }) => out.uint32(entry.stored.rows),
  dead_lettered: (out, { entry }) => out.uint32(entry.stored.deadLetters),
  null_values: (out, { entry }) => out.uint32(entry.nullValues),
  no_records: (out, { entry }) => out.int64(entry.noRecords),
  gap: (out, { entry }) => out.int64(entry.gap),
  evaluated_at: (out, { entry }) => out.int64(entry.rules.evaluatedAt),
  rules: (out, { entry }) => out.uint16(entry.rules.version),
  period: (out, { entry }) => out.uint32(entry.rules.period),
  begin_offset: (out, { entry }) => out.orNull(entry.begin?.offset, (v) => out.int64(v)),
  begin_record_time: (out, { entry }) => out.int64(entry.begin?.time ?? -1),
  begin_checksum: (out, { entry }) => out.orNull(entry.begin?.checksum, (v) => out.uint32(v)),
  end_offset: (out, { entry }) => out.orNull(entry.end?.offset, (v) => out.int64(v)),
  end_record_time: (out, { entry }) => out.int64(entry.end?.time ?? -1),
  end_checksum: (out, { entry }) => out.orNull(entry.end?.checksum, (v) => out.uint32(v)),
  closes: (out, { entry }) => out.uint8(entry.closes ? 1 : 0),
  min_timestamp: (out, { entry }) => out.orNull(entry.stored.minTimestamp, (v) => out.int64(v)),
};

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
        ...insertOf('batches', COLUMNS, rows, PIECE_BYTES),
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
