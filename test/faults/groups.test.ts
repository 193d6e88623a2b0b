import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createKafka, type KafkaClient } from '../../common/kafka/client.ts';
import { createLogger } from '../../common/logger.ts';
import { createRegistry, type Registry } from '../../common/metrics.ts';
import { readinessOf } from '../../common/readiness.ts';
import { consumerCheck, startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { openTestEmbedded, testLogger, type TestClickHouse } from '../harness/clickhouse.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: one consumer group at a time writes a partition. Another group waits while the first has members, says so
// in the log, on /readyz and by a metric, and takes over within a minute of the end of the first. A group that takes
// over too early doubles nothing.

const METRIC = 'sluice_ingest_partition_waits_for_group';

let engine: TestClickHouse;
let rollup: RollupService;
const running: RunningIngest[] = [];
beforeAll(async () => {
  engine = await openTestEmbedded();
  const { clickhouse } = engine;
  await migrate(clickhouse, testLogger);
  // Before there are events: else it builds their history, for half of the time only, and the repairs wait for that.
  rollup = await startRollup({
    clickhouse,
    settings: readSettings({}),
    logger: testLogger,
    registry: createRegistry(),
  });
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((ingest) => ingest.stop()));
});
afterAll(async () => {
  await rollup.stop();
  await engine.close();
});

interface Group {
  readonly ingest: RunningIngest;
  readonly registry: Registry;
  logged(event: string): Record<string, unknown>[];
}

/** `overlooks`: finds no members in any other group, and so takes their partitions. */
async function start(
  world: World,
  groupId: string,
  { clickhouse = engine.clickhouse, overlooks = false }: { clickhouse?: ClickHouse; overlooks?: boolean } = {},
): Promise<Group> {
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const registry = createRegistry();
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'groups',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  const ingest = await startIngest({
    clickhouse,
    kafka: overlooks ? withoutMembers(kafka) : kafka,
    settings: { ...world.settings, KAFKA_GROUP_ID: groupId },
    logger,
    registry,
    sessionTimeoutMs: 6_000,
  });
  running.push(ingest);
  return {
    ingest,
    registry,
    logged: (event) =>
      lines.filter((line) => line.includes(`"${event}"`)).map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

function withoutMembers(kafka: KafkaClient): KafkaClient {
  return {
    ...kafka,
    admin: () => {
      const admin = kafka.admin();
      return {
        ...admin,
        describeGroups: async (ids) => {
          const { groups } = await admin.describeGroups(ids);
          return { groups: groups.map((group) => ({ ...group, members: [] })) };
        },
      };
    },
  };
}

async function stop({ ingest }: Group): Promise<void> {
  running.splice(running.indexOf(ingest), 1);
  await ingest.stop();
}

/** Which groups wrote this world's batches. */
async function writers(world: World): Promise<string[]> {
  const found = await select<{ writer: string }>(
    engine.clickhouse,
    'SELECT DISTINCT consumer_group AS writer FROM batches WHERE endsWith(topic, {world:String}) ORDER BY writer',
    { world: world.groupId },
  );
  return found.map(({ writer }) => writer);
}

async function waitingPartitions({ registry }: Group): Promise<number> {
  const [metric] = (await registry.getMetricsAsJSON()).filter(({ name }) => name === METRIC);
  return metric!.values.reduce((sum, { value }) => sum + value, 0);
}

test('the second group waits while the first has members, says so, and takes over within a minute of its end', async () => {
  const world = await createWorld();
  const partitions = 9 * 2;
  const [firstId, secondId] = [`first-${world.groupId}`, `second-${world.groupId}`];
  await world.produce({ edge_logs: 200, function_edge_logs: 50 });
  const first = await start(world, firstId);
  await waitFor(() => first.logged('partition_claimed').length === partitions, 30_000, 'the first group has them all');
  await world.finished(engine.clickhouse);

  const second = await start(world, secondId);
  await waitFor(() => second.ingest.waiting().length === partitions, 30_000, 'the second group waits');
  expect(second.logged('waiting_for_group')).toContainEqual(
    expect.objectContaining({ level: 40, topic: world.topicOf('edge_logs'), partition: 0, group: firstId }),
  );
  expect(JSON.stringify(await readinessOf({ consumer: consumerCheck(() => second.ingest) }))).toContain(
    'waiting for another consumer group to end: ',
  );
  expect(await waitingPartitions(second)).toBe(partitions);

  await world.produce({ edge_logs: 200, function_edge_logs: 50 });
  await world.finished(engine.clickhouse);
  expect(second.logged('partition_claimed')).toEqual([]);
  expect(await writers(world)).toEqual([firstId]);

  await stop(first);
  const ended = performance.now();
  await world.produce({ edge_logs: 200, function_edge_logs: 50 });
  await world.finished(engine.clickhouse, 60_000);
  expect(performance.now() - ended).toBeLessThan(60_000);
  await waitFor(() => second.ingest.waiting().length === 0, 30_000, 'no partition waits');
  expect(await waitingPartitions(second)).toBe(0);
  expect(await writers(world)).toEqual([firstId, secondId]);
  await world.expectExact(engine.clickhouse);
});

test('a group that takes over while the first is about to insert doubles nothing, and the first then waits', async () => {
  const world = await createWorld();
  const [firstId, secondId] = [`first-${world.groupId}`, `second-${world.groupId}`];
  const release = Promise.withResolvers<void>();
  let held = 0;
  const clickhouse: ClickHouse = {
    ...engine.clickhouse,
    // two processes have the same engine
    where: 'a server',
    insertRows: async (rows) => {
      if (rows.table === 'edge_logs') {
        held++;
        await release.promise;
        held--;
      }
      return engine.clickhouse.insertRows(rows);
    },
  };
  await world.produce({ edge_logs: 400, function_edge_logs: 50 });
  const first = await start(world, firstId, { clickhouse });
  await waitFor(() => held === 2, 30_000, 'the first group is past its fences, right before its two inserts');

  const second = await start(world, secondId, { overlooks: true });
  await world.finished(engine.clickhouse, 60_000);
  expect(held).toBe(2);
  const recovered = second.logged('batch_recovered').filter(({ topic }) => topic === world.topicOf('edge_logs'));
  expect(recovered).toMatchObject([{ announced: true }, { announced: true }]);
  release.resolve();
  await world.produce({ edge_logs: 400, function_edge_logs: 50 });
  await waitFor(() => first.ingest.waiting().length >= 2, 30_000, 'the first group waits for the second');
  await world.finished(engine.clickhouse);
  expect(held).toBe(0);
  expect(await writers(world)).toEqual([firstId, secondId]);
  await world.expectExact(engine.clickhouse);
});
