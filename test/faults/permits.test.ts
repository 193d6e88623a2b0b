import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import type { Settings } from '../../common/config/settings.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { kafkaBrokers, produce } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: the embedded engine is written with as many batches at a time as it has cores (2 to 3), and inserts that
// are slow hold back no other partition for longer than a second. (That inserts which hang hold back nobody, through
// the pools of a server: clickhouse-away.test.ts.) However many partitions have a backlog, their batches are whole, and one
// of which nothing arrives holds up no other.

const SLOW_MS = 300;
/** of two partitions each */
const EVENTS = { edge_logs: 200, auth_logs: 200, storage_logs: 200, postgres_logs: 200 };
const folder = temporaryFolder();
let clickhouse: ClickHouse;
let ingest: RunningIngest | undefined;
/** how long a fetch that began now might wait at the broker, milliseconds */
let fetchWaitMs = (): unknown => undefined;

beforeAll(async () => {
  clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
  await migrate(clickhouse, testLogger);
});
afterEach(async () => {
  await ingest?.stop();
  ingest = undefined;
});
afterAll(async () => {
  await clickhouse.close();
  folder.remove();
});

/**
 * `before`: what happens before each insert of a batch. `isSilent`: of what is fetched of this topic and partition,
 * nothing arrives.
 */
async function start(
  world: World,
  before: () => Promise<unknown>,
  more: Partial<Settings> = {},
  isSilent: (topic: string, partition: number) => boolean = () => false,
): Promise<void> {
  const slow: ClickHouse = {
    ...clickhouse,
    insertRows: async (rows) => {
      if (Object.keys(EVENTS).includes(rows.table)) await before();
      return await clickhouse.insertRows(rows);
    },
  };
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'permits',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  const consumer: typeof kafka.consumer = (config) => {
    fetchWaitMs = () => config.maxWaitTimeInMs?.();
    const own = kafka.consumer(config);
    const run: typeof own.run = (to) =>
      own.run({
        ...to,
        eachBatch: async (payload) => {
          if (!isSilent(payload.batch.topic, payload.batch.partition)) await to?.eachBatch?.(payload);
        },
      });
    return { ...own, run };
  };
  ingest = await startIngest({
    clickhouse: slow,
    kafka: { ...kafka, consumer },
    settings: { ...world.settings, ...more },
    logger: testLogger,
    registry: createRegistry(),
    sessionTimeoutMs: 6_000,
  });
}

/** 300 events of 40 kB for each of the two partitions of these sources. */
async function produceBacklog(
  world: World,
  sources: readonly ('edge_logs' | 'auth_logs' | 'postgres_logs')[],
): Promise<void> {
  const value = JSON.stringify({ project: 'abc', event_message: 'x'.repeat(40_000) });
  for (let sent = 0; sent < 600; sent += 20) {
    const records = sources.flatMap((source) =>
      Array.from({ length: 20 }, (_, i) => ({ source, topic: world.topicOf(source), partition: i % 2, value })),
    );
    const reports = await produce(records, { compression: 'none' });
    reports.forEach(({ partition, offset }, i) =>
      world.acknowledged(records[i]!.source, partition, [Number(offset)], value, 'row'),
    );
  }
}

test('some are written at a time, the others wait', async () => {
  let most = 0;
  let running = 0;
  const world = await createWorld();
  await world.produce(EVENTS);
  await start(world, async () => {
    most = Math.max(most, ++running);
    await sleep(SLOW_MS);
    running--;
  });
  await world.finished(clickhouse);
  await world.expectExact(clickhouse);
  expect(most).toBeGreaterThanOrEqual(2);
  expect(most).toBeLessThanOrEqual(3);
});

test('six partitions with a backlog of three batches each write five each at most', async () => {
  const world = await createWorld();
  // 22 or 23 in turns; 42 to 46 where all of them are fetched at once
  const sources = ['edge_logs', 'auth_logs', 'postgres_logs'] as const;
  await produceBacklog(world, sources);
  await start(world, async () => {}, { BATCH_MAX_BYTES: 4 * 1024 ** 2 });
  await world.finished(clickhouse);
  await world.expectExact(clickhouse);
  const [ledger] = await select<{ batches: number }>(
    clickhouse,
    'SELECT toUInt32(count()) AS batches FROM batches WHERE topic IN {topics:Array(String)}',
    { topics: sources.map((s) => world.topicOf(s)) },
  );
  expect(ledger?.batches).toBeLessThanOrEqual(6 * 5);
});

test('while a partition waits for room, a fetch of the quiet ones ends soon: the next fetch can have both', async () => {
  const world = await createWorld();
  await produceBacklog(world, ['edge_logs']);
  const { promise: allowed, resolve: allow } = Promise.withResolvers<void>();
  let held = 0;
  await start(
    world,
    () => {
      held++;
      return allowed;
    },
    { BATCH_MAX_BYTES: 1024 ** 2 },
  );
  await waitFor(() => held > 0 && fetchWaitMs() === 20, 30_000, 'a partition waits for room');
  // while ClickHouse is away there is no room to wait for
  await waitFor(() => fetchWaitMs() === 250, 10_000, 'nothing is written any more');
  allow();
  await world.finished(clickhouse);
  await world.expectExact(clickhouse);
  expect(fetchWaitMs()).toBe(250);
});

test('a partition of which nothing arrives any more does not hold up the others, and is fetched again', async () => {
  const world = await createWorld();
  const sources = ['edge_logs', 'auth_logs'] as const;
  await produceBacklog(world, sources);
  const [topic, other] = [world.topicOf('edge_logs'), world.topicOf('auth_logs')];
  const silenced = new Set<number>();
  let isSlow = true;
  await start(
    world,
    async () => {},
    { BATCH_MAX_BYTES: 4 * 1024 ** 2 },
    (of, partition) => {
      if (of !== topic || !isSlow) return false;
      // its first fetch says how much there is
      const wasSilenced = silenced.has(partition);
      silenced.add(partition);
      return wasSilenced;
    },
  );
  const stored = async (of: string): Promise<number> =>
    (
      await select<{ rows: number }>(
        clickhouse,
        'SELECT toUInt32(count()) AS rows FROM stored_rows WHERE kafka_topic = {of:String}',
        { of },
      )
    )[0]!.rows;
  await waitFor(async () => (await stored(other)) === 600, 30_000, 'the other partitions are written');
  expect(await stored(topic)).toBeLessThan(600);
  isSlow = false;
  await world.finished(clickhouse);
  await world.expectExact(clickhouse);
});
