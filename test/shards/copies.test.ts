import { afterAll, beforeAll, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Read, type ReadResult } from '../../common/clickhouse/clickhouse.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { migrate, waitForSchema } from '../../common/clickhouse/migrations.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { openCluster } from '../../common/clickhouse/cluster/shards.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { moveTables } from '../../services/ingest/copies/move.ts';
import { listDeadLetters, readDeadLetter, replayDeadLetter } from '../../services/ingest/dead-letters.ts';
import { reconcile } from '../../services/ingest/reconcile.ts';
import { createDecoders, startIngest } from '../../services/ingest/service.ts';
import { chooseShard, findShard } from '../../services/ingest/shard.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { createWorld, type World } from '../faults/ledger.ts';
import { CLUSTER, startCluster, type TestCluster } from '../harness/clickhouse-cluster.ts';
import { openTestEmbedded, temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { kafkaBrokers } from '../harness/kafka.ts';

// Guarantee: a move into two shards of two replicas leaves every partition whole on its shard. Rollups equal raw there,
// and ingest goes on where the ledger ends, exactly once.

const LOAD = { edge_logs: 200, function_edge_logs: 120, postgres_logs: 60, auth_logs: 40 } as const;
const DAY = 86_400_000;
const NAMES = ['s1', 's2'];
/** Under load of others four servers and ZooKeeper take minutes on two cores. */
const PATIENCE_MS = 240_000;
const TABLES = [...sources.map((s) => s.name), 'batches', 'dead_letters', 'dead_letter_replays', 'partition_owners'];

const folder = temporaryFolder();
let cluster: TestCluster;
let single: ClickHouse;
let world: World;
const opened: ClickHouse[] = [];

beforeAll(async () => {
  cluster = await startCluster(folder.path, { shards: 2, replicas: 2 });
  // a server by itself: that it is a node too is of no account to this database
  const { server } = cluster.nodes[0]!;
  await server.query('CREATE DATABASE single');
  single = await openServer({ url: `${server.url}/single`, logger: testLogger });
  opened.push(single);
  world = await createWorld();
}, 600_000);

afterAll(async () => {
  await Promise.all(opened.map((client) => client.close()));
  await cluster?.stop();
  folder.remove();
});

/** An empty database on every node. */
async function openEmpty(database: string): Promise<ClickHouse> {
  for (const name of [database, databaseOfAll(database)])
    for (const node of cluster.nodes) {
      await node.server.query(`DROP DATABASE IF EXISTS ${name} SYNC`);
      await node.server.query(`CREATE DATABASE ${name}`);
    }
  const urls = cluster.url(database).split(',');
  const clickhouse = await openCluster({ urls, cluster: CLUSTER, logger: testLogger, wait: false });
  opened.push(clickhouse);
  return clickhouse;
}

/** Does the work while ingest and the rollup service run. */
async function whileRunning(clickhouse: ClickHouse, work: () => Promise<void>): Promise<void> {
  const { settings } = world;
  const options = { clickhouse, settings, logger: testLogger, registry: createRegistry() };
  const rollup = await startRollup(options);
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'copies',
    logger: testLogger,
    maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  const ingest = await startIngest({ ...options, registry: createRegistry(), kafka });
  try {
    await work();
  } finally {
    await ingest.stop();
    await rollup.stop();
  }
}

/** Waits before each read until every replica has all rows of its shard, because any replica may answer. */
function settled(clickhouse: ClickHouse, database: string): Pick<ClickHouse, 'read' | 'shards'> {
  return {
    shards: clickhouse.shards,
    async read(read: Read): Promise<ReadResult> {
      for (const node of cluster.nodes)
        for (const table of [...TABLES, 'api_requests_v1', 'function_invocations_v1'])
          await node.server.query(`SYSTEM SYNC REPLICA ${database}.${table} LIGHTWEIGHT`);
      return await clickhouse.read(read);
    },
  };
}

/** Everything is there once, rollups equal raw, replicas equal each other, and each partition is on its shard only. */
async function expectExact(clickhouse: ClickHouse, database: string): Promise<void> {
  const reader = settled(clickhouse, database);
  await world.finished(reader, PATIENCE_MS);
  await world.expectExact(reader);
  const on = (node: number, sql: string): Promise<string> =>
    cluster.nodes[node]!.server.query(sql.replaceAll('$', database));
  for (const table of TABLES)
    for (const [one, other] of [
      [0, 1],
      [2, 3],
    ] as const)
      expect(await on(other, `SELECT count() FROM $.${table}`), table).toBe(
        await on(one, `SELECT count() FROM $.${table}`),
      );
  for (const [at, node] of [
    [0, 0],
    [1, 2],
  ] as const) {
    const held = await on(
      node,
      'SELECT kafka_topic, kafka_partition FROM $.stored_rows UNION DISTINCT SELECT kafka_topic, kafka_partition FROM $.dead_letters UNION DISTINCT SELECT topic, partition FROM $.batches',
    );
    for (const line of held.trim().split('\n')) {
      const [topic, partition] = line.split('\t');
      expect(chooseShard(topic!, Number(partition), NAMES), line).toBe(NAMES[at]);
    }
    expect(held, 'a shard without rows').not.toBe('');
  }
}

/** A dead letter of each of two partitions, replayed; and rows that are the same in all but their offset. */
async function storeMore(clickhouse: ClickHouse): Promise<void> {
  const now = Date.now();
  for (const partition of [0, 1]) {
    const source = 'edge_logs';
    const store = openTestStore(clickhouse, { source, topic: 'replayed', partition, retentionDays: 1 });
    await store.claim(1);
    const event = { project: 'p', metadata: { request: { url: 'https://abcdefghijklmnopqrst.example.com/rest/v1' } } };
    for (const [offset, timestamp] of [now - 5 * 86_400_000, now, now, now].entries()) {
      const value = Buffer.from(JSON.stringify({ ...event, timestamp: timestamp * 1000 }));
      await store.writeBatch({ evaluatedAt: now, records: [{ offset, time: now, key: null, headers: [], value }] });
    }
  }
  for (const letter of await listDeadLetters(clickhouse, { topic: 'replayed', open: true })) {
    const options = {
      clickhouse,
      decoders: createDecoders(world.settings, Date.now),
      retentionDays: 90,
      maxEventBytes: 1_000_000,
      rawAvroTopics: [],
      clock: Date.now,
    };
    expect(await replayDeadLetter(options, (await readDeadLetter(clickhouse, letter))!)).toBe('stored');
  }
}

test(
  'a move from one server: each partition on its shard, and ingest goes on there',
  { timeout: 900_000 },
  async () => {
    await whileRunning(single, async () => {
      await world.produce(LOAD);
      await world.finished(single, PATIENCE_MS);
    });
    await storeMore(single);
    const before = await reconcile(single, 90);
    const to = await openEmpty('moved');
    await moveTables(single, to, 90, testLogger);
    await expectExact(to, 'moved');
    const after = await reconcile(to, 90);
    expect(after.partitions.toSorted(byPlace)).toEqual(before.partitions.toSorted(byPlace));
    for (const { topic, partition } of before.partitions)
      expect((await findShard(to, topic, partition)).shard).toBe(chooseShard(topic, partition, NAMES));

    await waitForSchema(to, testLogger);
    await whileRunning(to, async () => {
      await world.produce(LOAD);
      await expectExact(to, 'moved');
    });
    await expect(moveTables(single, to, 90, testLogger)).rejects.toThrow('empty database');
  },
);

test(
  'rollups of days that raw no longer has are moved once, and later ones are made of raw',
  { timeout: 600_000 },
  async () => {
    const from = await openTestEmbedded();
    try {
      await migrate(from.clickhouse, testLogger);
      const today = Math.floor(Date.now() / DAY) * DAY;
      const horizon = today - 3 * DAY;
      const url = 'https://abcdefghijklmnopqrst.example.com/rest/v1';
      const store = async (partition: number, offset: number, timestamp: number): Promise<void> => {
        const value = Buffer.from(
          JSON.stringify({ project: 'p', timestamp: timestamp * 1000, metadata: { request: { url } } }),
        );
        const records = [{ offset, time: today, key: null, headers: [], value }];
        const at = openTestStore(from.clickhouse, { source: 'edge_logs', topic: 'aged', partition });
        if (offset === 0) await at.claim(1);
        await at.writeBatch({ evaluatedAt: Date.now(), records });
      };
      for (const partition of [0, 1])
        for (const [offset, timestamp] of [horizon - 1, horizon, today].entries())
          await store(partition, offset, timestamp);
      // as retention drops them
      await from.clickhouse.execute({
        sql: `INSERT INTO expired_days SELECT 'edge_logs', toDateTime(${horizon / 1000})`,
      });
      await from.clickhouse.execute({
        sql: `ALTER TABLE edge_logs DROP PARTITION '${new Date(horizon - DAY).toISOString().slice(0, 10)}'`,
      });
      // with a longer retention than before
      await store(0, 3, horizon - 2);
      await store(1, 3, horizon - 2);
      const to = await openEmpty('aged');
      await moveTables(from.clickhouse, to, 90, testLogger);
      const rows = (clickhouse: ClickHouse): Promise<unknown[]> =>
        select(
          clickhouse,
          'SELECT period, width, at, toUInt32(sum(requests)) AS n FROM api_requests WHERE ref = {ref:String} GROUP BY period, width, at ORDER BY period, width, at',
          { ref: 'abcdefghijklmnopqrst' },
        );
      expect(await rows(to)).toEqual(await rows(from.clickhouse));
      const raw =
        'SELECT toUInt32(count()) AS rows, toUInt32(countIf(timestamp < {at:DateTime})) AS old FROM edge_logs';
      for (const shard of to.shards!) {
        expect(await select(fresh(shard, ['edge_logs']), raw, { at: horizon / 1000 })).toEqual([{ rows: 3, old: 1 }]);
        expect(
          await select(
            fresh(shard, ['expired_days']),
            'SELECT source, toUnixTimestamp(max(before)) AS at FROM expired_days GROUP BY source',
          ),
        ).toEqual([{ source: 'edge_logs', at: horizon / 1000 }]);
      }
    } finally {
      await from.close();
    }
  },
);

const byPlace = (a: { topic: string; partition: number }, b: { topic: string; partition: number }): number =>
  a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1;
