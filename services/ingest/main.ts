import { openClickHouse } from '../../common/clickhouse/open.ts';
import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { readSettings } from '../../common/config/settings.ts';
import { EXIT_CONFIG, StartError } from '../../common/errors.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest } from './ingest.ts';

let logger: Logger | undefined;

// One service of a cluster: Kafka → ClickHouse server. The tables are made by the rollup service.
await runProcess(() => logger, async (add, stopping) => {
  const settings = readSettings();
  if (settings.KAFKA_BROKERS === undefined || settings.CLICKHOUSE_URL === undefined) {
    throw new StartError('npm run ingest needs KAFKA_BROKERS and CLICKHOUSE_URL; npm start runs everything in one process without them', { exitCode: EXIT_CONFIG });
  }
  logger = createLogger(settings.LOG_LEVEL);
  const clickhouse = await openClickHouse(settings, logger, { signal: stopping });
  add({ name: 'clickhouse', stop: () => clickhouse.close() });
  await waitForSchema(clickhouse, logger, { signal: stopping });
  const kafka = createKafka({ brokers: settings.KAFKA_BROKERS, clientId: 'sluice-ingest', logger, maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES });
  add(await startIngest({ clickhouse, kafka, settings, logger, registry: createRegistry() }));
});
