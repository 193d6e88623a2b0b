import { select } from '../../common/clickhouse/clickhouse.ts';
import { readRollups, statements, type Rollup } from './period/catalogue.ts';
import { attempt, onShards, valuesOf, type Context } from './period/context.ts';
import { agreedNow, ceilTo, DAY, floorTo, HOUR, isoTime, MINUTE } from './period/time.ts';
import { tableName } from './period/definition.ts';
import { ALL_TIME } from './period/view-sql.ts';
import { newestPeriod } from './period/periods.ts';
import { placeOf, requestRepair, settledDifferences, type Difference } from './repairs.ts';

/** Minutes are compared this long after their end, seconds. */
const LAG = 2 * MINUTE;
/**
 * Minutes are compared at most this far back, seconds: after downtime, or where batches in flight explained a
 * difference again and again. The nightly comparison covers the rest.
 */
const CATCH_UP = 3 * HOUR;
/** The hour of the day, UTC, at which the last days are compared. */
const NIGHT_HOUR = 2;
/** A closed period is compared so often while rows of it arrive between two looks. */
const MOST_LOOKS = 3;

/**
 * What became of each rollup on a shard (placeOf), and of each closed period (`<place> <period>`). What was refused is
 * tried again in an hour.
 */
type Compared = Map<string, 'done' | 'refused'>;

/**
 * Compares rollups with the raw tables. A difference becomes a repair (repairs.ts), which changes nothing if raw is the
 * side that lacks rows. Returns a function that runs one round: it compares the minutes since the last one, by event
 * time, in buckets of up to a minute. At night, and once soon after the first round, it also compares the closed
 * periods of the last days. It returns the number of requested repairs. After an error the next call compares only what
 * is left.
 */
export function createAudit(context: Context) {
  const { metrics, settings } = context;
  let nextNight: number | undefined;
  /** what this round has compared of the minutes up to `to`; undefined between rounds */
  let round: { readonly to: number; readonly compared: Compared } | undefined;
  /** what is compared of the closed periods since the last night; undefined before the first time */
  let night: Compared | undefined;
  /** when closed periods that ClickHouse refused are compared again, unix seconds */
  let retryAt = 0;
  /** event time up to which minutes were compared, by placeOf */
  const audited = new Map<string, number>();

  async function compareMinutes(now: number): Promise<number> {
    const latest = floorTo(now - LAG, MINUTE);
    // what can be reached is compared every hour, however long the rest is lost
    if (round === undefined || latest < round.to || latest >= round.to + HOUR)
      round = { to: latest, compared: new Map() };
    const { to, compared } = round;
    let asked = 0;
    await onEach(context, compared, async (shard, rollup) => {
      const place = placeOf(shard, rollup);
      // the alert about audits counts from here, also if none ever succeeds
      if (!audited.has(place)) metrics.auditedTo.set({ rollup: rollup.name }, to);
      const last = audited.get(place) ?? to - CATCH_UP;
      audited.set(place, last);
      const from = last > to ? to - CATCH_UP : Math.max(last, to - CATCH_UP);
      const found = from < to ? await settledDifferences(shard, rollup, undefined, { from, to }, MINUTE) : [];
      // batches in flight may explain the difference: the next round compares the minutes again
      if ('unfinished' in found) return 'done';
      asked += await ask(context, rollup, found);
      audited.set(place, to);
      const places = onShards(context).map((of) => placeOf(of, rollup));
      // whoever watches this also learns of closed periods that cannot be compared
      if (places.every((of) => audited.get(of) === to && night?.get(of) !== 'refused'))
        metrics.auditedTo.set({ rollup: rollup.name }, to);
      return 'done';
    });
    round = undefined;
    return asked;
  }

  async function compareNight(now: number): Promise<number> {
    nextNight = Math.min(nextNight ?? firstNight(now), nightAfter(now));
    if (now >= nextNight) [night, nextNight] = [new Map(), nightAfter(now)];
    if (night === undefined) return 0;
    if (now >= retryAt || now < retryAt - HOUR) {
      for (const [place, how] of night) if (how === 'refused') night.delete(place);
      retryAt = now + HOUR;
    }
    return await compareDays(context, settings.ROLLUP_AUDIT_DAYS, night);
  }

  return async (): Promise<number> => {
    // a clock that is ahead for a moment must not put comparisons off
    const now = await agreedNow(context);
    const minutes = await Promise.allSettled([compareMinutes(now)]);
    const days = await Promise.allSettled([compareNight(now)]);
    return valuesOf([...minutes, ...days]).reduce((sum, asked) => sum + asked, 0);
  };
}

/**
 * Compares each rollup on each shard that is not compared yet. One that fails keeps no other from it: that a shard
 * cannot be reached is thrown after the last one.
 */
async function onEach(
  context: Context,
  compared: Compared,
  work: (shard: Context, rollup: Rollup) => Promise<'done' | 'refused'>,
): Promise<void> {
  const rollups = (await readRollups(context.clickhouse)).filter((r) => r.state === 'serving');
  const results: PromiseSettledResult<unknown>[] = [];
  for (const [shard, rollup] of onShards(context).flatMap((of) => rollups.map((r) => [of, r] as const))) {
    const place = placeOf(shard, rollup);
    if (compared.has(place)) continue;
    const [result] = await Promise.allSettled([attempt(shard, partOf(rollup), () => work(shard, rollup))]);
    if (result.status === 'fulfilled') compared.set(place, result.value ?? 'refused');
    results.push(result);
  }
  valuesOf(results);
}

const partOf = ({ name }: Rollup) => ({ work: 'audit', rollup: name });

/**
 * Compares the closed periods of the last days now, except what is compared. Returns the number of requested repairs.
 */
export async function compareDays(context: Context, days: number, compared: Compared = new Map()): Promise<number> {
  const now = await agreedNow(context);
  const newest = await newestPeriod(context);
  let asked = 0;
  await onEach(context, compared, async (shard, rollup) => {
    const periods = await select<{ period: number }>(shard.clickhouse, statements.closedPeriods, {
      source: rollup.source,
      table: tableName(rollup),
      from: Math.max(0, floorTo(now, DAY) - days * DAY),
      before: newest,
    });
    const place = placeOf(shard, rollup);
    let how: 'done' | 'refused' = 'done';
    let found = 0;
    for (const { period } of periods.filter((p) => !compared.has(`${place} ${p.period}`))) {
      const part = { ...partOf(rollup), period: isoTime(period) };
      const requested = await attempt(shard, part, () => comparePeriod(context, shard, rollup, period));
      if (requested === undefined) how = 'refused';
      else compared.set(`${place} ${period}`, 'done');
      found += requested ?? 0;
    }
    asked += found;
    if (how === 'done')
      context.logger.info({ rollup: rollup.name, periods: periods.length, asked: found }, 'rollup_days_compared');
    return how;
  });
  return asked;
}

/** Compares a closed period. Returns the number of requested repairs. */
async function comparePeriod(context: Context, shard: Context, rollup: Rollup, period: number): Promise<number> {
  let found = await settledDifferences(shard, rollup, period, ALL_TIME);
  // late rows arrived between the looks: what they are of is settled soon
  for (let tries = 1; tries < MOST_LOOKS && 'unfinished' in found && found.unfinished.length === 0; tries++)
    found = await settledDifferences(shard, rollup, period, ALL_TIME);
  if (!('unfinished' in found)) return await ask(context, rollup, found);
  // the period was closed hours ago, so nobody may be about to finish these batches
  context.logger.error({ rollup: rollup.name, period: isoTime(period), ...found }, 'rollup_not_compared');
  return 0;
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
