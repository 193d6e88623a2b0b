import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { select, type ClickHouse, type StatementSettings } from '../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { systemClock, type Clock } from '../common/clock.ts';
import { readSettings } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { createPopulation } from '../demo/population.ts';
import type { Traffic } from '../demo/traffic.ts';
import type { Record as KafkaRecord } from '../services/ingest/evaluate/record.ts';
import { readRollups } from '../services/rollup/period/catalogue.ts';
import type { Context } from '../services/rollup/period/context.ts';
import { tableName } from '../services/rollup/period/definition.ts';
import { admitNew } from '../services/rollup/history.ts';
import { createRollupMetrics } from '../services/rollup/period/metrics.ts';

export const SEED = 20260301;
export const PROJECTS = 5_000;
const ROWS_PER_INSERT = 1_000_000;
const BYTES_PER_INSERT = 256 * 1024 * 1024;
const MERGE_DEADLINE_MS = 60_000;

export interface Filled {
  readonly clickhouse: ClickHouse;
  /** references of the projects, the busiest first */
  readonly refs: readonly string[];
  /** unix milliseconds: nothing is newer */
  readonly now: number;
}

/** A statement of the benches. */
export function statement(name: string): string {
  return readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8');
}

/** Returns as many records as ingest takes from Kafka, of this moment, from an offset on. */
export function recordsOf(traffic: Traffic, first: number, count: number): KafkaRecord[] {
  return Array.from({ length: count }, (_, i) => ({
    offset: first + i,
    time: Date.now(),
    key: null,
    value: Buffer.from(traffic.next(Date.now() * 1000).json),
    headers: [],
  }));
}

/** What the rollup service works with, at full speed. */
export function contextOf(clickhouse: ClickHouse, clock: Clock): Context {
  return {
    clickhouse,
    settings: readSettings({ ROLLUP_BUILD_PERCENT: '100' }),
    logger: createLogger('warn'),
    metrics: createRollupMetrics(undefined),
    clock,
    engineClock: () => Promise.resolve(clock()),
    wait: () => Promise.resolve(),
  };
}

/**
 * Inserts `rows` events from number `first` on. The `total` events stand in the order of time over the seven days before
 * `now`, unix milliseconds. `refs`: the projects, the busiest first. `messages`: of the requests.
 */
export async function fill(
  clickhouse: ClickHouse,
  table: 'edge_logs' | 'function_edge_logs',
  {
    refs,
    now,
    total,
    first,
    rows,
    messages,
  }: {
    readonly refs: readonly string[];
    readonly now: number;
    readonly total: number;
    readonly first: number;
    readonly rows: number;
    readonly messages: readonly string[];
  },
  settings: StatementSettings = {},
): Promise<void> {
  await clickhouse.execute({
    sql: statement(`fill_${table}`),
    params: {
      ...(table === 'edge_logs' && { messages }),
      refs,
      seed: SEED,
      first,
      rows,
      total,
      now_micros: BigInt(now) * 1000n,
    },
    settings,
  });
}

/** Opens the engine in an empty folder, with all tables and rollups of nothing. */
export async function openEmpty(dataDir: string): Promise<Pick<Filled, 'clickhouse' | 'refs'>> {
  const logger = createLogger('warn');
  const clickhouse = await openEmbedded({ dataDir, logger });
  await migrate(clickhouse, logger);
  // as the rollup service starts: until then, each view that queries read looks first whether history is being built
  await admitNew(contextOf(clickhouse, systemClock));
  const population = createPopulation(SEED, PROJECTS, 0);
  return { clickhouse, refs: Array.from({ length: PROJECTS }, (_, rank) => population.project(rank).ref) };
}

/** Resolves when nothing merges, or after a minute. */
export async function untilMerged(clickhouse: ClickHouse): Promise<void> {
  const merging = async (): Promise<boolean> =>
    (await select<{ n: number }>(clickhouse, 'SELECT toFloat64(count()) AS n FROM system.merges'))[0]?.n !== 0;
  for (const until = Date.now() + MERGE_DEADLINE_MS; Date.now() < until && (await merging());) await sleep(100);
}

/**
 * Opens the engine in an empty folder and makes events of the last seven days inside of it, half edge requests, half
 * invocations, through the views that ingest writes through. `messages`: of the requests.
 */
export async function openFilled(
  dataDir: string,
  events: number,
  messages: readonly string[] = ['{}'],
): Promise<Filled> {
  const { clickhouse, refs } = await openEmpty(dataDir);
  const now = Date.now();
  const total = events / 2;
  const rowsPerInsert = Math.ceil(Math.min(ROWS_PER_INSERT, BYTES_PER_INSERT / messages[0]!.length));
  const settings = {
    deduplicate_blocks_in_dependent_materialized_views: 1,
    min_insert_block_size_rows: rowsPerInsert,
    min_insert_block_size_bytes: 0,
    min_insert_block_size_rows_for_materialized_views: 10_000_000,
    max_block_size: 65_536,
  };
  for (const table of ['edge_logs', 'function_edge_logs'] as const) {
    for (let first = 0; first < total; first += rowsPerInsert)
      await fill(
        clickhouse,
        table,
        { refs, now, total, first, rows: Math.min(rowsPerInsert, total - first), messages },
        settings,
      );
  }
  await untilMerged(clickhouse);
  await mergeClosedPeriods(clickhouse);
  return { clickhouse, refs, now };
}

/** Makes one part of each period but the newest, as the engine does by itself two hours after the last row of a period. */
async function mergeClosedPeriods(clickhouse: ClickHouse): Promise<void> {
  for (const rollup of await readRollups(clickhouse)) {
    const table = tableName(rollup);
    const periods = await select<{ period: number }>(
      clickhouse,
      `SELECT DISTINCT toUnixTimestamp(period) AS period FROM ${table} ORDER BY period DESC`,
    );
    for (const { period } of periods.slice(1))
      await clickhouse.execute({ sql: `OPTIMIZE TABLE ${table} PARTITION ID '${period}' FINAL` });
  }
}
