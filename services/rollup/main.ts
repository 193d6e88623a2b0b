import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { runCommandLine } from '../../common/command/run-command.ts';
import { isConfigCheck, readServiceSettings } from '../../common/config/start.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { serveMetrics } from '../../common/metrics-server.ts';
import { createRegistry } from '../../common/metrics.ts';
import { rollupNote } from './readiness.ts';
import { rollupCommand } from './commands/rollup.ts';
import { startRollup } from './service.ts';

let logger: Logger | undefined;

// `npm run rollup`: the service; with arguments a command, which needs no service of its own.
if (process.argv.length > 2 && !isConfigCheck()) await runCommandLine(rollupCommand, process.argv.slice(2));
else {
  await runProcess(
    () => logger,
    async (add, stopping) => {
      const settings = readServiceSettings('rollup', ['CLICKHOUSE_URL']);
      logger = createLogger(settings.LOG_LEVEL);
      const registry = createRegistry();
      let clickhouse: ClickHouse | undefined;
      let isMigrated = false;
      if (settings.METRICS_PORT !== undefined) {
        add(
          await serveMetrics({
            registry,
            host: settings.HOST,
            port: settings.METRICS_PORT,
            checks: {
              clickhouse: async () =>
                clickhouse === undefined ? 'does not answer' : await clickhouse.ping().then(() => undefined),
              rollups: async () =>
                clickhouse === undefined || !isMigrated ? 'do not exist yet' : await rollupNote(clickhouse),
            },
          }),
        );
      }
      const opened = await openClickHouse(settings, logger, { signal: stopping, service: 'rollup' });
      clickhouse = opened;
      add({ name: 'clickhouse', stop: () => opened.close() });
      add(await startRollup({ clickhouse: opened, settings, logger, registry }));
      isMigrated = true;
    },
  );
}
