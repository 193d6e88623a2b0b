import { randomBytes } from 'node:crypto';
import { select } from '../../common/clickhouse/clickhouse.ts';
import { statements, writeCut, type Rollup } from './catalogue.ts';
import { floorTo, HOUR, isExpired, partitionId, type Period } from './periods.ts';
import { firstWholeDay, retentionOf } from './retention.ts';
import { carryOver, differences, fill, isBefore, isFrom, madeFrom, madeFromRaw, readShape, type Shape, type Tier } from './shape.ts';
import { BUILD_SETTINGS, DROP_SETTINGS, isoTime, LONG_READ_SETTINGS, nowSeconds, type Workshop } from './workshop.ts';

/** `unsettled`: batches of that period are not finished; nothing was changed. `unequal`: built, and each time raw rows came in meanwhile. */
export type Built = { readonly kind: 'built'; readonly rows: number } | { readonly kind: 'unsettled'; readonly batches: readonly UnfinishedBatch[] } | { readonly kind: 'unequal' };

export interface UnfinishedBatch {
  readonly topic: string;
  readonly incarnation: number;
  readonly partition: number;
  readonly last: number;
}

const ATTEMPTS = 3;

/** Lets a new period begin shortly and gives its start: every batch judged before it is in an ended period then. */
export async function announceCut({ clickhouse, clock, timing, logger }: Workshop): Promise<number> {
  const at = Math.ceil((clock() + timing.cutAheadMs) / 1000);
  await writeCut(clickhouse, at);
  logger.info({ at: isoTime(at) }, 'rollup_cut');
  return at;
}

/** Milliseconds until a period that ends then can be built; 0 = now. */
export function untilSettled(end: number, { clock, timing }: Pick<Workshop, 'clock' | 'timing'>): number {
  return Math.max(0, end * 1000 + timing.settleMs - clock());
}

/** Event time before which the raw table has nothing, or not everything: midnight of its oldest whole day. What is older in a rollup cannot be made again. */
async function rawHorizon(workshop: Workshop, source: string): Promise<number> {
  const [oldest] = await select<{ starts_at: number }>(workshop.clickhouse, statements.partitions, { tables: [source] });
  return Math.max(oldest?.starts_at ?? 0, firstWholeDay(workshop.settings.RAW_RETENTION_DAYS, nowSeconds(workshop)));
}

const isIn = (period: Period): string => `period = toDateTime(${period.start}, 'UTC')`;
const judgedIn = ({ start, end }: Period): string => `judged_at >= toDateTime64(${start}, 3, 'UTC') AND judged_at < toDateTime64(${end}, 3, 'UTC')`;

/**
 * Builds one ended period of a rollup from the raw table, beside it, swaps it in table by table, and compares. Killed or repeated at any point it does no harm:
 * the rollup changes by whole partitions only. Event times that the raw table no longer has are carried over from `older`, the version
 * that served before, else from the rollup itself.
 *
 * Exact while events flow: the period has been over for a while, and every batch that has rows of it is in the ledger. A batch that had written
 * nothing yet and comes hours late goes through the view like any other; where it falls exactly between reading and swapping, the count before the
 * swap or the comparison after it tells, and the period is built again.
 */
