import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { readSettings } from '../../common/config/settings.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startQuery } from './start.ts';

/** The query service alone, against CLICKHOUSE_URL. The rollup service makes the schema; until it is there, callers get 503. */
let logger: Logger | undefined;

await runProcess(() => logger, async (add, stopping) => {
  const settings = readSettings();
  const log = createLogger(settings.LOG_LEVEL);
  logger = log;
  const clickhouse = await openClickHouse(settings, log);
  add({ name: 'clickhouse', stop: () => clickhouse.close() });

  const query = await startQuery({ clickhouse, settings, logger: log, registry: createRegistry(), schema: waitForSchema(clickhouse, log, { signal: stopping }) });
  add(query);
  if (query.madeKey !== undefined) process.stdout.write(`key (shown this once): ${query.madeKey}\n`);
  process.stdout.write(`listening on ${query.address}\n`);
});
