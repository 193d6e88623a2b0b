import { setTimeout as sleep } from 'node:timers/promises';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { loadMigrations, migrate, type Migration } from '../../common/clickhouse/migrations.ts';
import { systemClock, type Clock } from '../../common/clock.ts';
import { StartError } from '../../common/errors.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Registry } from '../../common/metrics.ts';
import { createAudit } from './audit.ts';
import { engineClock } from './period/catalogue.ts';
import { createRollupMetrics } from './period/metrics.ts';
import { updateTableMetrics } from './table-metrics.ts';
import { beginToday } from './period/periods.ts';
import { repairOpen } from './repairs.ts';
import { dropExpired } from './retention.ts';
import type { Context } from './period/context.ts';
import { admitNew, nextStep, publish } from './history.ts';

export interface RollupOptions extends Pick<Context, 'clickhouse' | 'settings' | 'logger'> {
  readonly registry: Registry;
  readonly clock?: Clock;
  readonly migrations?: readonly Migration[];
}

export type RollupService = Required<Component>;

/**
 * Parts hold more than the minutes that are compared, so shorter intervals read the same rows more often. Hourly
 * comparisons take 4 us of CPU an edge event, where ingest takes 35 to 40 (bench/README.md).
 */
const AUDIT_EVERY_MS = 3_600_000;
const CLUSTER_EVERY_MS = 60_000;
/** History is built for this long before the other jobs of its list have their turn. */
const HISTORY_TURN_MS = 60_000;
const REPAIR_EVERY_MS = 5_000;
/** Only another service that publishes an old state makes it necessary. */
const PUBLISH_EVERY_MS = 15_000;
const PERIOD_EVERY_MS = 1_000;
const TABLE_METRICS_EVERY_MS = 30_000;
const RETENTION_EVERY_MS = 3_600_000;
const UNAVAILABLE_RETRY_MS = 5_000;

/**
 * Starts the owner of the schema and of all rollups. It migrates and lets queries read what is complete, and raw for
 * the rest (then it resolves). It continues with repairs, history, audit and retention. Throws StartError.
 */
export async function startRollup({
  clickhouse,
  settings,
  logger,
  registry,
  clock = systemClock,
  migrations = loadMigrations(),
}: RollupOptions): Promise<RollupService> {
  const stopping = new AbortController();
  const context: Context = {
    clickhouse,
    settings,
    logger,
    metrics: createRollupMetrics(registry),
    clock,
    engineClock: () => engineClock(clickhouse),
    wait: (ms) => sleep(ms, undefined, { signal: stopping.signal }),
  };
  if (settings.RAW_RETENTION_DAYS < FULL_TIER_DAYS)
    logger.warn({ RAW_RETENTION_DAYS: settings.RAW_RETENTION_DAYS }, 'retention_below_tiers');
  try {
    // before anything is created: a node without tables may be a new replica of those that others have
    await clickhouse.cluster?.complete();
    // of a cluster that had one shard
    await clickhouse.cluster?.distribute?.();
    await migrate(clickhouse, logger, migrations, settings.FSYNC);
    await beginToday(context);
    await admitNew(context);
  } catch (error) {
    throw inOneLine(error, clickhouse.where);
  }
  const failed = run(context).catch((error: unknown) => {
    if (!stopping.signal.aborted) throw error;
  });
  failed.catch(() => {});
  return {
    name: 'rollup',
    failed,
    // it does not wait for a running statement: the engine ends it, and it may be repeated at any point
    stop: () => {
      stopping.abort();
      return Promise.resolve();
    },
  };
}

/**
 * Returns what a start reports of a failed statement: one line if the disk of ClickHouse is full, else the
 * error itself.
 */
function inOneLine(error: unknown, where: string): unknown {
  if (!(error instanceof ClickHouseError) || error.codeName !== 'NOT_ENOUGH_SPACE') return error;
  return new StartError(
    `ClickHouse (${where}) has too little free space on its disk, where it keeps a reserve; free some as docs/runbook.md says (A full disk of ClickHouse)`,
    { cause: error },
  );
}

/** The days that the tiers PAYG and ENTERPRISE are promised. */
const FULL_TIER_DAYS = 90;

interface Job {
  readonly work: () => Promise<unknown>;
  readonly everyMs: number;
}

/**
 * Runs lists of jobs side by side, each job when it is due. A build of history may take hours: what must not wait for
 * it is in another list. A repair and a build of history on the same rollup do each other no harm (build.ts).
 */
async function run(context: Context): Promise<never> {
  let today = 0;
  const urgent: Job[] = [
    {
      everyMs: PERIOD_EVERY_MS,
      work: async () => {
        today = await beginToday(context, today);
      },
    },
    { everyMs: REPAIR_EVERY_MS, work: () => repairOpen(context) },
    // another service may have published an old state of the catalogue
    { everyMs: PUBLISH_EVERY_MS, work: () => publish(context) },
  ];
  const watching: Job = { everyMs: TABLE_METRICS_EVERY_MS, work: () => updateTableMetrics(context) };
  const audit: Job = { everyMs: AUDIT_EVERY_MS, work: createAudit(context) };
  // History retires versions: during a round of it, nothing else creates, or drops from, what it removes. Between the
  // rounds of a retirement that waits, the others have their turn: the next round trusts nothing that they may undo.
  const rest: Job[] = [
    {
      everyMs: CLUSTER_EVERY_MS,
      work: async () => {
        await context.clickhouse.cluster?.complete();
        await context.clickhouse.cluster?.distribute?.();
      },
    },
    { everyMs: REPAIR_EVERY_MS, work: () => buildHistory(context) },
    { everyMs: RETENTION_EVERY_MS, work: () => dropExpired(context) },
  ];
  await Promise.all([urgent, [watching], [audit], rest].map((jobs) => repeat(context, jobs)));
  throw new Error('the jobs of the rollup service never end');
}

/** Takes as many steps as possible now, and checks the other jobs after a minute. */
async function buildHistory(context: Context): Promise<void> {
  const until = performance.now() + HISTORY_TURN_MS;
  while ((await nextStep(context)) === 0 && performance.now() < until);
}

/** Runs each job when it is due. A job that fails because the engine is unavailable is retried. */
async function repeat({ logger, wait }: Context, jobs: readonly Job[]): Promise<never> {
  const due = jobs.map((job) => ({ ...job, at: 0 }));
  for (;;) {
    for (const job of due.filter((j) => j.at <= performance.now())) {
      try {
        await job.work();
        job.at = performance.now() + job.everyMs;
      } catch (error) {
        if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
        logger.warn({ err: error, retry_in_ms: UNAVAILABLE_RETRY_MS }, 'clickhouse_unavailable');
        job.at = performance.now() + UNAVAILABLE_RETRY_MS;
      }
    }
    await wait(Math.max(0, Math.min(...due.map((j) => j.at)) - performance.now()));
  }
}
