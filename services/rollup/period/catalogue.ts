import { readFileSync } from 'node:fs';
import { fresh, select, type ClickHouse, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { WRITE_SETTINGS } from './statement-settings.ts';
import { DAY } from './time.ts';

/** A row of table `rollups` (clickhouse/migrations/0017). Times are unix seconds. */
export interface Rollup {
  readonly name: string;
  readonly version: number;
  /** the raw table */
  readonly source: string;
  /** its widest bucket, seconds */
  readonly widest: number;
  /** the widest bucket that a build makes from raw, seconds; it sums wider ones from these */
  readonly from_raw: number;
  readonly state: 'new' | 'building' | 'serving' | 'retired';
  /** periods that are not built yet, ascending */
  readonly pending: readonly number[];
}

const sql = (name: string): string => readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');

export const statements = {
  rollups: sql('rollups'),
  writeRollup: sql('write_rollup'),
  tables: sql('tables'),
  tablesLike: sql('tables_like'),
  columns: sql('columns'),
  partitions: sql('partitions'),
  replacedParts: sql('replaced_parts'),
  replicas: sql('replicas'),
  periodsOf: sql('periods_of'),
  closedPeriods: sql('closed_periods'),
  finePeriods: sql('fine_periods'),
  runningInserts: sql('running_inserts'),
  runningFills: sql('running_fills'),
  newestPeriod: sql('newest_period'),
  batchesSince: sql('batches_since'),
  beginPeriod: sql('begin_period'),
  horizon: sql('horizon'),
  engineClock: sql('engine_clock'),
  periodState: sql('period_state'),
  unfinishedBatches: sql('unfinished_batches'),
  lostBatches: sql('lost_batches'),
  affectedPeriods: sql('affected_periods'),
  openRepairs: sql('open_repairs'),
  writeRepair: sql('write_repair'),
  writeExpiredDay: sql('write_expired_day'),
  tableSizes: sql('table_sizes'),
  ledgerShares: sql('ledger_shares'),
} as const;

/** Returns the time by ClickHouse, unix milliseconds. */
export async function engineClock(clickhouse: Reader): Promise<number> {
  return (await select<{ now: number }>(clickhouse, statements.engineClock))[0]!.now;
}

/** Returns every rollup and version, retired ones too, ascending. */
export async function readRollups(clickhouse: Reader): Promise<Rollup[]> {
  return await select<Rollup>(fresh(clickhouse, ['rollups']), statements.rollups);
}

/** Returns the rollup as the catalogue has it now. Undefined if the catalogue does not know it. */
export async function readRollup(
  clickhouse: Reader,
  { name, version }: Pick<Rollup, 'name' | 'version'>,
): Promise<Rollup | undefined> {
  return (await readRollups(clickhouse)).find((r) => r.name === name && r.version === version);
}

/**
 * Returns the event time before which retention may have dropped rows of a period of a raw table (of any period without
 * one), 0 = none. Rows of a period that began after a drop were stored later. A day more, because a period may begin
 * between the record of a drop and the drop.
 */
export async function readHorizon(reader: Reader, source: string, period = 0): Promise<number> {
  const since = Math.max(0, period - DAY);
  return (await select<{ horizon: number }>(reader, statements.horizon, { source, since }))[0]!.horizon;
}

const RANKS = { new: 0, building: 1, serving: 2, retired: 3 } as const;
const STEPS_OF_STATE = 1_000_000;

/**
 * Writes a row with a more advanced state than the former one. A row of a delayed service, which is not more advanced,
 * changes nothing.
 */
export async function writeRollup(clickhouse: ClickHouse, rollup: Rollup): Promise<void> {
  const progress = RANKS[rollup.state] * STEPS_OF_STATE + STEPS_OF_STATE - 1 - rollup.pending.length;
  await clickhouse.execute({ sql: statements.writeRollup, params: { ...rollup, progress }, settings: WRITE_SETTINGS });
}

/** Returns the complete version: the newest one that serves. */
export function servingVersion(rollups: readonly Rollup[], name: string): Rollup | undefined {
  return rollups.findLast((r) => r.name === name && r.state === 'serving');
}

/**
 * Returns what `work` on a rollup returns. Undefined if it failed and a newer version serves: that one retires this
 * version, whose table and view then go, at any moment.
 */
export async function unlessReplaced<T>(
  { clickhouse }: { readonly clickhouse: Reader },
  { name, version }: Pick<Rollup, 'name' | 'version'>,
  work: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    const serving = servingVersion(await readRollups(clickhouse), name);
    if (serving === undefined || serving.version <= version) throw error;
    return undefined;
  }
}
