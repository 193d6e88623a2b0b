import { randomBytes } from 'node:crypto';
import { everywhere, fresh, select, shardsOf } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { build, isDamaged, type Built } from './period/build.ts';
import { readRollup, readRollups, servingVersion, statements, writeRollup, type Rollup } from './period/catalogue.ts';
import { attempt, isLasting, isToldNow, onShards, perContext, restUntil, type Context } from './period/context.ts';
import { DROP_SETTINGS } from './period/statement-settings.ts';
import { isoTime } from './period/time.ts';
import { readRollupDefinition, tableName, viewName } from './period/definition.ts';
import { ALL_TIME, publicView } from './period/view-sql.ts';
import { closePeriod } from './period/periods.ts';
import { differencesOf, placeOf } from './repairs.ts';

/** How often it checks for inserts that began before a view was created or dropped, milliseconds. */
const DRAIN_POLL_MS = 200;
/** Those that have run for so long are named, seconds. */
const DRAIN_QUIETLY = 10;
const RETRY_MS = 5_000;
/** How long replicas may take to fetch what was built before other work goes on, milliseconds. */
const FETCH_MS = 3_000;

/**
 * Where pending periods are built (builtPlace): while one waits for another shard or for replicas, nothing of it is
 * built twice. Views keep it as it was built, and requests to repair it stay open until it is no longer pending
 * (repairs.ts).
 */
const builtOf = perContext(() => new Set<string>());

const builtPlace = (shard: Context, rollup: Rollup, period: number): string => `${placeOf(shard, rollup)} ${period}`;

/**
 * Brings versions of rollups from the migration that creates them to serving.
 * - `new`: its table and its view exist. The service waits for the inserts that began before the view was created. What
 * raw holds then is `pending`; the view has seen the rest.
 * - `building`: pending periods are built, the newest first. Until the last one is built, answers take pending periods
 * from raw, or everything from the version that serves. Of a cluster, a period is pending until every replica has it.
 * - `serving`: nothing is pending. The version before it is retired.
 */
export async function admitNew(context: Context): Promise<void> {
  const { clickhouse, logger } = context;
  const rollups = await readRollups(clickhouse);
  const added = rollups.filter((r) => r.state === 'new');
  if (added.length > 0) await drainInserts(context);
  for (const rollup of added) {
    const older = servingVersion(rollups, rollup.name);
    const held = new Set<number>();
    const tables = [rollup.source, ...(older === undefined ? [] : [tableName(older)])];
    for (const shard of shardsOf(clickhouse))
      for (const table of tables) {
        const periods = await select<{ period: number }>(fresh(shard, [table]), statements.periodsOf, { table });
        for (const { period } of periods) held.add(period);
      }
    const pending = [...held].toSorted((a, b) => a - b);
    await writeRollup(clickhouse, { ...rollup, pending, state: pending.length === 0 ? 'serving' : 'building' });
    logger.info({ rollup: rollup.name, version: rollup.version, pending: pending.length }, 'rollup_admitted');
  }
  await publish(context);
}

/** Resolves when every insert that runs now has ended. */
async function drainInserts(context: Context): Promise<void> {
  let awaited = await stillRunning(context);
  while (awaited.size > 0) {
    await context.wait(DRAIN_POLL_MS);
    awaited = await stillRunning(context, awaited);
  }
}

interface Insert {
  readonly query_id: string;
  /** that it has run */
  readonly seconds: number;
  readonly [more: string]: unknown;
}

/** The ids of the inserts that a version waits for, by its table: they ran when its view was gone. */
const drainsOf = perContext(() => new Map<string, ReadonlySet<string>>());

/**
 * Returns those of the awaited inserts that still run; without any, all that run now. An insert looks its views up when
 * it begins. One that began before a view was created stores its rows in raw without it, and one that began before a
 * view was dropped writes to its table, at any later moment.
 */
async function stillRunning(context: Context, awaited?: ReadonlySet<string>): Promise<ReadonlySet<string>> {
  const running = await select<Insert>(everywhere(context.clickhouse), statements.runningInserts);
  const left = running.filter((insert) => awaited?.has(insert.query_id) ?? true);
  const long = left.filter((insert) => insert.seconds >= DRAIN_QUIETLY);
  if (long.length > 0 && isToldNow(context, 'rollup_waits_for_inserts'))
    context.logger.warn({ inserts: long.slice(0, 5) }, 'rollup_waits_for_inserts');
  return new Set(left.map((insert) => insert.query_id));
}

/** Returns what queries of this name get: the serving version, else the newest one with raw for what it lacks. */
const shownVersion = (rollups: readonly Rollup[], name: string): Rollup | undefined =>
  servingVersion(rollups, name) ?? rollups.findLast((r) => r.name === name && r.state === 'building');

/**
 * Makes the views that queries read equal to the catalogue. It reads the catalogue again afterwards, because another
 * service may have advanced it.
 */
