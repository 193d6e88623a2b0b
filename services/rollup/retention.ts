import { select } from '../../common/clickhouse/clickhouse.ts';
import { sources } from '../../common/sources.ts';
import { readRollups, statements } from './catalogue.ts';
import { DAY, floorTo, isExpired } from './periods.ts';
import { readShape } from './shape.ts';
import { DROP_SETTINGS, nowSeconds, type Workshop } from './workshop.ts';

/** How long a rollup's table keeps its rows, days: tiers of hours and days longer than the rest. */
export function retentionOf(table: string, settings: Workshop['settings']): number {
  return /_\d+[hd]$/.test(table) ? settings.ROLLUP_1H_RETENTION_DAYS : settings.ROLLUP_1M_RETENTION_DAYS;
}

/** Midnight of the oldest day that retention has left whole in the raw tables. */
export function firstWholeDay(rawRetentionDays: number, now: number): number {
  return floorTo(now - rawRetentionDays * DAY, DAY);
}

/**
 * Drops what is older than its retention: whole days of raw tables, whole periods of rollups, by partition and without reading them. A shorter
 * retention takes effect at the next run, a longer one keeps what is still there. Gives the number of partitions dropped.
 */
export async function dropExpired(workshop: Workshop): Promise<number> {
  const { clickhouse, settings, logger, metrics } = workshop;
  const now = nowSeconds(workshop);
  const days = firstWholeDay(settings.RAW_RETENTION_DAYS, now);
  const isOld = new Map<string, (startsAt: number) => boolean>(sources.map((s) => [s.name, (startsAt) => startsAt < days]));
  for (const rollup of await readRollups(clickhouse)) {
    if (rollup.state === 'retired') continue;
    for (const { table, stored } of (await readShape(clickhouse, rollup)).tiers) isOld.set(stored, (startsAt) => isExpired(startsAt, retentionOf(table, settings), now));
  }
  let dropped = 0;
  for (const { table, partition_id, starts_at } of await select<{ table: string; partition_id: string; starts_at: number }>(clickhouse, statements.partitions, { tables: [...isOld.keys()] })) {
    if (isOld.get(table)?.(starts_at) !== true) continue;
    // before it goes: reconcile must never miss rows that it was not told of
    if (sources.some((s) => s.name === table)) await clickhouse.execute({ sql: statements.writeExpiredDay, params: { source: table, before: starts_at + DAY }, settings: { async_insert: 0 } });
    await clickhouse.execute({ sql: `ALTER TABLE ${table} DROP PARTITION ID '${partition_id}'`, settings: DROP_SETTINGS });
    metrics.dropped.inc({ table });
    logger.info({ table, partition: partition_id }, 'partition_expired');
    dropped++;
  }
  return dropped;
}

/** Drops the tables that builds which were killed have left, a day after they were made: a younger one may be of a build under way. */
export async function dropLeft(workshop: Workshop): Promise<void> {
  const { clickhouse, logger } = workshop;
  for (const { name } of await select<{ name: string }>(clickhouse, statements.leftTables, { before: Math.floor(nowSeconds(workshop) - DAY) })) {
    await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${name} SYNC`, settings: DROP_SETTINGS });
    logger.info({ table: name }, 'left_table_dropped');
  }
}