export async function buildPeriod(workshop: Workshop, rollup: Rollup, period: Period, older: Rollup = rollup): Promise<Built> {
  const { clickhouse, settings, logger, metrics } = workshop;
  const { source } = rollup;
  const shape = await readShape(clickhouse, rollup);
  const olderShape = older.version === rollup.version ? shape : await readShape(clickhouse, older);
  const range = { source, from: period.start, to: period.end };
  const where = { rollup: rollup.name, version: rollup.version, period: isoTime(period.start) };
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const unfinished = await select<UnfinishedBatch>(clickhouse, statements.unfinishedBatches, range, LONG_READ_SETTINGS);
    if (unfinished.length > 0) return { kind: 'unsettled', batches: unfinished };
    const since = performance.now();
    const rows = await countJudged();
    if (rows === 0 && !(await hasPartition())) return { kind: 'built', rows };
    const horizon = await rawHorizon(workshop, source);
    const suffix = `_build_${randomBytes(4).toString('hex')}`;
    try {
      for (const tier of shape.tiers) await fillTier(tier, suffix, horizon);
      if ((await countJudged()) !== rows) continue;
      await swapIn(suffix);
    } finally {
      for (const tier of shape.tiers) await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${tier.stored}${suffix} SYNC`, settings: DROP_SETTINGS });
    }
    metrics.built.inc({ rollup: rollup.name }, rows);
    if ((await differencesOfPeriod(workshop, shape, period)).length > 0) continue;
    const ms = performance.now() - since;
    logger.info({ ...where, rows, seconds: Math.round(ms) / 1000 }, 'rollup_period_built');
    await workshop.wait((ms * (100 - settings.ROLLUP_BUILD_PERCENT)) / settings.ROLLUP_BUILD_PERCENT);
    return { kind: 'built', rows };
  }
  logger.warn(where, 'rollup_period_unequal');
  return { kind: 'unequal' };

  async function countJudged(): Promise<number> {
    return (await select<{ found: number }>(clickhouse, statements.countJudged, range, LONG_READ_SETTINGS))[0]?.found ?? 0;
  }

  /** Whether there is anything of the period, to be replaced or to be carried over. */
  async function hasPartition(): Promise<boolean> {
    const stored = [...shape.tiers, ...olderShape.tiers].map((t) => t.stored);
    return (await select<{ partition_id: string }>(clickhouse, statements.partitions, { tables: stored })).some((p) => p.partition_id === partitionId(period));
  }

  async function fillTier(tier: Tier, suffix: string, horizon: number): Promise<void> {
    const target = tier.stored + suffix;
    const before = shape.tiers.find((t) => t.stored === tier.from);
    const own = olderShape.tiers.find((t) => t.table === tier.table);
    // a tier that the older version lacks is made of all that the tier before it has, carried over or not
    const input = before === undefined
      ? `(SELECT * FROM ${source} WHERE ${judgedIn(period)} AND ${isFrom('timestamp', horizon)})`
      : `(SELECT * FROM ${before.stored}${suffix}${own === undefined ? '' : ` WHERE ${isFrom(before.time, horizon)}`})`;
    await clickhouse.execute({ sql: `CREATE TABLE ${target} AS ${tier.stored}` });
    await clickhouse.execute({ sql: fill(tier, target, input), settings: BUILD_SETTINGS });
    if (own !== undefined) await clickhouse.execute({ sql: carryOver(tier, target, own, `${isIn(period)} AND ${isBefore(own.time, horizon)}`), settings: BUILD_SETTINGS });
  }

  async function swapIn(suffix: string): Promise<void> {
    const filled = await select<{ table: string; partition_id: string }>(clickhouse, statements.partitions, { tables: shape.tiers.map((t) => t.stored + suffix) });
    const id = partitionId(period);
    for (const tier of shape.tiers) {
      const has = filled.some((p) => p.table === tier.stored + suffix && p.partition_id === id);
      const change = has && !isGone(workshop, tier, period) ? `REPLACE PARTITION ID '${id}' FROM ${tier.stored}${suffix}` : `DROP PARTITION ID '${id}'`;
      await clickhouse.execute({ sql: `ALTER TABLE ${tier.stored} ${change}`, settings: DROP_SETTINGS });
    }
  }
}

/** True when retention has taken the period from the tier. */
function isGone({ settings, clock }: Workshop, tier: Tier, period: Period): boolean {
  return isExpired(period.start, retentionOf(tier.table, settings), clock() / 1000);
}

export interface Difference {
  /** of the tier */
  readonly table: string;
  /** start of its period and of its minute, unix seconds */
  readonly period: number;
  readonly minute: number;
}

/** Minutes of an ended period in which the rollup is not what its views make of the raw table; event times that the raw table no longer has are left out. */
export async function differencesOfPeriod(workshop: Workshop, shape: Shape, period: Period): Promise<Difference[]> {
  const horizon = await rawHorizon(workshop, shape.source);
  const found: Difference[] = [];
  for (const tier of shape.tiers) {
    if (isGone(workshop, tier, period)) continue;
    const before = shape.tiers.find((t) => t.stored === tier.from);
    const held = (t: Tier): string => `${isIn(period)} AND ${isFrom(t.time, horizon)}`;
    const raw = `${judgedIn(period)} AND ${isFrom('timestamp', horizon)}`;
    const input = before === undefined ? `(SELECT * FROM ${shape.source} WHERE ${raw})` : isGone(workshop, before, period) ? `(${madeFromRaw(shape, before, raw)})` : `(SELECT * FROM ${before.stored} WHERE ${held(before)})`;
    found.push(...(await compare(workshop, tier, input, held(tier))));
  }
  return found;
}

/** Minutes in [from, to) of event time in which a tier is not what its view makes of what it reads. Whole hours for a tier of hours. */
export async function differencesOfMinutes(workshop: Workshop, shape: Shape, tier: Tier, from: number, to: number): Promise<Difference[]> {
  const during = (time: Tier['time']): string => `${isFrom(time, from)} AND ${isBefore(time, to)}`;
  const before = shape.tiers.find((t) => t.stored === tier.from);
  return await compare(workshop, tier, before === undefined ? `(SELECT * FROM ${shape.source} WHERE ${during('timestamp')})` : `(SELECT * FROM ${before.stored} WHERE ${during(before.time)})`, during(tier.time));
}

/** Starts of the periods in which events of that time (unix seconds) were judged, or that the rollup has such buckets in. */
export async function affectedPeriods({ clickhouse }: Workshop, shape: Shape, from: number, to: number): Promise<number[]> {
  const [first, last] = [floorTo(from, HOUR), floorTo(to + HOUR - 1, HOUR)];
  const during = (time: Tier['time']): string => `${isFrom(time, first)} AND ${isBefore(time, last)}`;
  const rows = shape.tiers.flatMap((tier) => [
    ...(tier.from === shape.source ? [madeFrom(tier, `(SELECT * FROM ${shape.source} WHERE ${during('timestamp')})`)] : []),
    `SELECT period FROM ${tier.stored} WHERE ${during(tier.time)}`,
  ]);
  const found = await select<{ start: number }>(clickhouse, rows.map((row) => `SELECT DISTINCT toUnixTimestamp(period) AS start FROM (${row})`).join(' UNION DISTINCT '), {}, LONG_READ_SETTINGS);
  return found.map((row) => row.start);
}

async function compare({ clickhouse }: Workshop, tier: Tier, input: string, condition: string): Promise<Difference[]> {
  const found = await select<{ period: number; minute: number }>(clickhouse, differences(tier, input, condition), {}, LONG_READ_SETTINGS);
  return found.map((row) => ({ table: tier.table, ...row }));
}
