import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import { openClickHouse } from '../clickhouse/open.ts';
import type { Command } from '../command/command.ts';
import { runCommandLine } from '../command/run-command.ts';
import type { SettingName, Settings } from '../config/settings.ts';
import { isConfigCheck, readServiceSettings } from '../config/start.ts';
import { createLogger, type Logger } from '../logger.ts';
import { serveMetrics } from '../metrics-server.ts';
import { createRegistry, type Registry } from '../metrics.ts';
import type { Check } from '../readiness.ts';
import { runProcess, type Component } from './run.ts';

interface Context<Needed extends SettingName> {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings & { readonly [K in Needed]: NonNullable<Settings[K]> };
  readonly logger: Logger;
  readonly registry: Registry;
  /** fires at SIGTERM */
  readonly stopping: AbortSignal;
}

/**
 * Runs a service of a cluster that has no HTTP interface but METRICS_PORT: opens the ClickHouse server, then starts the
 * component. With words on the command line, runs the service's command instead.
 */
export async function runClusterService<Args, Result, Needed extends SettingName>(
  service: 'ingest' | 'rollup',
  command: Command<Args, Result>,
  needs: readonly Needed[],
  checks: Readonly<Record<string, (clickhouse: ClickHouse | undefined) => ReturnType<Check>>>,
  start: (context: Context<Needed>) => Promise<Component>,
): Promise<void> {
  if (process.argv.length > 2 && !isConfigCheck()) return await runCommandLine(command, process.argv.slice(2));
  let logger: Logger | undefined;
  return await runProcess(
    () => logger,
    async (add, stopping) => {
      const settings = readServiceSettings(service, needs);
      logger = createLogger(settings.LOG_LEVEL);
      const registry = createRegistry();
      let clickhouse: ClickHouse | undefined;
      if (settings.METRICS_PORT !== undefined) {
        add(
          await serveMetrics(registry, settings.HOST, settings.METRICS_PORT, {
            clickhouse: async () =>
              clickhouse === undefined ? 'does not answer' : await clickhouse.ping().then(() => undefined),
            ...Object.fromEntries(Object.entries(checks).map(([name, check]) => [name, () => check(clickhouse)])),
          }),
        );
      }
      const opened = await openClickHouse(settings, logger, { signal: stopping, service });
      clickhouse = opened;
      add({ name: 'clickhouse', stop: () => opened.close() });
      add(await start({ clickhouse, settings, logger, registry, stopping }));
    },
  );
}
