import { select } from '../../common/clickhouse/clickhouse.ts';
import { readRollups, statements, type Rollup } from './catalogue.ts';
import { agreedNow, ceilTo, DAY, floorTo, HOUR, isoTime, MINUTE, onShards, type Context } from './context.ts';
import { ALL_TIME, tableName, type Span } from './view-sql.ts';
import { newestPeriod } from './periods.ts';
import { requestRepair, settledDifferences, type Difference, type Settled } from './repairs.ts';

/** Minutes are compared this long after their end, seconds. */
const LAG = 2 * MINUTE;
/**
 * Minutes are compared at most this far back, seconds: after downtime, or where batches in flight explained a difference
 * again and again. The nightly comparison covers the rest.
 */
const CATCH_UP = 3 * HOUR;
/** The hour of the day, UTC, at which the last days are compared. */
const NIGHT_HOUR = 2;

/**
 * Compares rollups with the raw tables. A difference becomes a repair (repairs.ts), which changes nothing if raw is the
 * side that lacks rows. Returns a function that runs one round: it compares the minutes since the last one, by event
 * time, in buckets of up to a minute. At night, and once soon after the first round, it also compares the closed periods
 * of the last days. It returns the number of requested repairs.
 */
export function createAudit(context: Context) {
  const { metrics, settings } = context;
  let nextNight: number | undefined;
  /** for each version of a rollup, by its table: event time up to which its minutes were compared */
  const audited = new Map<string, number>();
  return async (): Promise<number> => {
    let asked = 0;
    // a clock that is ahead for a moment must not put comparisons off
    const now = await agreedNow(context);
    const to = floorTo(now - LAG, MINUTE);
    for (const rollup of await serving(context)) {
      const last = audited.get(tableName(rollup));
      if (last === undefined) {
        audited.set(tableName(rollup), to - CATCH_UP);
        // the alert about audits counts from here, also if none ever succeeds
        metrics.auditedTo.set({ rollup: rollup.name }, to);
      }
      const from = last === undefined || last > to ? to - CATCH_UP : Math.max(last, to - CATCH_UP);
      let isInFlight = false;
      for (const shard of from < to ? onShards(context) : []) {
        const found = await look(shard, rollup, undefined, { from, to }, MINUTE);
        if ('unfinished' in found) isInFlight = true;
        else asked += await ask(context, rollup, found);
      }
      // batches in flight may explain the difference: the next round compares the minutes again
      if (isInFlight) continue;
      audited.set(tableName(rollup), to);
      metrics.auditedTo.set({ rollup: rollup.name }, to);
    }
    nextNight ??= firstNight(now);
    nextNight = Math.min(nextNight, nightAfter(now));
    if (now >= nextNight) {
      asked += await compareDays(context, settings.ROLLUP_AUDIT_DAYS);
      // only now: a comparison that failed because the engine was unavailable is retried
      nextNight = nightAfter(now);
    }
    return asked;
  };
}

async function serving({ clickhouse }: Context): Promise<Rollup[]> {
  return (await readRollups(clickhouse)).filter((r) => r.state === 'serving');
}

/** Compares the closed periods of the last days now. Returns the number of requested repairs. */
export async function compareDays(context: Context, days: number): Promise<number> {
  const now = await agreedNow(context);
  const newest = await newestPeriod(context);
  let asked = 0;
  const rollups = await serving(context);
  for (const [shard, rollup] of onShards(context).flatMap((of) => rollups.map((r) => [of, r] as const))) {
    const periods = await select<{ period: number }>(shard.clickhouse, statements.closedPeriods, {
      source: rollup.source,
      table: tableName(rollup),
      from: Math.max(0, floorTo(now, DAY) - days * DAY),
      before: newest,
    });
    let repairs = 0;
    for (const { period } of periods) {
      const found = await look(shard, rollup, period, ALL_TIME, rollup.widest);
      if (!('unfinished' in found)) repairs += await ask(context, rollup, found);
      // the period was closed hours ago, so nobody may be about to finish these batches
      else context.logger.error({ rollup: rollup.name, period: isoTime(period), ...found }, 'rollup_not_compared');
    }
    context.logger.info({ rollup: rollup.name, periods: periods.length, asked: repairs }, 'rollup_days_compared');
    asked += repairs;
  }
  return asked;
}

/** Returns settled differences (repairs.ts), and counts the time that it takes. */
async function look(
  context: Context,
  rollup: Rollup,
  period: number | undefined,
  span: Span,
  widest: number,
): Promise<Settled> {
  const since = performance.now();
  try {
    return await settledDifferences(context, rollup, period, span, widest);
  } finally {
    context.metrics.auditSeconds.inc({ rollup: rollup.name }, (performance.now() - since) / 1000);
  }
}

/** Requests one repair per period: from its first minute that differs to its last one. */
async function ask(context: Context, { name, source }: Rollup, found: readonly Difference[]): Promise<number> {
  const periods = Map.groupBy(found, (d) => d.period);
  for (const [period, differences] of periods) {
    const minutes = differences.map((d) => d.minute);
    const [from, to] = [Math.min(...minutes), Math.max(...minutes) + MINUTE];
    context.logger.error(
      { rollup: name, period: isoTime(period), differences: minutes.length, first: isoTime(from) },
      'rollup_differs',
    );
    // a difference in an hour or a day is reported for its first minute; a build sums every day of its period anew
    const repair = { source, period, from, to: ceilTo(to, HOUR), reason: 'audit', accept_loss: false } as const;
    await requestRepair(context, repair);
  }
  return periods.size;
}

/**
 * Soon after the first round: a service that runs by day, or was down at that hour, has no other night. Not at once,
 * for one that is restarted again and again, and not right after midnight, when batches of the last day are in flight.
 */
function firstNight(now: number): number {
  const soon = now + HOUR;
  return soon % DAY < NIGHT_HOUR * HOUR ? nightAfter(now) : Math.min(nightAfter(now), soon);
}

function nightAfter(now: number): number {
  const tonight = floorTo(now, DAY) + NIGHT_HOUR * HOUR;
  return tonight > now ? tonight : tonight + DAY;
}