export async function publish(context: Context): Promise<void> {
  const { clickhouse, logger, metrics } = context;
  // every node has the same views
  const shard = shardsOf(clickhouse)[0]!;
  for (;;) {
    const rollups = await readRollups(clickhouse);
    const names = [...new Set(rollups.map((r) => r.name))];
    const views = await select<{ name: string; comment: string }>(shard, statements.tables, { names });
    let published = 0;
    for (const { name, version, pending, state } of rollups) {
      metrics.periodsLeft.set({ rollup: name, version }, pending.length);
      if (state !== 'building') metrics.sourceIncomplete.set({ rollup: name, version }, 0);
    }
    for (const name of names) {
      const rollup = shownVersion(rollups, name);
      if (rollup === undefined) continue;
      const comment = `version ${rollup.version}, raw for ${JSON.stringify(rollup.pending)}`;
      if (views.find((view) => view.name === name)?.comment === comment) continue;
      published++;
      try {
        await clickhouse.execute({
          sql: publicView(await readRollupDefinition(shard, rollup), rollup.pending, comment),
        });
        logger.info({ rollup: name, version: rollup.version, pending: rollup.pending.length }, 'rollup_published');
      } catch (error) {
        // the version was retired since the catalogue was read
        if ((await readRollup(clickhouse, rollup))?.state !== 'retired') throw error;
      }
    }
    if (published === 0) return;
    await clickhouse.cluster?.distribute?.();
  }
}

/**
 * Retires a version that another has replaced. Its name stays, as a view of the newer version. So a query planned a
 * moment ago, or a service that publishes an old state of the catalogue, gets right answers too.
 */
async function retire(context: Context, rollup: Rollup, newer: Rollup): Promise<Step> {
  const { clickhouse, logger } = context;
  const shard = shardsOf(clickhouse)[0]!;
  const table = tableName(rollup);
  // without its view, the retirement has begun; a replica that missed the drop may have brought the view back since
  const views = await select(everywhere(clickhouse), statements.tables, { names: [viewName(rollup)] });
  if (views.length > 0 && !(await isEverywhere(context, newer))) return 'waits';
  await publish(context);
  const [stored] = await select<{ engine: string }>(shard, statements.tables, { names: [table] });
  if (stored !== undefined && stored.engine !== 'View') {
    const drains = drainsOf(context);
    const known = views.length > 0 ? undefined : drains.get(table);
    if (known === undefined) await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${viewName(rollup)} SYNC` });
    // an insert that has looked the view up is about to write to its table
    const left = await stillRunning(context, known);
    drains.set(table, left);
    if (left.size > 0) return 'waits';
    drains.delete(table);
    // a unique name: if two services do this at once, the second exchanges a view for a view
    const stub = `${table}_retired_${randomBytes(4).toString('hex')}`;
    await clickhouse.execute({ sql: `CREATE VIEW ${stub} AS SELECT * FROM ${tableName(newer)}` });
    try {
      await clickhouse.execute({ sql: `EXCHANGE TABLES ${table} AND ${stub}` });
    } catch (error) {
      // another service was faster and removed what it found beside
      if (!(error instanceof ClickHouseError) || error.codeName !== 'UNKNOWN_TABLE') throw error;
    }
  }
  // with what builds of it have left: of a cluster, on any node
  const left = await select<{ name: string }>(everywhere(clickhouse), statements.tablesLike, {
    pattern: `^${table}_(retired|(build|repair)_[0-9]+)_[0-9a-f]{8}$`,
  });
  for (const name of new Set(left.map((found) => found.name)))
    await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${name} SYNC`, settings: DROP_SETTINGS });
  await writeRollup(clickhouse, { ...rollup, pending: [], state: 'retired' });
  logger.info({ rollup: rollup.name, version: rollup.version }, 'rollup_retired');
  return 'done';
}

/**
 * Returns whether every replica has all rows of a version. What makes queries read the version, or drops the one before
 * it, happens on all replicas at once. One that is down does it when it returns, before it has fetched a row: so it is
 * waited for too.
 */
async function isEverywhere(context: Context, rollup: Rollup): Promise<boolean> {
  const { clickhouse, logger } = context;
  if (clickhouse.cluster === undefined) return true;
  const table = tableName(rollup);
  let reason = 'CLICKHOUSE_URL lacks a replica, or one does not answer';
  try {
    const on = await Promise.all(
      shardsOf(clickhouse).map((shard) =>
        select<{ replicas: number }>(everywhere(fresh(shard, [table], FETCH_MS)), statements.replicas, { table }),
      ),
    );
    if (on.every((answered) => answered.length > 0 && answered.every((a) => a.replicas === answered.length)))
      return true;
  } catch (error) {
    // another service may have retired it since: then its name is a view
    if ((await readRollup(clickhouse, rollup))?.state === 'retired') return false;
    if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
    reason = error.message;
  }
  if (isToldNow(context, `rollup_waits_for_replicas ${table}`))
    logger.warn({ rollup: rollup.name, version: rollup.version, reason }, 'rollup_waits_for_replicas');
  return false;
}

