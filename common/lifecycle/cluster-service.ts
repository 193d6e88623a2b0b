import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import { openClickHouse } from '../clickhouse/open.ts';
import type { Command } from '../command/command.ts';
import { runCommandLine } from '../command/run-command.ts';
import type { SettingName } from '../config/settings.ts';
import { isConfigCheck } from '../config/start.ts';
import { serveMetrics } from '../metrics-server.ts';
import type { Checks } from '../readiness.ts';
import type { Component } from './run.ts';
import { runService, type ServiceContext } from './run-service.ts';

/**
 * Runs a service of a cluster that has no HTTP interface but METRICS_PORT: opens the ClickHouse server, then starts the
 * component. With words on the command line, runs the service's command instead.
 */
export async function runClusterService<Args, Result, Needed extends SettingName>(
  service: 'ingest' | 'rollup',
  command: Command<Args, Result>,
  needs: readonly Needed[],
  checks: Checks,
  start: (context: ServiceContext<Needed> & { readonly clickhouse: ClickHouse }) => Promise<Component>,
): Promise<void> {
  if (process.argv.length > 2 && !isConfigCheck()) return await runCommandLine(command, process.argv.slice(2));
  return await runService(service, needs, async (context) => {
    const { add, settings, logger, registry, stopping } = context;
    let clickhouse: ClickHouse | undefined;
    if (settings.METRICS_PORT !== undefined) {
      add(
        await serveMetrics(registry, settings.HOST, settings.METRICS_PORT, {
          clickhouse: async () =>
            clickhouse === undefined ? 'does not answer' : await clickhouse.ping().then(() => undefined),
          ...checks,
        }),
      );
    }
    const opened = await openClickHouse(settings, logger, { signal: stopping, service });
    clickhouse = opened;
    add({ name: 'clickhouse', stop: () => opened.close() });
    add(await start({ ...context, clickhouse }));
  });
}
