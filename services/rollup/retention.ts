import { select } from '../../common/clickhouse/clickhouse.ts';
import { sources } from '../../common/sources.ts';
import { build, sideTables } from './period/build.ts';
import { readRollups, statements, type Rollup } from './period/catalogue.ts';
import { attempt, onShards, valuesOf, type Context } from './period/context.ts';
import { DROP_SETTINGS, WRITE_SETTINGS } from './period/statement-settings.ts';
import { agreedNow, DAY, floorTo, HOUR, isoTime } from './period/time.ts';
import { tableName } from './period/definition.ts';
import { NO_TIME } from './period/view-sql.ts';
import { isExpired, newestPeriod } from './period/periods.ts';

/**
 * Drops what is older than its retention, without reading it: whole days of raw tables and whole periods of rollups;
 * and removes expired minutes from periods whose hours stay. A shorter retention takes effect at the next run, and a
 * longer one keeps what still exists. Raw days stay while history is built from them. Returns the number of partitions
 * dropped or rewritten.
 */
export async function dropExpired(context: Context): Promise<number> {
  // one that cannot be reached must not fill the disks of the others
  const shards = await Promise.allSettled(onShards(context).map(dropExpiredOf));
  return valuesOf(shards).reduce((sum, dropped) => sum + dropped, 0);
}

async function dropExpiredOf(context: Context): Promise<number> {
  const { clickhouse, settings, logger } = context;
  const now = await agreedNow(context);
  const rollups = (await readRollups(clickhouse)).filter((r) => r.state !== 'retired');
  const needed = new Set(rollups.filter((r) => r.state !== 'serving').map((r) => r.source));
  const oldestWholeDay = floorTo(now - settings.RAW_RETENTION_DAYS * DAY, DAY);
  const isOld = new Map<string, (startsAt: number) => boolean>(
    sources.filter((s) => !needed.has(s.name)).map((s) => [s.name, (startsAt) => startsAt < oldestWholeDay]),
  );
  for (const rollup of rollups)
    isOld.set(tableName(rollup), (startsAt) => isExpired(startsAt, settings.ROLLUP_1H_RETENTION_DAYS, now));
  // without a register, the periods of the rows themselves: none is of a later day
  const period = Math.max(await newestPeriod(context), floorTo(now, DAY));
  let dropped = 0;
  for (const { table, partition_id, starts_at } of await select<{
    table: string;
    partition_id: string;
    starts_at: number;
  }>(clickhouse, statements.partitions, { tables: [...isOld.keys()] })) {
    if (isOld.get(table)?.(starts_at) !== true) continue;
    await attempt(context, { work: 'retention', table, partition: partition_id }, async () => {
      // recorded before it is dropped: neither reconcile nor a build may miss rows without knowing why
      if (sources.some((s) => s.name === table))
        await clickhouse.execute({
          sql: statements.writeExpiredDay,
          params: { source: table, before: starts_at + DAY, period },
          settings: WRITE_SETTINGS,
        });
      await clickhouse.execute({
        sql: `ALTER TABLE ${table} DROP PARTITION ID '${partition_id}'`,
        settings: DROP_SETTINGS,
      });
      logger.info({ table, partition: partition_id }, 'partition_expired');
      dropped++;
    });
  }
  for (const rollup of rollups.filter((r) => r.state === 'serving')) {
    const work = { work: 'retention', rollup: rollup.name };
    dropped += (await attempt(context, work, () => dropMinutes(context, rollup, now))) ?? 0;
  }
  return dropped;
}

/** Removes expired minutes of a rollup. Returns the number of periods rewritten. */
async function dropMinutes(context: Context, rollup: Rollup, now: number): Promise<number> {
  const { clickhouse, settings, logger } = context;
  const before = Math.max(0, now - settings.ROLLUP_1M_RETENTION_DAYS * DAY - DAY - HOUR + 1);
  const table = tableName(rollup);
  const fine = await select<{ period: number }>(clickhouse, statements.finePeriods, { table, before });
  // a build that failed may have removed the minutes of its period, and with them a batch that arrived just then
  const failed = (await sideTables(clickhouse, { table })).map((side) => Number(/_(\d+)_\w{8}$/.exec(side)?.[1]));
  let dropped = 0;
  for (const period of new Set([...fine.map((f) => f.period), ...failed.filter((p) => p < before)])) {
    const where = { rollup: rollup.name, period: isoTime(period) };
    // nothing is built from raw: the rollup is copied without its expired minutes
    const built = await attempt(context, { work: 'retention', ...where }, () =>
      build(context, rollup, period, { span: NO_TIME }),
    );
    if (built?.kind === 'built') dropped++;
    else if (built !== undefined && 'batches' in built)
      logger.warn({ ...where, outcome: built.kind, batches: built.batches.slice(0, 5) }, 'expired_minutes_kept');
  }
  return dropped;
}