/**
 * Takes the next step of a version: retires a replaced one, or builds the newest pending period. Returns the
 * milliseconds after which there is more to do: 0 for at once, undefined if nothing is building. Progress is in the
 * catalogue, so a restart continues with the same period.
 */
export async function nextStep(context: Context): Promise<number | undefined> {
  const { clickhouse, metrics } = context;
  const rollups = await readRollups(clickhouse);
  let again: number | undefined;
  for (const rollup of rollups.filter((r) => r.state === 'serving')) {
    const newer = servingVersion(rollups, rollup.name);
    if (newer === undefined || newer.version === rollup.version) continue;
    if ((await step(context, rollup, undefined, () => retire(context, rollup, newer))) === 'done') return 0;
    again = RETRY_MS;
  }
  for (const rollup of rollups.filter((r) => r.state === 'building')) {
    const labels = { rollup: rollup.name, version: rollup.version };
    let refused = 0;
    // a period that cannot be built now delays none of the others
    for (const period of rollup.pending.toReversed()) {
      const act = (): Promise<Step> => buildPending(context, rollup, period, servingVersion(rollups, rollup.name));
      const outcome = await step(context, rollup, period, act);
      if (outcome === 'done') {
        metrics.sourceIncomplete.set(labels, refused);
        return 0;
      }
      again = RETRY_MS;
      // whatever else were built of this version would wait as well
      if (outcome === 'waits') break;
      if (isLasting(outcome)) refused = 1;
    }
    metrics.sourceIncomplete.set(labels, refused);
  }
  return again;
}

/** `waits`: for replicas, or for inserts of others. Else what keeps it from being done. */
type Step = 'done' | 'waits' | 'failed' | Exclude<Built['kind'], 'built'>;

/** When what was not done is tried again, by performance.now(), and why it was not. */
const restsOf = perContext(() => new Map<string, { readonly until: number; readonly outcome: Step }>());

/** Does a step of a version, or of one of its periods, unless it rests (restUntil). Returns how that ended last. */
async function step(
  context: Context,
  rollup: Rollup,
  period: number | undefined,
  act: () => Promise<Step>,
): Promise<Step> {
  const rests = restsOf(context);
  const key = `${tableName(rollup)} ${period}`;
  const since = performance.now();
  const rest = rests.get(key);
  if (rest !== undefined && since < rest.until) return rest.outcome;
  const { name, version } = rollup;
  const work = { work: 'history', rollup: name, version, ...(period !== undefined && { period: isoTime(period) }) };
  const outcome = (await attempt(context, work, act)) ?? 'failed';
  if (outcome === 'done' || outcome === 'waits') rests.delete(key);
  else rests.set(key, { until: restUntil(context, outcome, since), outcome });
  return outcome;
}

/** Builds a pending period, and says so in the catalogue when all replicas have it. */
async function buildPending(
  context: Context,
  rollup: Rollup,
  period: number,
  older: Rollup | undefined,
): Promise<Step> {
  const { clickhouse, logger } = context;
  const where = { rollup: rollup.name, version: rollup.version, period: isoTime(period) };
  const built = await buildOnShards(context, rollup, period, older);
  if (built.kind !== 'built') {
    const found = 'batches' in built ? { ...where, batches: built.batches.slice(0, 5) } : where;
    if (built.kind === 'incomplete') logger.error(found, 'rollup_source_incomplete');
    else if (built.kind !== 'taken') logger.info(found, 'rollup_waits_for_batches');
    if (built.kind === 'unfinished' || built.kind === 'busy') await closePeriod(context, period);
    return built.kind;
  }
  if (!(await isEverywhere(context, rollup))) return 'waits';
  const now = (await readRollup(clickhouse, rollup)) ?? rollup;
  const pending = now.pending.filter((p) => p !== period);
  if (now.state === 'building')
    await writeRollup(clickhouse, { ...now, pending, state: pending.length === 0 ? 'serving' : 'building' });
  for (const shard of onShards(context)) builtOf(context).delete(builtPlace(shard, rollup, period));
  await publish(context);
  logger.info(
    { ...where, periods_left: pending.length },
    pending.length === 0 ? 'rollup_complete' : 'rollup_build_progress',
  );
  return 'done';
}

/**
 * Returns `built` if every shard has built the period, else why the first one has not. If an operator has accepted a
 * loss of raw rows, the older version equals raw: it has nothing that a build from raw would lose.
 */
async function buildOnShards(
  context: Context,
  rollup: Rollup,
  period: number,
  older: Rollup | undefined,
): Promise<Built> {
  let built: Built = { kind: 'built', rows: 0 };
  for (const shard of onShards(context)) {
    const place = builtPlace(shard, rollup, period);
    if (builtOf(context).has(place) && !(await isDamaged(shard, rollup, period))) continue;
    built = await build(shard, rollup, period, { older });
    if (
      built.kind === 'incomplete' &&
      older !== undefined &&
      (await differencesOf(shard, older, period, ALL_TIME)).length === 0
    )
      built = await build(shard, rollup, period, { older, acceptLoss: true });
    if (built.kind !== 'built') break;
    builtOf(context).add(place);
  }
  return built;
}
