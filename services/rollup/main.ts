import { openClickHouse } from '../../common/clickhouse/open.ts';
import { runCommandLine } from '../../common/command/main.ts';
import { readSettings } from '../../common/config/settings.ts';
import { EXIT_CONFIG, StartError } from '../../common/errors.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { rollupCommand } from './commands/rollup.ts';
import { startRollup } from './rollup.ts';

let logger: Logger | undefined;

// `npm run rollup`: the service; with words behind it: a command, which needs no service of its own.
if (process.argv.length > 2) await runCommandLine(rollupCommand);
else {
  await runProcess(() => logger, async (add, stopping) => {
    const settings = readSettings();
    if (settings.CLICKHOUSE_URL === undefined) throw new StartError('npm run rollup needs CLICKHOUSE_URL; npm start runs everything in one process without it', { exitCode: EXIT_CONFIG });
    logger = createLogger(settings.LOG_LEVEL);
    const clickhouse = await openClickHouse(settings, logger, { signal: stopping });
    add({ name: 'clickhouse', stop: () => clickhouse.close() });
    add(await startRollup({ clickhouse, settings, logger, registry: createRegistry() }));
  });
}
