import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry, type Registry } from '../../common/metrics.ts';
import { readinessOf } from '../../common/readiness.ts';
import { createBadShares } from '../../services/ingest/store/bad-share-pause.ts';
import { createShardOf } from '../../services/ingest/store/shard.ts';
import { ingestCommand } from '../../services/ingest/commands/ingest.ts';
import { argsOf } from '../harness/command.ts';
import type { BadShare } from '../../services/ingest/delivery/ports.ts';
import { consumerCheck, startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { openTestEmbedded, testLogger, type TestClickHouse } from '../harness/clickhouse.ts';
import { kafkaBrokers, produce, uniqueName } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: a partition of whose last messages too many are bad is paused, alone, and says so; it stays paused for
// whoever has it, goes on by command or by itself, and nothing of it is lost or doubled by that.

let engine: TestClickHouse;
let ingest: RunningIngest | undefined;
beforeAll(async () => {
  engine = await openTestEmbedded();
  await migrate(engine.clickhouse, testLogger);
});
afterAll(() => engine.close());
afterEach(stop);

async function start(world: World, pauseSeconds: number): Promise<Registry> {
  const registry = createRegistry();
  const settings = {
    ...world.settings,
    BAD_SHARE_WINDOW: 200,
    BAD_SHARE_PERCENT: 50,
    BAD_SHARE_PAUSE_SECONDS: pauseSeconds,
  };
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'faults',
    logger: testLogger,
    maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  ingest = await startIngest({
    clickhouse: engine.clickhouse,
    kafka,
    settings,
    logger: testLogger,
    registry,
    sessionTimeoutMs: 6_000,
  });
  return registry;
}

async function stop(): Promise<void> {
  await ingest?.stop();
  ingest = undefined;
}

async function produceBad(world: World, count: number): Promise<void> {
  const reports = await produce(
    Array.from({ length: count }, () => ({ topic: world.topicOf('edge_logs'), partition: 0, value: '[]' })),
  );
  world.acknowledged(
    'edge_logs',
    0,
    reports.map((r) => Number(r.offset)),
    '[]',
    'not_an_event',
  );
}

const command = (...words: string[]): Promise<unknown> =>
  ingestCommand.run({ clickhouse: engine.clickhouse } as never, argsOf(ingestCommand, ...words));

test('paused alone, said everywhere, kept through a restart, resumed by command', async () => {
  const world = await createWorld();
  const [topic, place] = [world.topicOf('edge_logs'), `${world.topicOf('edge_logs')} 0`];
  let registry = await start(world, 3_600);
  await world.produce({ edge_logs: 100, function_edge_logs: 50 });
  await world.finished(engine.clickhouse);
  expect(ingest!.paused()).toEqual([]);
  await produceBad(world, 400);
  await waitFor(() => ingest!.paused().length > 0, 20_000, 'the partition is paused');

  await world.produce({ edge_logs: 100, function_edge_logs: 50 });
  await waitFor(
    async () => (await world.behind(engine.clickhouse)).every((behind) => behind === `${topic}:0:0`),
    20_000,
    'the other partitions go on',
  );
  const readiness = await readinessOf({ consumer: consumerCheck(() => ingest) });
  expect(readiness).toEqual({
    status: 'ready',
    checks: { consumer: `ok, paused for their share of bad messages: ${place}` },
  });
  expect(await registry.metrics()).toContain(`sluice_ingest_partition_paused{topic="${topic}",partition="0"} 1`);
  expect(await command('paused')).toMatchObject({
    paused: [{ topic, partition: 0, next: expect.any(Number), bad: expect.any(Number) }],
  });

  await stop();
  registry = await start(world, 3_600);
  await waitFor(() => ingest!.paused().length > 0, 20_000, 'it is still paused');
  expect(ingest!.paused()).toEqual([place]);

  expect(await command('resume', topic, '0')).toMatchObject({ resumed: [{ topic, partition: 0 }] });
  await world.finished(engine.clickhouse);
  await world.expectExact(engine.clickhouse);
  expect([ingest!.paused(), await command('paused'), await command('resume', topic, '0')]).toEqual([
    [],
    { paused: [] },
    { resumed: [] },
  ]);
  expect(await registry.metrics()).toContain(`sluice_ingest_partition_paused{topic="${topic}",partition="0"} 0`);
});

test('goes on by itself after the set time', async () => {
  const world = await createWorld();
  const registry = await start(world, 1);
  await produceBad(world, 400);
  await waitFor(
    async () => /sluice_ingest_partition_paused\{[^}]*\} [01]/.test(await registry.metrics()),
    20_000,
    'the partition is paused',
  );
  await world.produce({ edge_logs: 50 });
  await world.finished(engine.clickhouse);
  expect(ingest!.paused()).toEqual([]);
  await world.expectExact(engine.clickhouse);
});

test('the decision is of the ledger: what was bad while another process had the partition counts, what was bad before a pause or in another life of the topic does not', async () => {
  const topic = uniqueName('brake');
  const badShare = (): BadShare =>
    createBadShares(engine.clickhouse, createShardOf(engine.clickhouse), {
      percent: 50,
      window: 200,
      pauseSeconds: 3_600,
    })(topic, 0);
  const batch = async (of: BadShare, incarnation: number, first: number, dead: number): Promise<boolean> => {
    await engine.clickhouse.execute({
      sql: `INSERT INTO batches (topic, partition, incarnation, first, last, stored, dead_lettered, evaluated_at) VALUES ('${topic}', 0, ${incarnation}, ${first}, ${first + 99}, ${100 - dead}, ${dead}, now64(3))`,
    });
    of.add(dead);
    return of.pauses(incarnation, first + 100);
  };
  expect(await batch(badShare(), 0, 0, 60)).toBe(false);
  // 101 of the last 200, of which the new owner has seen 41
  const next = badShare();
  expect(await next.paused()).toBeUndefined();
  expect(await batch(next, 0, 100, 41)).toBe(true);
  expect(await badShare().paused()).toMatchObject({
    incarnation: 0,
    next: 200,
    bad: 101,
    messages: 200,
  });

  await command('resume', topic, '0');
  const resumed = badShare();
  expect(await resumed.paused()).toBeUndefined();
  expect(await batch(resumed, 0, 200, 60)).toBe(false);
  const later = badShare();
  expect(await later.paused()).toBeUndefined();
  expect(await batch(later, 1, 0, 60)).toBe(false);
  expect(await batch(later, 1, 100, 41)).toBe(true);
});
