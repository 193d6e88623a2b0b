import type { ClickHouse, LedgerRow } from './clickhouse.ts';
import type { Event, Log } from './kafka.ts';
import type { Row } from './tables.ts';

/**
 * The invariant, checked when an owner has finished and everything that was in flight has ended:
 * - no event twice in raw and dead letters together, in no incarnation
 * - the ledger's ranges of an incarnation follow each other without hole or overlap, and their counts are what stands
 *   in the tables, and the null values in the log that they were taken from
 * - every event is in raw, in dead letters or skipped by the ledger; skipped are null values, offsets without a record,
 *   and events that were gone from Kafka before the ledger had them
 */
export function checkAccount(logs: readonly Log[], clickhouse: ClickHouse): void {
  const { ledger, late } = clickhouse;
  const raw = [...clickhouse.rows('raw'), ...clickhouse.expired];
  const dead = clickhouse.rows('dead');
  const times = new Map<Event, number>();
  for (const { event } of [...raw, ...dead]) times.set(event, (times.get(event) ?? 0) + 1);
  for (const [event, n] of times) if (n > 1) throw new Error(`doubled: ${name(event)} stands ${n} times`);

  const lives = Map.groupBy(ledger, (r) => `${r.partition}:${r.incarnation}`);
  for (const log of logs) {
    for (const event of log.history) {
      if (log.gone.has(event) || times.has(event)) continue;
      const isSkipped =
        event.value === null &&
        ledger.some((r) => r.partition === event.partition && covers(r, event) && r.nullValues > 0);
      if (!isSkipped && log.has(event)) throw new Error(`lost: ${name(event)}`);
    }
  }

  for (const rows of lives.values()) {
    rows.sort((a, b) => a.first - b.first);
    for (const [i, row] of rows.entries()) {
      const range = `ledger ${row.partition}:${row.incarnation}: ${row.first}-${row.last}`;
      if (row.last < row.first || (i > 0 && row.first !== rows[i - 1]!.last + 1))
        throw new Error(`${range} after ${rows[i - 1]?.last}`);
      const { rows: stored, deadLetters } = row.stored;
      if (stored + deadLetters + row.nullValues + row.noRecords + row.gap !== row.last - row.first + 1)
        throw new Error(`${range} does not add up`);
      if (row.gap < 0 || row.noRecords < 0)
        throw new Error(`${range} has a gap of ${row.gap} and ${row.noRecords} offsets without a record`);
      checkGap(logs[row.partition]!, row, range);
      checkNulls(logs[row.partition]!, row, range);
      for (const [rowsOf, counted] of [
        [raw, stored],
        [dead, deadLetters],
      ] as const) {
        const found = rowsOf.filter(
          (r) => r.incarnation === row.incarnation && covers(row, r.event) && r.event.partition === row.partition,
        );
        const inTime = found.filter((r) => !late.has(r.event));
        if (counted > found.length || counted < inTime.length)
          throw new Error(`${range} counts ${counted}, in the tables ${found.length}`);
      }
    }
  }
  for (const row of [...raw, ...dead]) {
    if (
      !late.has(row.event) &&
      lives.get(`${row.event.partition}:${row.incarnation}`)?.some((r) => covers(r, row.event)) !== true
    )
      throw new Error(`${name(row.event)} is in no batch of the ledger`);
  }
}

/** The marks of a row say in which life of the log it was taken. A row without a record, or that closes, counts none. */
function checkNulls(log: Log, { first, last, begin, end, nullValues, closes }: LedgerRow, range: string): void {
  if ((begin === undefined || closes) && nullValues === 0) return;
  const lives = begin === undefined || end === undefined ? [] : log.nullsBetween(first, last, [begin, end]);
  if (lives.some(({ left, taken }) => nullValues >= left && nullValues <= left + taken)) return;
  throw new Error(`${range} counts ${nullValues} null values, its log has ${lives.map((l) => l.left).join(' or ')}`);
}

/** A gap is of events that Kafka no longer has; of a batch in whose life nothing was ever gone there is none. */
function checkGap(log: Log, row: LedgerRow, range: string): void {
  if (row.gap > 0 && !row.closes && log.low === 0 && log.life === 0)
    throw new Error(`ledger: ${range} has a gap of ${row.gap}, and nothing was ever gone`);
}

/**
 * Every raw row has contributed once to every rollup, but those in `except`: a late request of a former owner reached
 * the views after a repair.
 */
export function checkRollups(clickhouse: ClickHouse, except: ReadonlySet<Event>): void {
  for (const target of ['rollup1m', 'rollup1h'] as const) {
    const added = Map.groupBy(clickhouse.rows(target), key);
    for (const row of clickhouse.rows('raw')) {
      const n = added.get(key(row))?.length ?? 0;
      added.delete(key(row));
      if (n !== 1 && !except.has(row.event)) throw new Error(`${target} has ${name(row.event)} ${n} times`);
    }
    for (const [which, [row]] of added)
      if (!except.has(row!.event)) throw new Error(`${target} has ${which}, raw has not`);
  }
}

function covers({ first, last }: LedgerRow, { offset }: Event): boolean {
  return offset >= first && offset <= last;
}

function key({ event, incarnation }: Row): string {
  return `${incarnation}:${name(event)}`;
}

function name({ partition, life, offset }: Event): string {
  return `offset ${offset} of partition ${partition}, life ${life}`;
}
