import { setTimeout as sleep } from 'node:timers/promises';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Settings } from '../../common/config/settings.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { engineClock } from '../../services/rollup/period/catalogue.ts';
import type { Context } from '../../services/rollup/period/context.ts';
import { createRollupMetrics } from '../../services/rollup/period/metrics.ts';
import { readOpenRepairs, repairOpen } from '../../services/rollup/repairs.ts';

const LOOK_MS = 250;

interface RepairOptions {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
}

/**
 * Does the repairs that are open, which a recovery requests, without a rollup service or beside one, which looks for
 * them every 5 s. Two that do the same repair at once do each other no harm (services/rollup/period/build.ts).
 */
export async function repairNow({ clickhouse, settings, logger }: RepairOptions): Promise<void> {
  const context: Context = {
    clickhouse,
    settings,
    logger,
    metrics: createRollupMetrics(createRegistry()),
    clock: Date.now,
    engineClock: () => engineClock(clickhouse),
    wait: (ms) => sleep(ms),
  };
  try {
    if ((await readOpenRepairs(clickhouse)).length > 0) await repairOpen(context);
  } catch (error) {
    if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
  }
}

/** Does repairs soon after they are requested, in a process whose engine nobody else can reach. */
export function startRepairs(options: RepairOptions): Component {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    for (;;) {
      await sleep(LOOK_MS, undefined, { signal: stopping.signal });
      await repairNow(options);
    }
  };
  const failed = run().catch((error: unknown) => {
    if (!stopping.signal.aborted) throw error;
  });
  failed.catch(() => {});
  return {
    name: 'repairs',
    failed,
    stop: () => {
      stopping.abort();
      return Promise.resolve();
    },
  };
}
