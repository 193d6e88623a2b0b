import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { kafkaSecurity } from '../../common/kafka/security.ts';
import { runClusterService } from '../../common/lifecycle/cluster-service.ts';
import { ingestCommand } from './commands/ingest.ts';
import { consumerCheck, startIngest, type RunningIngest } from './service.ts';

let ingest: RunningIngest | undefined;

// `npm run ingest`: Kafka → ClickHouse server. The rollup service creates the tables.
await runClusterService(
  'ingest',
  ingestCommand,
  ['KAFKA_BROKERS', 'CLICKHOUSE_URL'],
  { consumer: consumerCheck(() => ingest) },
  async ({ clickhouse, settings, logger, registry, stopping }) => {
    await waitForSchema(clickhouse, logger, { signal: stopping });
    const kafka = createKafka({
      brokers: settings.KAFKA_BROKERS,
      clientId: 'sluice-ingest',
      logger,
      maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
      ...kafkaSecurity(settings),
    });
    ingest = await startIngest({ clickhouse, kafka, settings, logger, registry });
    return ingest;
  },
);
