import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { CLUSTER_RIGHTS, RIGHTS, type Service } from '../../common/clickhouse/rights.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { build } from '../../services/rollup/build.ts';
import { readRollups } from '../../services/rollup/catalogue.ts';
import type { Context } from '../../services/rollup/context.ts';
import { createRollupMetrics } from '../../services/rollup/metrics.ts';
import { newestPeriod } from '../../services/rollup/periods.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { createWorld, type World } from '../faults/ledger.ts';
import { CLUSTER, startCluster, type TestCluster } from '../harness/clickhouse-cluster.ts';
import type { TestServer } from '../harness/clickhouse-server.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';

// Guarantee: two replicas of one shard lose and double nothing while either is killed, lags or is replaced, and while
// Keeper is unavailable. Each test says in which state its fault struck. Afterwards the account is exact, every rollup
// equals its raw table, and both replicas say so.

const DATABASE = 'sluice';
/** everything that is written while events flow */
const TABLES = [
  ...sources.map((s) => s.name),
  'batches',
  'dead_letters',
  'dead_letter_replays',
  'rollup_repairs',
  'api_requests_v1',
  'function_invocations_v1',
];
const LOAD = { edge_logs: 200, function_edge_logs: 120, postgres_logs: 60, auth_logs: 40 } as const;

const folder = temporaryFolder();
let cluster: TestCluster;
let world: World;
let rollup: RollupService;
/** through the first node, and through the second one */
let clients: readonly [ClickHouse, ClickHouse];
let log: Record<string, unknown>[] = [];
const ingests = new Set<RunningIngest>();

