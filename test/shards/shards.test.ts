import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Read, type ReadResult } from '../../common/clickhouse/clickhouse.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { CLUSTER_RIGHTS, RIGHTS, SHARD_RIGHTS, type Service } from '../../common/clickhouse/rights.ts';
import { backupPlaces } from '../../common/config/backup-places.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { createBackup } from '../../services/ingest/copies/backup.ts';
import { replayDeadLetter, listDeadLetters, readDeadLetter } from '../../services/ingest/dead-letters.ts';
import { reconcile } from '../../services/ingest/reconcile.ts';
import { createDecoders, startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { chooseShard, findShard } from '../../services/ingest/shard.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { createWorld, type World } from '../faults/ledger.ts';
import { CLUSTER, startCluster, type TestCluster } from '../harness/clickhouse-cluster.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';

// Guarantee: on two shards of two replicas everything of a partition is on one shard, which its first claim decides.
// Nothing is lost or doubled while a replica is killed or lags, every rollup equals its raw table, and reads see all
// shards. The servers are node 0 and 1 of the shard s1, 2 and 3 of s2.

const DATABASE = 'sluice';
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
const NAMES = ['s1', 's2'];
/** Under load of others four servers and ZooKeeper take minutes on two cores. */
const PATIENCE_MS = 240_000;

const folder = temporaryFolder();
let cluster: TestCluster;
let world: World;
let rollup: RollupService;
let clickhouse: ClickHouse;
let log: Record<string, unknown>[] = [];
const ingests = new Set<RunningIngest>();
const opened: ClickHouse[] = [];

const logger = pino(
  { level: 'info' },
  new Writable({
    write(chunk: Buffer, _encoding, done) {
      log.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  }),
);

async function clientAs(user: Service, order: readonly number[]): Promise<ClickHouse> {
  const settings = {
    ...world.settings,
    CLICKHOUSE_URL: cluster.url(DATABASE, order).replaceAll('//sluice@', `//${user}:x@`),
    CLICKHOUSE_CLUSTER: CLUSTER,
  };
  const client = await openClickHouse(settings, logger, { service: user, wait: false });
  opened.push(client);
  return client;
}

beforeAll(async () => {
  cluster = await startCluster(folder.path, { shards: 2, replicas: 2 });
  for (const { server } of cluster.nodes) {
    await server.query(`CREATE DATABASE ${DATABASE}`);
    await server.query(`CREATE DATABASE ${databaseOfAll(DATABASE)}`);
    // the users of docs/security.md, with exactly the rights that it lists
    for (const user of ['ingest', 'query', 'rollup'] as const) {
      await server.query(`CREATE USER ${user} IDENTIFIED BY 'x' SETTINGS PROFILE 'ours'`);
      for (const right of [...RIGHTS[user], ...CLUSTER_RIGHTS[user], ...SHARD_RIGHTS[user]])
        await server.query(
          `GRANT ${right.replace('{database}', DATABASE).replace('{all}', databaseOfAll(DATABASE))} TO ${user}`,
        );
    }
  }
  world = await createWorld();
  rollup = await startRollup({
    clickhouse: await clientAs('rollup', [0, 1, 2, 3]),
    settings: world.settings,
    logger: testLogger,
    registry: createRegistry(),
  });
  clickhouse = await clientAs('query', [0, 1, 2, 3]);
}, 600_000);

beforeEach(({ onTestFailed }) => {
  log = [];
  onTestFailed(() => {
    for (const line of log.filter(({ level }) => Number(level) >= 40).slice(-20)) console.log(JSON.stringify(line));
  });
});

afterEach(async () => {
  await Promise.all([...ingests].map((ingest) => ingest.stop()));
});

afterAll(async () => {
  await rollup?.stop();
  await Promise.all(opened.map((client) => client.close()));
  await cluster?.stop();
  folder.remove();
});

async function ingestFrom(...order: readonly number[]): Promise<RunningIngest> {
  const { settings } = world;
  const running = await startIngest({
    clickhouse: await clientAs('ingest', order),
    kafka: createKafka({
      brokers: kafkaBrokers(),
      clientId: 'shards',
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
    },
  };
  ingests.add(ingest);
  return ingest;
}

async function countOn(node: number, table: string): Promise<number> {
  return Number(await cluster.nodes[node]!.server.query(`SELECT count() FROM ${DATABASE}.${table}`));
}

/** `topic partition` of what a node holds. */
async function placesOn(node: number): Promise<string[]> {
  const places = await cluster.nodes[node]!.server.query(
    `SELECT DISTINCT concat(kafka_topic, ' ', toString(kafka_partition)) AS place FROM (SELECT kafka_topic, kafka_partition FROM ${DATABASE}.stored_rows UNION ALL SELECT kafka_topic, kafka_partition FROM ${DATABASE}.dead_letters UNION ALL SELECT topic, partition FROM ${DATABASE}.batches) ORDER BY place`,
  );
  return places.split('\n').filter((place) => place !== '');
}

/** Waits before each read until every replica has all rows of its shard, because any replica may answer. */
const settled = {
  get shards() {
    return clickhouse.shards;
  },
  async read(read: Read): Promise<ReadResult> {
    for (const { server } of cluster.nodes)
      for (const table of TABLES) await server.query(`SYSTEM SYNC REPLICA ${DATABASE}.${table} LIGHTWEIGHT`);
    return await clickhouse.read(read);
  },
};

async function expectExact(): Promise<void> {
  await world.finished(settled, PATIENCE_MS);
  await world.expectExact(settled);
  for (const table of TABLES)
    for (const [one, other] of [
      [0, 1],
      [2, 3],
    ] as const)
      expect(await countOn(other, table), `${table} on the nodes ${one} and ${other}`).toBe(await countOn(one, table));
}

test('CLICKHOUSE_URL without the nodes of a shard, or with its shard alone, is refused', async () => {
  await expect(clientAs('query', [0, 1])).rejects.toMatchObject({
    name: 'StartError',
    message: expect.stringMatching(/has 2 shards, but .* have the macro shard = s1:/),
  });
});

test('a backup of several shards is refused', async () => {
  const context = { clickhouse, places: backupPlaces(`local=${join(folder.path, 'backups')}`), logger: testLogger };
  await expect(createBackup(context, { place: 'local/all' })).rejects.toThrow(/has 2 shards.*docs\/scale\.md/);
});

test('what was claimed for a shard stays there; other partitions are spread', { timeout: 600_000 }, async () => {
  const claimed = world.topicOf('postgres_logs');
  // as a cluster claimed it that had the shard s1 alone
  for (const partition of [0, 1])
    await clickhouse.execute({
      sql: 'INSERT INTO partition_owners (topic, partition, epoch, consumer_group, shard) SELECT {topic:String}, {partition:UInt32}, 1, {group:String}, {shard:String}',
      params: { topic: claimed, partition, group: world.groupId, shard: 's1' },
    });
  const ingest = await ingestFrom(0, 1, 2, 3);
  await world.produce(LOAD);
  await expectExact();
  const held = [await placesOn(0), await placesOn(2)];
  expect(held[0]!.filter((place) => held[1]!.includes(place))).toEqual([]);
  for (const source of ['edge_logs', 'function_edge_logs', 'postgres_logs', 'auth_logs'] as const)
    for (const partition of [0, 1]) {
      const topic = world.topicOf(source);
      const shard = source === 'postgres_logs' ? 's1' : chooseShard(topic, partition, NAMES);
      expect(held[NAMES.indexOf(shard)], `${topic} ${partition}`).toContain(`${topic} ${partition}`);
    }
  // what would see or change one shard by chance
  await expect(select(fresh(clickhouse, ['batches']), 'SELECT 1')).rejects.toThrow('each shard');
  await expect(clickhouse.execute({ sql: "INSERT INTO batches (topic) SELECT 'x'" })).rejects.toThrow('each shard');
  await ingest.stop();
});

test(
  'kill -9 of a replica: reads go on, and so do the partitions of the other shard',
  { timeout: 600_000 },
  async () => {
    const query = await clientAs('query', [1, 0, 3, 2]);
    const ingest = await ingestFrom(1, 0, 3, 2);
    await world.produce(LOAD);
    await waitFor(async () => (await countOn(1, 'batches')) > 0, PATIENCE_MS, 'the node is written to');
    await world.produce(LOAD);
    await cluster.nodes[1]!.server.kill();
    const killedAt = performance.now();
    expect(await world.behind(query), 'batches under way at the kill').not.toEqual([]);
    for (let i = 0; i < 10; i++) {
      const [found] = await select<{ shards: number }>(
        query,
        'SELECT toUInt32(uniqExact(_shard_num)) AS shards FROM batches',
      );
      expect(found).toEqual({ shards: 2 });
      if (i === 0) expect(performance.now() - killedAt).toBeLessThan(5_000);
    }
    const ofOther = (place: string): boolean => {
      const [, topic, partition] = /^(.*):\d+:(\d+)$/.exec(place)!;
      return topic !== world.topicOf('postgres_logs') && chooseShard(topic!, Number(partition), NAMES) === 's2';
    };
    await waitFor(
      async () => !(await world.behind(query)).some(ofOther),
      PATIENCE_MS,
      'the partitions of the other shard go on',
    );
    await cluster.restart(1);
    await expectExact();
    await ingest.stop();
  },
);

test('a replica lags behind while the partitions of its shard change their owner', { timeout: 600_000 }, async () => {
  const first = await ingestFrom(0, 1, 2, 3);
  await cluster.nodes[3]!.server.query('SYSTEM STOP FETCHES');
  try {
    await world.produce(LOAD);
    await world.finished(clickhouse, PATIENCE_MS);
    await first.stop();
    expect(await countOn(3, 'batches')).toBeLessThan(await countOn(2, 'batches'));
    const second = await ingestFrom(1, 0, 3, 2);
    await world.produce(LOAD);
    await world.finished(clickhouse, PATIENCE_MS);
    expect(log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_changed', reason: 'REPLICA_LAGS' }));
    await second.stop();
  } finally {
    await cluster.nodes[3]!.server.query('SYSTEM START FETCHES');
  }
  await expectExact();
});

test('a dead letter is replayed on the shard of its partition', { timeout: 600_000 }, async () => {
  const ingest = await clientAs('ingest', [0, 1, 2, 3]);
  const topic = 'replayed';
  const now = Date.now();
  for (const partition of [0, 1]) {
    const store = openTestStore(ingest, { source: 'auth_logs', topic, partition, retentionDays: 1 });
    await store.claim(1);
    const timestamp = (now - 5 * 86_400_000) * 1000;
    const value = Buffer.from(JSON.stringify({ project: 'p', timestamp }));
    await store.writeBatch({ evaluatedAt: now, records: [{ offset: 0, time: now, key: null, headers: [], value }] });
  }
  const letters = await listDeadLetters(clickhouse, { topic, open: true });
  expect(letters.map((l) => [l.partition, l.reason])).toEqual([
    [0, 'timestamp_out_of_range'],
    [1, 'timestamp_out_of_range'],
  ]);
  for (const letter of letters) {
    const content = (await readDeadLetter(clickhouse, letter))!;
    const options = {
      clickhouse: ingest,
      decoders: createDecoders(world.settings, Date.now),
      retentionDays: 90,
      maxEventBytes: 1_000_000,
      rawAvroTopics: [],
      clock: Date.now,
    };
    expect(await replayDeadLetter(options, content)).toBe('stored');
    expect(await replayDeadLetter(options, content)).toBe('stored');
    const there = await findShard(ingest, topic, letter.partition);
    const where = `kafka_topic = '${topic}' AND kafka_partition = ${letter.partition}`;
    expect(
      await select(fresh(there, ['auth_logs']), `SELECT toUInt32(count()) AS n FROM auth_logs WHERE ${where}`),
    ).toEqual([{ n: 1 }]);
  }
  expect(await listDeadLetters(clickhouse, { topic, open: true })).toEqual([]);
  const { ok, faults, partitions } = await reconcile(clickhouse, 90);
  expect({ ok, faults }).toEqual({ ok: true, faults: [] });
  expect(partitions.filter((p) => p.topic === topic).map((p) => [p.partition, p.stored, p.replayed])).toEqual(
    expect.arrayContaining([
      [0, 1, 1],
      [1, 1, 1],
    ]),
  );
});

test(
  'a start creates what reads all shards, where it is absent as after the second shard',
  { timeout: 600_000 },
  async () => {
    const over = databaseOfAll(DATABASE);
    for (const { server } of cluster.nodes) {
      await server.query(`DROP DATABASE ${over} SYNC`);
      await server.query(`CREATE DATABASE ${over}`);
    }
    const another = await startRollup({
      clickhouse: await clientAs('rollup', [2, 3, 0, 1]),
      settings: world.settings,
      logger: testLogger,
      registry: createRegistry(),
    });
    await another.stop();
    const [found] = await select<{ shards: number }>(
      clickhouse,
      'SELECT toUInt32(uniqExact(_shard_num)) AS shards FROM api_requests_v1',
    );
    expect(found).toEqual({ shards: 2 });
  },
);

// the last one: whoever has used the first node refuses afterwards
test('a process refuses its statements once the cluster has another number of shards', async () => {
  const client = await clientAs('query', [0, 1, 2, 3]);
  const file = join(folder.path, 's1-r1-0', 'server-25.8', 'config.xml');
  const config = readFileSync(file, 'utf8');
  const changed = config.replace(/(<remote_servers .*?<\/shard>)<shard>.*?<\/shard>/s, '$1');
  expect(changed.length).toBeLessThan(config.length);
  writeFileSync(file, changed);
  await cluster.nodes[0]!.server.query('SYSTEM RELOAD CONFIG');
  const refused = await waitFor(
    async () =>
      await select(client, 'SELECT 1').then(
        () => undefined,
        (error: unknown) => error,
      ),
    60_000,
    'the client has noticed',
  );
  expect(refused).toMatchObject({ message: `the cluster ${CLUSTER} has 1 shards now, and had 2: restart the process` });
  await expect(client.shards![1]!.insertRows({ table: 'batches', columns: [], pieces: [] })).rejects.toBe(refused);
});
