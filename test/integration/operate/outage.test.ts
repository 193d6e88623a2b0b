import { afterAll, beforeAll, expect, test } from 'vitest';
import { createKafka } from '../../../common/kafka/client.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { watchReadiness } from '../../../common/readiness.ts';
import { consumerCheck, startIngest, type RunningIngest } from '../../../services/ingest/service.ts';
import { createWorld, type World } from '../../faults/ledger.ts';
import { openTestClickHouse, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { startOwnBroker, withAdmin, type OwnBroker } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: while Kafka is unreachable, ingest shows the series that SluiceNotConsuming looks at, within the time that
// the runbook names, and shows when it is over.

let broker: OwnBroker;
let engine: TestClickHouse;
let world: World;
let ingest: RunningIngest;
const registry = createRegistry();

beforeAll(async () => {
  [broker, engine] = await Promise.all([startOwnBroker(), openTestClickHouse()]);
  world = await createWorld({ brokers: broker.brokers });
  const kafka = createKafka({
    brokers: broker.brokers,
    clientId: 'outage',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  ingest = await startIngest({
    clickhouse: engine.clickhouse,
    kafka,
    settings: world.settings,
    logger: testLogger,
    registry,
  });
  watchReadiness(registry, { consumer: consumerCheck(() => ingest) });
});
afterAll(async () => {
  await ingest.stop();
  await engine.close();
  await broker.stop();
});

async function valueOf(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number | undefined> {
  const { values } = await registry.getSingleMetric(name)!.get();
  return values.find((v) => Object.entries(labels).every(([label, value]) => v.labels[label] === value))?.value;
}

test('the check of the consumer fails within half a minute of the end of the broker, and passes again after its return', async () => {
  await world.produce({ edge_logs: 100 });
  await world.finished(engine.clickhouse);
  expect(await valueOf('sluice_ready', { check: 'consumer' })).toBe(1);
  expect(await valueOf('sluice_ingest_partitions')).toBeGreaterThan(0);
  expect(await valueOf('sluice_ingest_lag_records')).toBeDefined();

  await broker.kill();
  await waitFor(async () => (await valueOf('sluice_ready', { check: 'consumer' })) === 0, 30_000, 'the check fails');
  expect(await valueOf('sluice_ingest_partitions')).toBe(0);
  expect(await valueOf('sluice_ingest_lag_records')).toBeUndefined();

  await broker.restart();
  await waitFor(() => withAdmin((admin) => admin.listTopics(), broker.brokers), 30_000, 'the broker answers');
  await waitFor(async () => (await valueOf('sluice_ready', { check: 'consumer' })) === 1, 60_000, 'the check passes');
  await world.produce({ edge_logs: 100 });
  await world.finished(engine.clickhouse, 45_000);
});
