import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { loadMigrations, migrate, type Migration } from '../../common/clickhouse/migrations.ts';
import { checkRights } from '../../common/clickhouse/rights.ts';
import { systemClock, type Clock } from '../../common/clock.ts';
import type { Part } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { createAudit } from './audit.ts';
import { createRollupMetrics } from './metrics.ts';
import { observe } from './observe.ts';
import { dropExpired, dropLeft } from './retention.ts';
import { admitNew, nextStep } from './versions.ts';
import { DEFAULT_TIMING, type Timing, type Workshop } from './workshop.ts';

export interface RollupOptions {
  readonly clickhouse: ClickHouse;
  readonly settings: Workshop['settings'];
  readonly logger: Logger;
  readonly registry: Registry;
  readonly clock?: Clock;
  readonly timing?: Timing;
  readonly migrations?: readonly Migration[];
}

export interface RollupService extends Part {
  readonly failed: Promise<never>;
}

const AUDIT_EVERY_MS = 60_000;
const OBSERVE_EVERY_MS = 30_000;
const RETENTION_EVERY_MS = 3_600_000;
const AWAY_MS = 5_000;

/**
 * The owner of the schema and of everything that stands in rollups: migrates, lets queries read what is complete and raw for the rest (resolves then),
 * and goes on with history, audit and retention, one thing at a time. Throws StartError.
 */
export async function startRollup({ clickhouse, settings, logger, registry, clock = systemClock, timing = DEFAULT_TIMING, migrations = loadMigrations() }: RollupOptions): Promise<RollupService> {
  const stopping = new AbortController();
  const workshop: Workshop = { clickhouse, settings, logger, metrics: createRollupMetrics(registry), clock, timing, wait: waitUnless(stopping.signal) };
  if (settings.RAW_RETENTION_DAYS < FULL_TIER_DAYS) logger.warn({ RAW_RETENTION_DAYS: settings.RAW_RETENTION_DAYS }, 'retention_below_tiers');
  await checkRights(clickhouse, 'rollup');
  await migrate(clickhouse, logger, migrations, settings.FSYNC);
  await admitNew(workshop);
  const running = run(workshop);
  const failed = running.then(() => new Promise<never>(() => {}), (error: unknown) => {
    if (stopping.signal.aborted) return new Promise<never>(() => {});
    throw error;
  });
  failed.catch(() => {});
  return {
    name: 'rollup',
    failed,
    // a statement under way is not waited for: it is ended with the engine, and may be repeated at any point
    stop: () => {
      stopping.abort(new Error('the service stops'));
      return Promise.resolve();
    },
  };
}

/** What the tiers PAYG and ENTERPRISE are promised, days. */
const FULL_TIER_DAYS = 90;

/** History, audit and retention, each when it is due; what fails because the engine is away is tried again. */
async function run(workshop: Workshop): Promise<never> {
  const { logger, wait } = workshop;
  const audit = createAudit(workshop);
  const jobs: { at: number; readonly work: () => Promise<number> }[] = [
    {
      at: 0,
      work: async () => {
        await observe(workshop);
        return OBSERVE_EVERY_MS;
      },
    },
    { at: 0, work: async () => (await nextStep(workshop)) ?? Number.POSITIVE_INFINITY },
    {
      at: 0,
      work: async () => {
        await audit.round();
        return AUDIT_EVERY_MS;
      },
    },
    {
      at: 0,
      work: async () => {
        await dropExpired(workshop);
        await dropLeft(workshop);
        return RETENTION_EVERY_MS;
      },
    },
  ];
  for (;;) {
    for (const job of jobs.filter((j) => j.at <= performance.now())) {
      try {
        job.at = performance.now() + (await job.work());
      } catch (error) {
        if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
        logger.warn({ err: error, retry_in_ms: AWAY_MS }, 'rollup_store_away');
        job.at = performance.now() + AWAY_MS;
      }
    }
    await wait(Math.max(0, Math.min(...jobs.map((j) => j.at)) - performance.now()));
  }
}

/** A sleep that rejects when the signal fires. */
function waitUnless(signal: AbortSignal): (ms: number) => Promise<void> {
  return (ms) => new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
