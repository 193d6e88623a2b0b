import type { ClickHouse, LedgerRow, Row } from './clickhouse.ts';
import type { Event, Kafka } from './kafka.ts';

/**
 * The invariant, checked when an owner has finished and everything that was under way has ended:
 * - no event twice in raw and dead letters together, in no incarnation; one incarnation holds one life of the topic
 * - the ledger's ranges of an incarnation follow each other without hole or overlap, and their counts are what stands in the tables
 * - every event of the present life, from the first offset ever taken, is in raw, in dead letters or skipped by the ledger; skipped are null values,
 *   offsets without a record, and events that were gone from Kafka before the ledger had them
 * - every raw row has contributed once to every rollup
 * Not promised, and so not asked for:
 * - rollups after a restore without the deduplication windows, of batches whose token may have left the window, and of batches whose records were
 *   gone before they were finished (a former owner that still inserts has them, and can be first in one table and second in another): the audit mends those
 * - the ledger's counts for rows that a request still wrote when Kafka no longer had their records (`late`)
 */
export function checkAccount(kafka: Kafka, { tables, late, untrusted, lives }: ClickHouse, rollupsAreExact: boolean): void {
  const raw = tables.raw.parts.flatMap((p) => p.rows);
  const dead = tables.dead.parts.flatMap((p) => p.rows);

  const times = new Map<Event, number>();
  for (const { event, incarnation } of [...raw, ...dead]) {
    times.set(event, (times.get(event) ?? 0) + 1);
    if (lives.get(incarnation) !== event.life) throw new Error(`two lives in incarnation ${incarnation}`);
  }
  for (const [event, n] of times) if (n > 1) throw new Error(`doubled: ${name(event)} stands ${n} times`);

  const byIncarnation = new Map<number, LedgerRow[]>();
  for (const row of tables.ledger.rows) {
    const rows = byIncarnation.get(row.incarnation) ?? [];
    if (!rows.some((r) => r.first === row.first && r.last === row.last)) rows.push(row);
    byIncarnation.set(row.incarnation, rows);
  }
  for (const [incarnation, life] of lives) {
    const ledger = byIncarnation.get(incarnation) ?? [];
    for (const event of kafka.history) {
      if (event.life !== life || kafka.gone.has(event) || times.has(event)) continue;
      const batch = ledger.find((r) => covers(r, event));
      if (batch === undefined ? life === kafka.life : event.value !== null || batch.nullValues === 0) throw new Error(`lost: ${name(event)}`);
    }
  }

  for (const [incarnation, rows] of byIncarnation) {
    rows.sort((a, b) => a.first - b.first);
    for (const [i, row] of rows.entries()) {
      const range = `ledger ${incarnation}: ${row.first}-${row.last}`;
      if (row.last < row.first || (i > 0 && row.first !== rows[i - 1]!.last + 1)) throw new Error(`${range} after ${rows[i - 1]?.last}`);
      if (row.stored + row.deadLettered + row.nullValues + row.noRecords + row.gap !== row.last - row.first + 1) throw new Error(`${range} does not add up`);
      for (const [rowsOf, counted] of [[raw, row.stored], [dead, row.deadLettered]] as const) {
        const found = rowsOf.filter((r) => r.incarnation === incarnation && covers(row, r.event));
        const notLate = found.filter((r) => !late.has(r.event));
        if (counted > found.length || counted < notLate.length) throw new Error(`${range} counts ${counted}, in the tables ${found.length}`);
      }
    }
  }
  for (const row of [...raw, ...dead]) {
    if (!late.has(row.event) && byIncarnation.get(row.incarnation)?.some((r) => covers(r, row.event)) !== true) throw new Error(`${name(row.event)} is in no batch of the ledger`);
  }

  if (!rollupsAreExact) return;
  for (const target of ['rollup1m', 'rollup1h'] as const) {
    const added = new Map<string, number>();
    const held = tables[target].parts.flatMap((p) => p.rows);
    for (const row of held) added.set(key(row), (added.get(key(row)) ?? 0) + 1);
    for (const row of raw) {
      const n = added.get(key(row)) ?? 0;
      added.delete(key(row));
      if (n !== 1 && (n > 1 || (!untrusted.has(row.judgedAt) && !kafka.gone.has(row.event)))) throw new Error(`${target} has ${name(row.event)} ${n} times`);
    }
    for (const row of held) if (kafka.gone.has(row.event) && added.get(key(row)) === 1) added.delete(key(row));
    for (const [which] of added) throw new Error(`${target} has ${which}, raw has not`);
  }
}

function covers({ first, last }: LedgerRow, { offset }: Event): boolean {
  return offset >= first && offset <= last;
}

function key({ event, incarnation }: Row): string {
  return `${incarnation}:${name(event)}`;
}

function name({ life, offset }: Event): string {
  return `offset ${offset} of life ${life}`;
}
