import { setTimeout as sleep } from 'node:timers/promises';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Settings } from '../../common/config/settings.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { engineClock } from '../../services/rollup/catalogue.ts';
import type { Context } from '../../services/rollup/context.ts';
import { createRollupMetrics } from '../../services/rollup/metrics.ts';
import { readOpenRepairs, repairOpen } from '../../services/rollup/repairs.ts';

const LOOK_MS = 250;

/**
 * Does repairs soon after they are requested, beside the rollup service, which looks for them every 5 s. Two that do the
 * same repair at once do each other no harm (services/rollup/build.ts).
 */
export function startRepairs({
  clickhouse,
  settings,
  logger,
}: {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
}): Component {
  const stopping = new AbortController();
  const context: Context = {
    clickhouse,
    settings,
    logger,
    metrics: createRollupMetrics(createRegistry()),
    clock: Date.now,
    engineClock: () => engineClock(clickhouse),
    wait: (ms) => sleep(ms, undefined, { signal: stopping.signal }),
  };
  const run = async (): Promise<void> => {
    for (;;) {
      await context.wait(LOOK_MS);
      try {
        if ((await readOpenRepairs(clickhouse)).length > 0) await repairOpen(context);
      } catch (error) {
        if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
      }
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
