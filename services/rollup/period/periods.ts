import { fresh, select } from '../../../common/clickhouse/clickhouse.ts';
import { statements } from './catalogue.ts';
import type { Context } from './context.ts';
import { WRITE_SETTINGS } from './statement-settings.ts';
import { agreedNow, DAY, floorTo, HOUR, isoTime } from './time.ts';

/**
 * Periods are the partitions of rollups; every raw row carries its own. Ingest writes new batches to the newest period
 * of the register, so an older one gets only what is in flight. This service begins a period at each midnight, and
 * whenever it must close the current one. All times are unix seconds, UTC.
 */
export async function newestPeriod({ clickhouse }: Pick<Context, 'clickhouse'>): Promise<number> {
  const reader = fresh(clickhouse, ['rollup_periods']);
  return (await select<{ begin: number }>(reader, statements.newestPeriod))[0]!.begin;
}

/**
 * Begins today's period if it has not begun. Returns the newest period. `known`: what the last call returned; nothing is
 * read while that is of today.
 */
export async function beginToday(context: Context, known = 0): Promise<number> {
  const midnight = floorTo(context.clock() / 1000, DAY);
  const newest = known < midnight ? await newestPeriod(context) : known;
  if (newest >= midnight) return newest;
  // all processes follow the register, so a clock that is ahead for a moment must not begin a period of the future
  const today = floorTo(await agreedNow(context), DAY);
  if (newest >= today) return newest;
  await begin(context, today);
  return today;
}

/**
 * Begins a new period, so no new batch is written to this one. A period ahead of the clock that is not in the register
 * stays open: only a host with a wrong clock writes to it, and all others would have to follow.
 */
export async function closePeriod(context: Context, period: number): Promise<void> {
  const now = await agreedNow(context);
  const newest = await newestPeriod(context);
  if (newest > period || (newest < period && period > now)) return;
  await begin(context, Math.max(now, period + 1));
}

async function begin({ clickhouse, logger }: Context, at: number): Promise<void> {
  await clickhouse.execute({ sql: statements.beginPeriod, params: { begin: at }, settings: WRITE_SETTINGS });
  logger.info({ begin: isoTime(at) }, 'rollup_period_began');
}

/**
 * Returns the width of the narrowest buckets that rollups keep of a period, seconds: minutes expire before hours. More
 * than any width if the whole period has expired.
 */
export function narrowestOf(period: number, { settings }: Pick<Context, 'settings'>, now: number): number {
  if (isExpired(period, settings.ROLLUP_1H_RETENTION_DAYS, now)) return Number.MAX_SAFE_INTEGER;
  return isExpired(period, settings.ROLLUP_1M_RETENTION_DAYS, now) ? HOUR : 0;
}

/**
 * True if no event of the period can be younger than the retention: the youngest is an hour and a day younger than the
 * period's begin.
 */
export function isExpired(period: number, retentionDays: number, now: number): boolean {
  return period + DAY + HOUR + retentionDays * DAY <= now;
}
