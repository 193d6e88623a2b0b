import { isDeepStrictEqual } from 'node:util';
import { fresh, freshly, select, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { leastPeriod } from '../../common/evaluate/event.ts';
import { build, isDamaged, unfinishedBatches, type BatchEnd, type Built } from './period/build.ts';
import { readHorizon, readRollups, statements, unlessReplaced, type Rollup } from './period/catalogue.ts';
import { attempt, isLasting, onShards, pauseAfter, restUntil, valuesOf, type Context } from './period/context.ts';
import { LONG_READ_SETTINGS, WRITE_SETTINGS } from './period/statement-settings.ts';
import { agreedNow, ceilTo, floorTo, HOUR, isoTime, MINUTE } from './period/time.ts';
import { readRollupDefinition, tableName } from './period/definition.ts';
import { differences, during, isIn, isSince, MOST_DIFFERENCES, type Span } from './period/view-sql.ts';
import { closePeriod, narrowestOf } from './period/periods.ts';

/** A span of a period that must be rebuilt (table rollup_repairs). Times are unix seconds. */
export interface Repair {
  readonly source: string;
  readonly period: number;
  readonly from: number;
  readonly to: number;
  readonly reason: 'recovery' | 'audit' | 'command';
  readonly accept_loss: boolean;
  /** of the newest request, as the engine writes it; '' means now */
  readonly requested_at: string;
  /** the result of the last attempt; '' if there was none */
  readonly outcome: '' | Built['kind'] | 'differs' | 'failed';
}

export async function readOpenRepairs(clickhouse: Reader): Promise<Repair[]> {
  return await select<Repair>(fresh(clickhouse, ['rollup_repairs']), statements.openRepairs);
}

/** Requests a repair. Two requests for the same span cause one. */
export async function requestRepair(
  { clickhouse }: Pick<Context, 'clickhouse'>,
  repair: Omit<Repair, 'requested_at' | 'outcome'>,
): Promise<void> {
  await writeRepair({ clickhouse }, { ...repair, requested_at: '', outcome: '' }, false);
}

async function writeRepair({ clickhouse }: Pick<Context, 'clickhouse'>, repair: Repair, done: boolean): Promise<void> {
  const params = { ...repair, done };
  await clickhouse.execute({
    sql: statements.writeRepair,
    params,
    settings: WRITE_SETTINGS,
    ...freshly(['rollup_repairs']),
  });
}

/**
 * Divides repairs into those that one build can do: of the same source and period, with hours that overlap. An outage
 * leaves a repair for each batch in flight, and each build makes a whole partition. One that was refused
 * is tried alone, so that it holds up no other.
 */
export function groupRepairs(open: readonly Repair[]): Repair[][] {
  const groups: Repair[][] = [];
  for (const repair of open) {
    const group = groups.find(
      (of) => of.every((other) => mayJoin(other, repair)) && of.some((other) => overlap(other, repair)),
    );
    if (group === undefined) groups.push([repair]);
    else group.push(repair);
  }
  return groups;
}

function mayJoin(a: Repair, b: Repair): boolean {
  return (
    !isLasting(a.outcome) &&
    !isLasting(b.outcome) &&
    a.source === b.source &&
    a.period === b.period &&
    a.reason === b.reason &&
    a.accept_loss === b.accept_loss
  );
}

function overlap(a: Span, b: Span): boolean {
  return floorTo(a.from, HOUR) < ceilTo(b.to, HOUR) && floorTo(b.from, HOUR) < ceilTo(a.to, HOUR);
}

function isWithin(a: Repair, b: Repair): boolean {
  return a.source === b.source && a.period === b.period && a.from >= b.from && a.to <= b.to;
}

/** What this process knows of an open request. One that is made again is another one. */
interface Tried {
  /**
   * where it is built (placeOf), and not again while it stays open for another shard, or a version that history builds
   */
  readonly places: Set<string>;
  /** when it is tried again (restUntil) */
  restUntil: number;
}

/** By request, of the last round; undefined before the first one. */
const triedBy = new WeakMap<Context, Map<string, Tried>>();

const keyOf = ({ source, period, from, to, requested_at }: Repair): string =>
  [source, period, from, to, requested_at].join(' ');

/** Names a version of a rollup on a shard. */
export const placeOf = ({ clickhouse }: Context, rollup: Rollup): string =>
  `${clickhouse.shard ?? ''} ${tableName(rollup)}`;

interface Round {
  readonly context: Context;
  readonly open: readonly Repair[];
  readonly rollups: readonly Rollup[];
  readonly tried: (repair: Repair) => Tried;
  /** shards that cannot be reached, by name */
  readonly lost: Map<string | undefined, PromiseRejectedResult>;
}

/**
 * Tries every open repair once, on every shard, except those that rest. A shard that cannot be reached keeps no other
 * from its repairs: its error is thrown after the last one. A request stays open while history builds its period for a
 * version. Returns how many are left.
 */
export async function repairOpen(context: Context): Promise<number> {
  const { clickhouse, metrics } = context;
  const open = await readOpenRepairs(clickhouse);
  const before = triedBy.get(context);
  // the last round had none either, so the gauges say so
  if (open.length === 0 && before?.size === 0) return 0;
  // A `new` one too: the service that admits it may have looked at raw before the batch that is repaired. They are read
  // after the requests: a version that appears later, or that builds a period later, is made of raw with their batches.
  const rollups = (await readRollups(clickhouse)).filter((r) => r.state !== 'retired');
  const known = new Map<string, Tried>(
    open.map((repair) => [keyOf(repair), before?.get(keyOf(repair)) ?? { places: new Set(), restUntil: 0 }]),
  );
  triedBy.set(context, known);
  const tried = (repair: Repair): Tried => known.get(keyOf(repair))!;
  const lost: Round['lost'] = new Map();
  const round: Round = { context, open, rollups, tried, lost };
  for (const group of groupRepairs(open))
    if (group.some((member) => performance.now() >= tried(member).restUntil)) await repairGroup(round, group);
  // without a second look that could fail: the next round would take these gauges for right
  const left = open.length === 0 ? open : await readOpenRepairs(clickhouse);
  for (const { name, source } of rollups) {
    const outcomes = left.filter((r) => r.source === source).map((r) => r.outcome);
    const isIncomplete = outcomes.includes('incomplete') || outcomes.includes('failed');
    metrics.sourceIncomplete.set({ rollup: name }, isIncomplete ? 1 : 0);
    metrics.differences.set({ rollup: name }, outcomes.filter((outcome) => outcome === 'differs').length);
  }
  valuesOf([...lost.values()]);
  return left.length;
}

/** Does what one build can do. */
async function repairGroup(round: Round, group: readonly Repair[]): Promise<void> {
  const { context, open, rollups, tried, lost } = round;
  const { logger } = context;
  const since = performance.now();
  const repair = {
    ...group[0]!,
    from: Math.min(...group.map(({ from }) => from)),
    to: Math.max(...group.map(({ to }) => to)),
  };
  let outcome: Repair['outcome'] = 'built';
  const ofSource = rollups.filter((r) => r.source === repair.source);
  const affected = ofSource.filter((r) => !r.pending.includes(repair.period));
  // an accepted loss also ends the requests within its span that the loss has kept open
  const covered = repair.accept_loss ? open.filter((r) => isWithin(r, repair)) : group;
  const shards = onShards(context);
  for (const shard of shards.filter((s) => !lost.has(s.clickhouse.shard))) {
    try {
      for (const rollup of affected) {
        const place = placeOf(shard, rollup);
        const isBuilt = group.every((member) => tried(member).places.has(place));
        const result = await attempt(shard, { work: 'repairs', rollup: rollup.name, ...whereOf(repair) }, async () =>
          isBuilt && !(await isDamaged(shard, rollup, repair.period)) ? '' : repairOn(context, shard, rollup, repair),
        );
        if (result === 'built') for (const member of covered) tried(member).places.add(place);
        else if (result !== '' && !isLasting(outcome)) outcome = result ?? 'failed';
      }
    } catch (error) {
      lost.set(shard.clickhouse.shard, { status: 'rejected', reason: error });
    }
  }
  if (outcome === 'built') await pauseAfter(context, performance.now() - since);
  if (outcome === 'built' && lost.size > 0) return;
  // History may have built the period from raw without the batch that is repaired, and not said so yet. Once the period
  // is no longer pending, the version is repaired like the others.
  if (outcome === 'built' && affected.length < ofSource.length) outcome = 'taken';
  // one that came after a shard was built is not answered by that build
  const places = shards.flatMap((shard) => affected.map((rollup) => placeOf(shard, rollup)));
  const answered = covered.filter((m) => group.includes(m) || places.every((place) => tried(m).places.has(place)));
  for (const member of outcome === 'built' ? answered : group)
    if (outcome !== member.outcome && !isStillRefused(member, outcome))
      await writeRepair(context, { ...member, outcome }, outcome === 'built');
  if (outcome === 'built') logger.info(whereOf(repair), 'rollup_repaired');
  else {
    // Several that were refused: each is tried alone in the next round. What only waits is tried then too if a command
    // asked for it.
    const isNext = isLasting(outcome) ? group.length > 1 : repair.reason === 'command';
    const until = isNext ? since : restUntil(context, outcome, since);
    for (const member of group) tried(member).restUntil = until;
  }
}

/** True if an attempt has only waited, which takes back nothing of why the one before it was refused. */
function isStillRefused(repair: Repair, outcome: Repair['outcome']): boolean {
  return isLasting(repair.outcome) && outcome !== 'built' && !isLasting(outcome);
}

/** Returns what a repair is of, as text, for log lines. */
const whereOf = ({ source, period, from, to, reason }: Repair) => ({
  source,
  period: isoTime(period),
  from: isoTime(from),
  to: isoTime(to),
  reason,
});

/** Builds the span of a repair in one version on one shard. Returns `built` if it is equal to raw then. */
async function repairOn(context: Context, shard: Context, rollup: Rollup, repair: Repair): Promise<Repair['outcome']> {
  const { logger, metrics } = context;
  const { name, from_raw: width } = rollup;
  const where = { ...whereOf(repair), rollup: name };
  const span = { from: floorTo(repair.from, width), to: ceilTo(repair.to, width) };
  const built = await build(shard, rollup, repair.period, { span, acceptLoss: repair.accept_loss, urgent: true });
  if (built.kind === 'incomplete' && repair.outcome !== 'incomplete')
    logger.error({ ...where, batches: built.batches.slice(0, 5) }, 'rollup_source_incomplete');
  if (built.kind === 'busy' || built.kind === 'unfinished') await closePeriod(context, repair.period);
  if (built.kind !== 'built') return built.kind;
  metrics.repairs.inc({ rollup: name });
  const still = await settledDifferences(shard, rollup, repair.period, span, width);
  if ('unfinished' in still) return 'unfinished';
  if (still.length === 0) return 'built';
  logger.error({ ...where, differences: still.length }, 'rollup_repair_failed');
  return 'differs';
}

/** Batches that `unfinished` names at most. */
const BATCHES_NAMED = 5;

/**
 * Returns differences in buckets of up to `widest` seconds that two looks agree on. Batches that the ledger has not
 * reached may still fill their views, so differences in their periods mean nothing. If there are any, returns up to
 * BATCHES_NAMED of them instead; none if rows of these buckets arrived between the looks.
 */
export async function settledDifferences(
  context: Context,
  rollup: Rollup,
  period: number | undefined,
  span: Span,
  widest = rollup.widest,
): Promise<readonly Difference[] | { readonly unfinished: readonly BatchEnd[] }> {
  const { source } = rollup;
  const reader = fresh(context.clickhouse, [source, 'batches', 'dead_letter_replays']);
  const first = await differencesOf(context, rollup, period, span, widest);
  if (first.length === 0) return first;
  const periods = [...new Set(first.map((d) => d.period))];
  const minutes = first.map((d) => d.minute);
  const differing = { from: Math.min(...minutes), to: Math.max(...minutes) + Math.max(widest, MINUTE) };
  const rows = `SELECT count() AS rows FROM ${source} WHERE (${periods.map(isIn).join(' OR ')}) AND ${during('timestamp', differing)}`;
  const held = await select(reader, rows, {}, LONG_READ_SETTINGS);
  for (const p of periods) {
    const unfinished = await unfinishedBatches(reader, source, p, await agreedNow(context));
    if (unfinished.length > 0) return { unfinished: unfinished.slice(0, BATCHES_NAMED) };
  }
  const second = await differencesOf(context, rollup, period, span, widest);
  const both = second.filter((d) => first.some((f) => f.period === d.period && f.minute === d.minute));
  // Every batch with rows in raw by now had filled its views before the second look, unless it came after the question.
  // To ask again would not show that: such a batch may be finished by then, although the second look missed its views.
  if (both.length > 0 && !isDeepStrictEqual(held, await select(reader, rows, {}, LONG_READ_SETTINGS)))
    return { unfinished: [] };
  return both;
}

export interface Difference {
  /** begin of the period and of the minute, unix seconds */
  readonly period: number;
  readonly minute: number;
}

/** A minute after all events, unix seconds: the last one of 2105. */
const LAST_MINUTE = 4_291_747_200 - MINUTE;

/**
 * Returns the minutes in which a rollup differs from what its view makes of raw, and LAST_MINUTE if more of them may
 * differ than are found. It leaves out events from before the horizon of the period (of all periods without one),
 * buckets wider than `widest` seconds, and expired minutes of the period. Returns none if a newer version has replaced
 * the rollup meanwhile.
 */
export async function differencesOf(
  context: Pick<Context, 'clickhouse' | 'settings' | 'clock' | 'engineClock'>,
  rollup: Rollup,
  period: number | undefined,
  span: Span,
  widest = rollup.widest,
): Promise<Difference[]> {
  const { clickhouse } = context;
  const found = await unlessReplaced(context, rollup, async () => {
    const definition = await readRollupDefinition(clickhouse, rollup);
    const reader = fresh(clickhouse, ['expired_days', definition.source, definition.table]);
    const from = Math.max(span.from, await readHorizon(reader, rollup.source, period));
    if (from >= span.to) return [];
    // a rollup has no index of times, so without a period all that retention keeps would be read
    const periods = period === undefined ? isSince(leastPeriod(from)) : isIn(period);
    const condition = (column: 'timestamp' | 'at'): string => `${periods} AND ${during(column, { from, to: span.to })}`;
    const narrowest = period === undefined ? 0 : narrowestOf(period, context, await agreedNow(context));
    return await select<Difference>(
      reader,
      differences(definition, condition('timestamp'), condition('at'), widest, narrowest),
      {},
      LONG_READ_SETTINGS,
    );
  });
  if (found?.length === MOST_DIFFERENCES) found.push({ ...found.at(-1)!, minute: LAST_MINUTE });
  return found ?? [];
}
