import { openClickHouse } from '../../common/clickhouse/open.ts';
import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { runCommandLine } from '../../common/command/run-command.ts';
import { isConfigCheck, readServiceSettings } from '../../common/config/start.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { kafkaSecurity } from '../../common/kafka/security.ts';
import { runProcess } from '../../common/lifecycle/run.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { serveMetrics } from '../../common/metrics-server.ts';
import { createRegistry } from '../../common/metrics.ts';
import { ingestCommand } from './commands/ingest.ts';
import { consumerCheck, startIngest, type RunningIngest } from './service.ts';

let logger: Logger | undefined;

// One service of a cluster: Kafka → ClickHouse server. The tables are made by the rollup service. With words behind it:
// a command, which needs no service of its own.
if (process.argv.length > 2 && !isConfigCheck()) await runCommandLine(ingestCommand, process.argv.slice(2));
else {
  await runProcess(
    () => logger,
    async (add, stopping) => {
      const settings = readServiceSettings('ingest', ['KAFKA_BROKERS', 'CLICKHOUSE_URL']);
      logger = createLogger(settings.LOG_LEVEL);
      const registry = createRegistry();
      let clickhouse: ClickHouse | undefined;
      let ingest: RunningIngest | undefined;
      if (settings.METRICS_PORT !== undefined) {
        add(
          await serveMetrics({
            registry,
            host: settings.HOST,
            port: settings.METRICS_PORT,
            checks: {
              clickhouse: async () =>
                clickhouse === undefined ? 'does not answer' : await clickhouse.ping().then(() => undefined),
              consumer: consumerCheck(() => ingest),
            },
          }),
        );
      }
      const opened = await openClickHouse(settings, logger, { signal: stopping, service: 'ingest' });
      clickhouse = opened;
      add({ name: 'clickhouse', stop: () => opened.close() });
      await waitForSchema(opened, logger, { signal: stopping });
      const kafka = createKafka({
        brokers: settings.KAFKA_BROKERS,
        clientId: 'sluice-ingest',
        logger,
        maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
        ...kafkaSecurity(settings),
      });
      ingest = await startIngest({ clickhouse: opened, kafka, settings, logger, registry });
      add(ingest);
    },
  );
}
