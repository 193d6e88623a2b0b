import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { everywhere, fresh, freshly, select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { LEDGER_DAYS } from '../../../common/ledger-days.ts';
import { readHorizon, readRollup, statements, unlessReplaced, type Rollup } from './catalogue.ts';
import { pauseAfter, type Context } from './context.ts';
import { BUILD_SETTINGS, DROP_SETTINGS, LONG_READ_SETTINGS } from './statement-settings.ts';
import { agreedNow, DAY, isoTime } from './time.ts';
import { readRollupDefinition, tableName, type RollupDefinition } from './definition.ts';
import { ALL_TIME, carryOver, fill, sumUp, type Span } from './view-sql.ts';
import { narrowestOf } from './periods.ts';

/**
 * The result of a build:
 * - `built`: at one moment at least, the rollup held exactly what its view makes of raw, and its views have kept it so
 * since.
 * - `unfinished`: the ledger has not reached some batches of the period, so their views may still be filled. Nothing was
 * changed.
 * - `incomplete`: raw has fewer rows than the ledger counts, and the rollup may have what raw has lost. Nothing was
 * changed.
 * - `busy`: rows arrived during every attempt. If the period is still open, it must be closed first.
 * - `taken`: another process builds the same rollup, has built the pending period, or reads what a swap replaced; or a
 * newer version has replaced the rollup.
 */
export type Built =
  | { readonly kind: 'built'; readonly rows: number }
  | { readonly kind: 'unfinished'; readonly batches: readonly BatchEnd[] }
  | { readonly kind: 'incomplete'; readonly batches: readonly LostBatch[] }
  | { readonly kind: 'busy' | 'taken' };

export interface BatchEnd {
  readonly topic: string;
  readonly incarnation: number;
  readonly partition: number;
  readonly last: number;
}

interface LostBatch extends BatchEnd {
  /** by the ledger */
  readonly stored: number;
  /** in the raw table */
  readonly rows: number;
}

interface BuildOptions {
  /** what is built from raw; the rest of the period is copied */
  readonly span?: Span;
  /** the serving version, if the period is pending: it has the events that raw no longer has */
  readonly older?: Rollup | undefined;
  /** true if the rollup may lose what raw has lost */
  readonly acceptLoss?: boolean;
  /** true if it takes precedence over history */
  readonly urgent?: boolean;
}

const ATTEMPTS = 3;
/**
 * From this version a swap outlives a server that is killed. 25.8.2.1 shows the replaced parts again, beside the new
 * ones, until it has removed them from the disk: after 8 minutes (seen 20 times of 20, twice 20 s after the swap).
 */
const SWAPS_LAST_SINCE = [26, 7] as const;
const REPLACED_POLL_MS = 500;
/** So often it looks for them: for a minute, longer than any answer reads. */
const REPLACED_POLLS = 120;
/** no period begins in 1970 */
const NO_PERIOD = 1;
/** What says which rows of raw count. */
const LEDGER = ['batches', 'dead_letter_replays', 'expired_days'];
const END_OF_TIME = ALL_TIME.to;

/**
 * Builds one period of a rollup from the raw table. History, a new version, a repair, a rebuild by command and the
 * removal of old minutes all call it. Steps and proofs: docs/rollups.md, "One function builds". All rest on this: an
 * insert stores its rows in raw before any of its views stores what it made of them.
 */
export async function build(
  context: Context,
  rollup: Rollup,
  period: number,
  options: BuildOptions = {},
): Promise<Built> {
  const replaceable = options.older ?? rollup;
  const built = await unlessReplaced(context, replaceable, () => buildBeside(context, rollup, period, options));
  return built ?? { kind: 'taken' };
}

async function buildBeside(
  context: Context,
  rollup: Rollup,
  period: number,
  { span = ALL_TIME, older, acceptLoss = false, urgent = false }: BuildOptions,
): Promise<Built> {
  const { clickhouse, logger, metrics } = context;
  const definition = await readRollupDefinition(clickhouse, rollup);
  const carried = !rollup.pending.includes(period)
    ? definition
    : older === undefined
      ? undefined
      : await readRollupDefinition(clickhouse, older);
  // each look sees what was stored before, whichever node of a cluster stored it
  const reader = fresh(clickhouse, [
    ...new Set([definition.source, definition.table, ...(carried === undefined ? [] : [carried.table]), ...LEDGER]),
  ]);
  const where = { rollup: rollup.name, version: rollup.version, period: isoTime(period) };
  const now = await agreedNow(context);
  const since = performance.now();
  const side = `${definition.table}_${urgent ? 'repair' : 'build'}_${period}_${randomBytes(4).toString('hex')}`;
  // so that two services, or history and a repair, do not undo each other's work for ever; nothing else depends on it
  const fills = `^INSERT INTO ${definition.table}_(${urgent ? 'repair' : 'build|repair'})_`;
  if ((await select(everywhere(clickhouse), statements.runningFills, { fills })).length > 0) return { kind: 'taken' };
  // outside of what follows: a table that cannot be created was not dropped by another service
  await clickhouse.execute({ sql: `CREATE TABLE ${side} AS ${definition.table}`, ofNode: true });
  try {
    const left = (await sideTables(clickhouse, definition, period)).filter((other) => other !== side);
    // of a cluster, a side table may be on any node
    for (const other of left)
      await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${other} SYNC`, settings: DROP_SETTINGS });
    let mustBeWhole = left.length > 0;
    const plan = { rollup, definition, carried, reader, period, now, span, side, acceptLoss };
    const take = async (): Promise<Built> => {
      let outcome = await once(context, mustBeWhole ? { ...plan, span: ALL_TIME, acceptLoss: false } : plan);
      // a loss is accepted within the span only: the rest is copied, damaged or not
      if (outcome.kind === 'incomplete' && acceptLoss) outcome = await once(context, plan);
      if (outcome.kind !== 'overtaken' && outcome.kind !== 'kept') return outcome;
      mustBeWhole = true;
      return { kind: outcome.kind === 'overtaken' ? 'busy' : 'taken' };
    };
    // whatever was built while a reader keeps replaced parts would have to be built again
    const isKept = mustBeWhole && !(await areReplacedGone(context, definition.table, period, 1));
    let outcome: Built = isKept ? { kind: 'taken' } : await take();
    for (let n = 1; n < ATTEMPTS && outcome.kind === 'busy'; n++) outcome = await take();
    // what tells of a build that failed goes when the period is built
    if (outcome.kind === 'built' || !mustBeWhole)
      await clickhouse.execute({ sql: `DROP TABLE IF EXISTS ${side} SYNC`, settings: DROP_SETTINGS, ofNode: true });
    if (outcome.kind === 'built') {
      metrics.built.inc({ rollup: rollup.name }, outcome.rows);
      const ms = performance.now() - since;
      logger.info({ ...where, rows: outcome.rows, seconds: Math.round(ms) / 1000 }, 'rollup_period_built');
      // a repair pauses or rests as a whole (repairs.ts)
      if (!urgent) await pauseAfter(context, ms);
    } else if (outcome.kind === 'busy') logger.info(where, 'rollup_period_busy');
    return outcome;
  } catch (error) {
    // another service began to build this period and dropped the side table, which explains any error of a statement on
    // it
    if (!(error instanceof ClickHouseError)) throw error;
    // or the node that has it was left for another one
    const isElsewhere = error.codeName === 'UNKNOWN_TABLE' && error.message.includes(side);
    if (!isElsewhere && (await sideTables(clickhouse, definition, period)).includes(side)) throw error;
    return { kind: 'taken' };
  }
}

interface BuildPlan extends Required<Pick<BuildOptions, 'span' | 'acceptLoss'>> {
  /** as its caller has read it: if the period was pending then, whatever the rollup holds of it is replaced */
  readonly rollup: Rollup;
  readonly definition: RollupDefinition;
  /** what the rows outside of the span are copied from; undefined if there are none */
  readonly carried: RollupDefinition | undefined;
  readonly reader: Reader;
  readonly period: number;
  readonly now: number;
  /** the table that is filled */
  readonly side: string;
}

/**
 * `busy`: rows arrived meanwhile. `overtaken`: they arrived right before the swap, so the partition may lack them, and
 * nothing more may be copied from it. `kept`: what the swap replaced may come back.
 */
async function once(
  context: Context,
  build: BuildPlan,
): Promise<Built | { readonly kind: 'overtaken' } | { readonly kind: 'kept' }> {
  const { clickhouse } = context;
  const { rollup, definition, carried, reader, period, now, span, side, acceptLoss } = build;
  const { source, table } = definition;
  const isPending = rollup.pending.includes(period);
  const narrowest = narrowestOf(period, context, now);
  const before = await look(reader, source, period);
  // Raw days expire as soon as nothing is pending. Those that expire after this look make it differ from the next one.
  if (isPending && (await readRollup(clickhouse, rollup))?.pending.includes(period) !== true) return { kind: 'taken' };
  const unfinished = await unfinishedBatches(reader, source, period, now);
  if (unfinished.length > 0) return { kind: 'unfinished', batches: unfinished };
  const made =
    carried === undefined ? span : { from: Math.min(Math.max(span.from, before.horizon), span.to), to: span.to };
  if (carried !== undefined && made.from < made.to && !acceptLoss) {
    const batches = await lostBatches(reader, source, period);
    if (batches.length > 0) return { kind: 'incomplete', batches };
  }
  await clickhouse.execute({ sql: `TRUNCATE TABLE ${side}`, settings: DROP_SETTINGS });
  if (made.from < made.to)
    await clickhouse.execute({
      sql: fill(definition, side, period, made, narrowest),
      settings: BUILD_SETTINGS,
      // not every node that was looked at is the one that fills
      ...freshly([source]),
    });
  if (carried !== undefined)
    await clickhouse.execute({
      sql: carryOver(definition, side, carried, period, made, narrowest),
      settings: BUILD_SETTINGS,
      ...freshly([carried.table]),
    });
  if (definition.widest > definition.from_raw)
    await clickhouse.execute({ sql: sumUp(definition, side), settings: BUILD_SETTINGS });
  if (!isDeepStrictEqual(before, await look(reader, source, period))) return { kind: 'busy' };
  const filled = await select(clickhouse, statements.partitions, { tables: [side] });
  await clickhouse.execute({
    sql:
      filled.length > 0
        ? `ALTER TABLE ${table} REPLACE PARTITION ID '${period}' FROM ${side}`
        : // an error where the side table is gone: another service dropped it, and its emptiness says nothing
          `ALTER TABLE ${table} MOVE PARTITION ID '${period}' TO TABLE ${side}`,
    settings: DROP_SETTINGS,
  });
  if (!(await areReplacedGone(context, table, period))) return { kind: 'kept' };
  const after = await look(reader, source, period);
  return isDeepStrictEqual(before, after) ? { kind: 'built', rows: before.rows } : { kind: 'overtaken' };
}

/**
 * Returns whether the parts that swaps have replaced cannot come back (SWAPS_LAST_SINCE). In a cluster Keeper says so.
 * A query or a BACKUP keeps those that it reads on the disk, however long it takes.
 */
async function areReplacedGone(
  { clickhouse, logger, wait }: Context,
  table: string,
  period: number,
  polls = REPLACED_POLLS,
): Promise<boolean> {
  const [year = 0, month = 0] = clickhouse.version.split('.').map(Number);
  const [since, sinceMonth] = SWAPS_LAST_SINCE;
  if (clickhouse.cluster !== undefined || year > since || (year === since && month >= sinceMonth)) return true;
  const params = { table, partition: String(period) };
  try {
    for (let poll = 1; poll <= polls; poll++) {
      // each time: another build of the table resets it when it ends
      await clickhouse.execute({ sql: `ALTER TABLE ${table} MODIFY SETTING old_parts_lifetime = 0` });
      // removes what no query reads any more, at once: in 10 ms, where the server's own cleanup takes up to 1.5 s
      await clickhouse.execute({ sql: `ALTER TABLE ${table} DROP PARTITION ID '${NO_PERIOD}'` });
      if ((await select(clickhouse, statements.replacedParts, params)).length === 0) return true;
      if (poll < polls) await wait(REPLACED_POLL_MS);
    }
    logger.info({ table, period: isoTime(period) }, 'rollup_waits_for_readers');
    return false;
  } finally {
    await clickhouse.execute({ sql: `ALTER TABLE ${table} RESET SETTING old_parts_lifetime` });
  }
}

/**
 * Returns batches with rows in a period that the ledger has not reached. A batch of an old period counts as finished:
 * its row of the ledger may have expired. `now`: unix seconds.
 */
export async function unfinishedBatches(
  reader: Reader,
  source: string,
  period: number,
  now: number,
): Promise<BatchEnd[]> {
  if (period <= now - (LEDGER_DAYS - 1) * DAY) return [];
  return await select<BatchEnd>(reader, statements.unfinishedBatches, { source, period }, LONG_READ_SETTINGS);
}

/** Reads what raw holds of the period. The horizon comes first, because retention writes it before it drops a day. */
async function look(reader: Reader, source: string, period: number) {
  const horizon = await readHorizon(reader, source, period);
  const [state] = await select<{ rows: number; fingerprint: string }>(
    reader,
    statements.periodState,
    { source, period },
    LONG_READ_SETTINGS,
  );
  return { horizon, ...state! };
}

/** Returns the side tables that builds of a period, or of any period, have or have left. */
export async function sideTables(
  clickhouse: Reader,
  { table }: Pick<RollupDefinition, 'table'>,
  period: number | '[0-9]+' = '[0-9]+',
): Promise<string[]> {
  const pattern = `^${table}_(build|repair)_${period}_[0-9a-f]{8}$`;
  return (await select<{ name: string }>(everywhere(clickhouse), statements.tablesLike, { pattern })).map(
    (t) => t.name,
  );
}

/** True if another service has failed in a build of the period: what it swapped in may lack rows. */
export async function isDamaged({ clickhouse }: Context, rollup: Rollup, period: number): Promise<boolean> {
  return (await sideTables(clickhouse, { table: tableName(rollup) }, period)).length > 0;
}

/**
 * Returns batches of which raw has fewer rows than the ledger counts, without those that retention may have dropped
 * rows of.
 */
async function lostBatches(reader: Reader, source: string, period: number): Promise<LostBatch[]> {
  const { since } = (await select<{ since: number }>(reader, statements.batchesSince, { source, period }))[0]!;
  const horizon = await readHorizon(reader, source, since);
  const lost = (until: number): Promise<LostBatch[]> => {
    const params = { source, period, horizon, since, until };
    return select<LostBatch>(reader, statements.lostBatches, params, LONG_READ_SETTINGS);
  };
  const short = await lost(period);
  // the rest of their rows may be of later periods
  return short.length === 0 ? short : await lost(END_OF_TIME);
}
