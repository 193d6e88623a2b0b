import { waitForSchema } from '../../common/clickhouse/migrations.ts';
import { kafkaFromSettings } from '../../common/kafka/from-settings.ts';
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
    const kafka = kafkaFromSettings(settings, settings.KAFKA_BROKERS, 'sluice-ingest', logger);
    ingest = await startIngest({ clickhouse, kafka, settings, logger, registry, signal: stopping });
    return ingest;
  },
);
