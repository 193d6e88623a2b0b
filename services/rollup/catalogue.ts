import { readFileSync } from 'node:fs';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';

/** Table `rollups` (clickhouse/migrations/0012): what there is and how far it reaches. Times are unix seconds. */
export interface Rollup {
  readonly name: string;
  readonly version: number;
  /** the raw table */
  readonly source: string;
  /** as queries name them */
  readonly tables: readonly string[];
  readonly state: 'new' | 'building' | 'serving' | 'retired';
  /** stamp from which its views have seen every batch */
  readonly complete_from: number;
  /** stamp down to which history is in it, 0 = all there is */
  readonly built_from: number;
  /** event time from which it equals the raw table, 0 = always */
  readonly covered_from: number;
  /** event time up to which its minutes have been compared with the raw table */
  readonly audited_to: number;
  /** buckets that differ from the raw table */
  readonly differences: number;
  readonly differs_from: number | null;
}

export interface View {
  readonly name: string;
  /** its SELECT as the engine prints it: names with their database */
  readonly select: string;
}

export interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
}

const sql = (name: string): string => readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');

export const statements = {
  rollups: sql('rollups'),
  writeRollup: sql('write_rollup'),
  cuts: sql('cuts'),
  writeCut: sql('write_cut'),
  views: sql('views'),
  columns: sql('columns'),
  partitions: sql('partitions'),
  writeExpiredDay: sql('write_expired_day'),
  leftTables: sql('left_tables'),
  publicViews: sql('public_views'),
  countJudged: sql('count_judged'),
  unfinishedBatches: sql('unfinished_batches'),
  tableSizes: sql('table_sizes'),
  ledgerShares: sql('ledger_shares'),
} as const;

/** Every rollup and version, retired ones too, ascending. */
export async function readRollups(clickhouse: ClickHouse): Promise<Rollup[]> {
  return await select<Rollup>(clickhouse, statements.rollups);
}

/** Replaces the row of its name and version, whole: what it does not know of another writer is lost. */
export async function writeRollup(clickhouse: ClickHouse, rollup: Rollup): Promise<void> {
  await clickhouse.execute({ sql: statements.writeRollup, params: { ...rollup }, settings: { async_insert: 0 } });
}

/** Instants at which a period begins besides midnight. */
export async function readCuts(clickhouse: ClickHouse): Promise<number[]> {
  return (await select<{ at: number }>(clickhouse, statements.cuts)).map((row) => row.at);
}

/** `at`: unix seconds, ahead of every clock that ingest runs by. */
export async function writeCut(clickhouse: ClickHouse, at: number): Promise<void> {
  await clickhouse.execute({ sql: statements.writeCut, params: { at }, settings: { async_insert: 0 } });
}