const logger = pino(
  { level: 'info' },
  new Writable({
    write(chunk: Buffer, _encoding, done) {
      log.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  }),
);

const client = (...order: readonly number[]): Promise<ClickHouse> => clientAs('sluice', order);

async function clientAs(user: 'sluice' | Service, order: readonly number[]): Promise<ClickHouse> {
  return await openClickHouse(
    {
      ...world.settings,
      CLICKHOUSE_URL: cluster
        .url(DATABASE, order)
        .replaceAll('//sluice@', `//${user}${user === 'sluice' ? '' : ':x'}@`),
      CLICKHOUSE_CLUSTER: CLUSTER,
    },
    logger,
    user === 'sluice' ? {} : { service: user },
  );
}

/** The users of docs/security.md, with exactly the rights that it lists. */
async function createUsers(server: TestServer): Promise<void> {
  for (const user of ['ingest', 'rollup'] as const) {
    await server.query(`CREATE USER ${user} IDENTIFIED BY 'x' SETTINGS PROFILE 'ours'`);
    for (const right of [...RIGHTS[user], ...CLUSTER_RIGHTS[user]])
      await server.query(`GRANT ${right.replace('{database}', DATABASE)} TO ${user}`);
  }
}

beforeAll(async () => {
  cluster = await startCluster(folder.path);
  for (const { server } of cluster.nodes) {
    await server.query(`CREATE DATABASE ${DATABASE}`);
    await createUsers(server);
  }
  world = await createWorld();
  clients = [await client(0, 1), await client(1, 0)];
  const ofRollup = await clientAs('rollup', [0, 1]);
  rollup = await startRollup({
    clickhouse: ofRollup,
    settings: world.settings,
    logger: testLogger,
    registry: createRegistry(),
  });
}, 180_000);

afterEach(async () => {
  await Promise.all([...ingests].map((ingest) => ingest.stop()));
});

beforeEach(({ onTestFailed }) => {
  log = [];
  onTestFailed(() => {
    for (const line of log.filter(({ level }) => Number(level) >= 40).slice(-20)) console.log(JSON.stringify(line));
  });
});

afterAll(async () => {
  await Promise.all([...ingests].map((ingest) => ingest.stop()));
  await rollup?.stop();
  await Promise.all((clients ?? []).map((c) => c.close()));
  await cluster?.stop();
  folder.remove();
});

/** Ingest whose first node is `order[0]`. */
async function ingestFrom(...order: readonly number[]): Promise<RunningIngest> {
  const clickhouse = await clientAs('ingest', order);
  const { settings } = world;
  const running = await startIngest({
    clickhouse,
    kafka: createKafka({
      brokers: kafkaBrokers(),
      clientId: 'cluster',
      logger,
      maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    }),
    settings,
    logger,
    registry: createRegistry(),
  });
  const ingest = {
    ...running,
    stop: async () => {
      ingests.delete(ingest);
      await running.stop();
      await clickhouse.close();
    },
  };
  ingests.add(ingest);
  return ingest;
}

/** What a replica holds by itself, whatever it still has to fetch. */
async function countOn(node: number, table: string): Promise<number> {
  return Number(await cluster.nodes[node]!.server.query(`SELECT count() FROM ${DATABASE}.${table}`));
}

async function expectExactOnBoth(): Promise<void> {
  for (const clickhouse of clients) {
    const reader: Reader = fresh(clickhouse, TABLES);
    await world.finished(reader, 60_000);
    await world.expectExact(reader);
  }
  for (const table of TABLES) expect(await countOn(1, table), table).toBe(await countOn(0, table));
}

test('the same batch to either replica counts once, in raw and in its rollup', async () => {
  const stores = clients.map((clickhouse) => openTestStore(clickhouse, { source: 'edge_logs', topic: 'twice' }));
  const evaluatedAt = Date.now();
  const period = await newestPeriod({ clickhouse: clients[0] });
  const records = Array.from({ length: 50 }, (_, offset) => ({
    offset,
    time: evaluatedAt,
    key: null,
    headers: [],
    value: Buffer.from(
      JSON.stringify({
        project: 'p',
        timestamp: (evaluatedAt - offset) * 1000,
        metadata: { request: { url: 'https://abcdefghijklmnopqrst.supabase.co/rest/v1/x', path: '/rest/v1/x' } },
      }),
    ),
  }));
  const batch = { evaluatedAt, period, records };
  await stores[0]!.writeBatch(batch);
  for (const store of [stores[1]!, stores[0]!, stores[1]!]) await store.insertBatch(batch);
  for (const clickhouse of clients) {
    const found = await select(
      fresh(clickhouse, TABLES),
      "SELECT toUInt32((SELECT count() FROM edge_logs WHERE kafka_topic = 'twice')) AS raw, toUInt32((SELECT sum(requests) FROM api_requests WHERE width = 3600)) AS counted",
    );
    expect(found).toEqual([{ raw: 50, counted: 50 }]);
  }
});

test('kill -9 of a replica in the middle of an insert: only its partitions wait for it', async () => {
  const [one, two] = clients;
  const ingest = await ingestFrom(0, 1);
  await world.produce(LOAD);
  await world.finished(fresh(two, TABLES), 60_000);
  // rows of this source take 20 ms each, so the kill surely strikes an insert
  await one.execute({ sql: 'CREATE TABLE slowed (n UInt64) ENGINE = MergeTree ORDER BY n' });
  await one.execute({
    sql: 'CREATE MATERIALIZED VIEW slowed_mv TO slowed AS SELECT kafka_offset AS n FROM edge_logs WHERE sleepEachRow(0.02) = 0',
  });
  await world.produce({ edge_logs: 150 });
  const inserts =
    "SELECT count() FROM system.processes WHERE startsWith(query_id, 'ingest:edge_logs') AND elapsed > 0.3";
  const victim = await waitFor(
    async () => {
      for (const [i, { server }] of cluster.nodes.entries()) if ((await server.query(inserts)) !== '0') return { i };
      return undefined;
    },
    60_000,
    'an insert runs',
  );
  await cluster.nodes[victim.i]!.server.kill();
  const killedAt = performance.now();
  await select(one, 'SELECT count() FROM edge_logs');
  expect(performance.now() - killedAt).toBeLessThan(1_000);
  await world.produce({ postgres_logs: 60, auth_logs: 40 });
  await waitFor(
    async () => (await world.behind(two)).every((partition) => partition.startsWith('edge_logs')),
    60_000,
    'other partitions go on with the other replica',
  );
  // the insert that the kill cut
  expect(log).toContainEqual(
    expect.objectContaining({ msg: 'clickhouse_unavailable', during: expect.stringContaining('insert of batch') }),
  );
  await cluster.restart(victim.i);
  await one.execute({ sql: 'DROP VIEW slowed_mv SYNC' });
  await expectExactOnBoth();
  await ingest.stop();
});

test('a replica that lags behind while partitions change their owner', async () => {
  const first = await ingestFrom(0, 1);
  await cluster.nodes[1]!.server.query('SYSTEM STOP FETCHES');
  try {
    await world.produce(LOAD);
    await world.finished(fresh(clients[0], ['batches']), 60_000);
    await first.stop();
    // all of it is acknowledged, and the second replica knows of none of it
    expect(await countOn(1, 'batches')).toBeLessThan(await countOn(0, 'batches'));
    const second = await ingestFrom(1, 0);
    await world.produce(LOAD);
    await world.finished(clients[0], 60_000);
    expect(log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_changed', reason: 'REPLICA_LAGS' }));
    await second.stop();
  } finally {
    await cluster.nodes[1]!.server.query('SYSTEM START FETCHES');
  }
  await expectExactOnBoth();
});

test('a rollup is built from what every replica acknowledged, though the node that builds lags behind', async () => {
  const ingest = await ingestFrom(1, 0);
  const clickhouse = await client(0, 1);
  await cluster.nodes[0]!.server.query('SYSTEM STOP FETCHES');
  try {
    await world.produce(LOAD);
    await world.finished(clients[1], 60_000);
    // what node 0 builds by itself lacks these rows, and swapping it in would drop them from the rollup
    expect(await countOn(0, 'edge_logs')).toBeLessThan(await countOn(1, 'edge_logs'));
    const context: Context = {
      clickhouse,
      settings: world.settings,
      logger,
      metrics: createRollupMetrics(undefined),
      clock: Date.now,
      wait: () => Promise.resolve(),
    };
    const period = await newestPeriod({ clickhouse: clients[1] });
    for (const of of await readRollups(clickhouse))
      await waitFor(
        async () => (await build(context, of, period, { urgent: true })).kind === 'built',
        60_000,
        `${of.name} is built, where the rollup service does not build it at the same time`,
      );
  } finally {
    await cluster.nodes[0]!.server.query('SYSTEM START FETCHES');
  }
  await ingest.stop();
  await clickhouse.close();
  await expectExactOnBoth();
});

test('ZooKeeper is killed and comes back', async () => {
  const ingest = await ingestFrom(0, 1);
  await cluster.zookeeper.kill();
  await world.produce(LOAD);
  await waitFor(
    () => log.some((line) => line['msg'] === 'clickhouse_unavailable'),
    60_000,
    'ingest has met a ClickHouse without Keeper',
  );
  await expect(clients[0].execute({ sql: "INSERT INTO expired_days VALUES ('nothing', 0)" })).rejects.toThrow(
    /KEEPER|ZOOKEEPER|READ_ONLY|Session expired|Connection loss/i,
  );
  // queries need no Keeper
  await select(clients[0], 'SELECT count() FROM edge_logs');
  await cluster.zookeeper.start();
  await expectExactOnBoth();
  await ingest.stop();
});

test('a replica is replaced by an empty one', async () => {
  const ingest = await ingestFrom(0, 1);
  await cluster.nodes[1]!.server.kill();
  await world.produce(LOAD);
  await world.finished(clients[0], 60_000);
  await cluster.nodes[0]!.server.query(`SYSTEM DROP REPLICA 's1-r2'`);
  await cluster.restart(1, { empty: true });
  const [empty] = [cluster.nodes[1]!.server];
  expect(await empty.query('SHOW DATABASES')).not.toContain(DATABASE);
  await empty.query(`CREATE DATABASE ${DATABASE}`);
  await createUsers(empty);
  // also where the empty one is the first that is asked
  const toEmpty = await client(1, 0);
  await toEmpty.cluster!.complete();
  await toEmpty.close();
  await world.produce(LOAD);
  await expectExactOnBoth();
  // without the side tables of builds, which are of one node
  const tables = `SELECT name FROM system.tables WHERE database = '${DATABASE}' AND NOT match(name, '_(build|repair)_') ORDER BY name`;
  expect((await empty.query(tables)).split('\n')).toEqual((await cluster.nodes[0]!.server.query(tables)).split('\n'));
  await ingest.stop();
});
