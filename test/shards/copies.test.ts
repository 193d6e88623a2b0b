import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Read, type ReadResult } from '../../common/clickhouse/clickhouse.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { migrate, waitForSchema } from '../../common/clickhouse/migrations.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { SHARED_TABLES } from '../../common/clickhouse/cluster/cluster.ts';
import { openCluster } from '../../common/clickhouse/cluster/shards.ts';
import { CLUSTER_RIGHTS, RIGHTS, SHARD_RIGHTS } from '../../common/clickhouse/rights.ts';
import { backupPlaces } from '../../common/config/backup-places.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { createBackup, restoreBackup, type BackupResult } from '../../services/ingest/operate/backup.ts';
import { moveTables } from '../../services/ingest/operate/move.ts';
import { listDeadLetters, readDeadLetter, replayDeadLetter } from '../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { createDecoders, startIngest } from '../../services/ingest/service.ts';
import { chooseShard, findShard } from '../../services/ingest/store/shard.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { createWorld, type World } from '../faults/ledger.ts';
import { CLUSTER, startCluster, type TestCluster } from '../harness/clickhouse-cluster.ts';
import { openTestEmbedded, temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { kafkaBrokers } from '../harness/kafka.ts';

// Guarantee: a move into two shards of two replicas, and a backup of them that is restored, leave every partition whole
// on its shard. Rollups equal raw there, and ingest goes on where the ledger ends, exactly once.

const LOAD = { edge_logs: 200, function_edge_logs: 120, postgres_logs: 60, auth_logs: 40 } as const;
const DAY = 86_400_000;
const NAMES = ['s1', 's2'];
/** Under load of others four servers and ZooKeeper take minutes on two cores. */
const PATIENCE_MS = 240_000;
const TABLES = [...sources.map((s) => s.name), 'batches', 'dead_letters', 'dead_letter_replays', 'partition_owners'];

const folder = temporaryFolder();
const backups = join(folder.path, 'backups');
const places = backupPlaces(`local=${backups}`);
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

/** The cluster, whose nodes are asked in this order. */
async function openIn(database: string, order: readonly number[], user = 'sluice'): Promise<ClickHouse> {
  const urls = cluster.url(database, order).replaceAll('//sluice@', `//${user}@`).split(',');
  const clickhouse = await openCluster({ urls, cluster: CLUSTER, logger: testLogger });
  opened.push(clickhouse);
  return clickhouse;
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
        sql: `INSERT INTO expired_days (source, before) SELECT 'edge_logs', toDateTime(${horizon / 1000})`,
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

/** Ingests `load`, and all there is beside it, with the second replica of each shard as the node that is asked. */
async function ingest(database: string, load: Parameters<World['produce']>[0]): Promise<void> {
  const clickhouse = await openIn(database, [1, 0, 3, 2]);
  await whileRunning(clickhouse, async () => {
    await world.produce(load);
    await world.finished(clickhouse, PATIENCE_MS);
  });
}

/** Every node has the same tables, each with the places in Keeper that a migration would have given it. */
async function expectReplicated(database: string): Promise<void> {
  const tables = [];
  for (const { server, shard, replica } of cluster.nodes) {
    const found = await server.query(
      `SELECT name, engine, uuid, zookeeper_path AS path, replica_name AS replica, total_replicas AS replicas FROM system.tables LEFT JOIN system.replicas ON replicas.database = tables.database AND replicas.table = tables.name WHERE database = '${database}' AND engine NOT LIKE '%View' ORDER BY name FORMAT JSON`,
    );
    const { data } = JSON.parse(found) as { data: Readonly<Record<string, string>>[] };
    for (const { name, engine, uuid, path, replica: own, replicas } of data) {
      const isShared = SHARED_TABLES.has(name!);
      expect(engine, name).toMatch(/^Replicated/);
      expect(path, name).toBe(`/clickhouse/tables/${uuid}/${isShared ? 'all' : shard}`);
      expect(own, name).toBe(`${shard}-${replica}`);
      expect(Number(replicas), name).toBe(isShared ? 4 : 2);
    }
    tables.push(data.map(({ name, engine, uuid }) => ({ name, engine, uuid })));
  }
  expect(tables[0]!.map(({ name }) => name)).toEqual(expect.arrayContaining([...TABLES, ...SHARED_TABLES]));
  for (const of of tables) expect(of).toEqual(tables[0]);
}

/** The user of the query service, with the rights that docs/security.md lists for it and for backups. */
async function createBackupUser(database: string): Promise<void> {
  const rights = [...RIGHTS.query, ...CLUSTER_RIGHTS.query, ...SHARD_RIGHTS.query];
  for (const { server } of cluster.nodes) {
    await server.query("CREATE USER query IDENTIFIED WITH no_password SETTINGS PROFILE 'ours'");
    for (const right of [...rights, 'BACKUP ON {database}.*', 'SELECT ON system.backups'])
      await server.query(
        `GRANT ${right.replace('{database}', database).replace('{all}', databaseOfAll(database))} TO query`,
      );
  }
}

/** The same cluster, in which `work` follows each statement that begins a backup. */
function whileCopied(clickhouse: ClickHouse, work: () => Promise<void>): ClickHouse {
  const shards = clickhouse.shards!.map((shard) => ({
    ...shard,
    execute: async (statement: Parameters<ClickHouse['execute']>[0]) => {
      await shard.execute(statement);
      if (statement.sql.startsWith('BACKUP')) await work();
    },
  }));
  return { ...clickhouse, shards };
}

test(
  'a backup of all shards, restored into empty ones: ingest takes what came after it, once',
  { timeout: 1_800_000 },
  async () => {
    await openEmpty('backed');
    await createBackupUser('backed');
    // asks the first replicas, of which one lags
    const back = async (place: string, base?: string): Promise<BackupResult> => {
      const clickhouse = await openIn('backed', [0, 1, 2, 3], 'query');
      return await createBackup({ clickhouse, places, logger: testLogger }, { place, ...(base && { base }) });
    };
    const lagging = async (table: string, load: Parameters<World['produce']>[0]): Promise<() => Promise<unknown>> => {
      const { server } = cluster.nodes[0]!;
      await server.query(`SYSTEM STOP FETCHES backed.${table}`);
      await ingest('backed', load);
      return () => server.query(`SYSTEM START FETCHES backed.${table}`);
    };
    await ingest('backed', LOAD);
    const fetchRollup = await lagging('api_requests_v1', LOAD);
    const full = await back('local/full');
    await fetchRollup();
    expect(full.bytes).toBeGreaterThan(0);
    await expect(back('local/full')).rejects.toThrow(
      'the shard s1: local/full: there is a backup of this name already',
    );
    const fetchLedger = await lagging('batches', { edge_logs: 100, function_edge_logs: 60 });
    const increment = await back('local/increment', 'local/full');
    await fetchLedger();
    expect(increment.last_evaluated_at).toBeGreaterThan(full.last_evaluated_at);

    for (const [place, into, made] of [
      ['local/full', 'backed', full],
      ['local/increment', 'other', increment],
    ] as const) {
      const restored = await openEmpty(into);
      const { last_evaluated_at } = await restoreBackup(
        { clickhouse: restored, places, logger: testLogger },
        { place, database: 'backed' },
        world.settings.RAW_RETENTION_DAYS,
      );
      expect(last_evaluated_at).toBe(made.last_evaluated_at);
      await expectReplicated(into);
      await waitForSchema(restored, testLogger);
      expect((await world.behind(restored)).length).toBeGreaterThan(0);
      await whileRunning(restored, async () => {
        await world.produce({ edge_logs: 40, function_edge_logs: 40 });
        await expectExact(restored, into);
      });
    }
  },
);

test('a backup of which a shard is missing is refused, or cannot be restored', { timeout: 900_000 }, async () => {
  const clickhouse = await openEmpty('parts');
  const context = { clickhouse, places, logger: testLogger };
  await migrate(clickhouse, testLogger);
  const [, second] = clickhouse.shards!;

  // a file where the folder of the second shard belongs
  mkdirSync(join(backups, 'half'), { recursive: true });
  writeFileSync(join(backups, 'half', 's2'), '');
  await expect(createBackup(context, { place: 'local/half' })).rejects.toThrow('the shard s2: local/half: ');
  await clickhouse.execute({
    sql: "INSERT INTO partition_owners (topic, partition, epoch, consumer_group, shard) VALUES ('gone', 0, 1, 'g', 's3')",
  });
  await createBackup(context, { place: 'local/gone' });
  const write = (): Promise<void> =>
    second!.execute({
      sql: "INSERT INTO batches (source, topic, partition, incarnation, first, last, evaluated_at) VALUES ('edge_logs', 't', 0, 0, 0, 0, now64(3))",
    });
  await expect(
    createBackup({ ...context, clickhouse: whileCopied(clickhouse, write) }, { place: 'local/written' }),
  ).rejects.toThrow('ingest wrote while it ran');
  await second!.execute({
    sql: "INSERT INTO dead_letters (source, kafka_topic, kafka_partition, kafka_offset, batch_last, evaluated_at, record_time, reason) VALUES ('edge_logs', 'under.way', 3, 7, 9, now64(3), 0, 'not_an_event')",
  });
  await expect(createBackup(context, { place: 'local/never' })).rejects.toThrow(/under\.way partition 3 .* in flight/);

  for (const [place, reason] of [
    ['local/absent', 'the shard s1: local/absent: there is no backup of this name'],
    ['local/half', 'the shard s2: local/half: '],
    ['local/gone', 'partitions on the shard s3, but this cluster has s1, s2'],
  ] as const) {
    const empty = await openEmpty('parts');
    await expect(restoreBackup({ ...context, clickhouse: empty }, { place }, 90)).rejects.toThrow(reason);
    // no service finds a schema, and nobody takes it for empty
    for (const { server } of cluster.nodes)
      expect(
        await server.query("SELECT count() FROM system.tables WHERE database = 'parts' AND name = 'migrations'"),
      ).toBe('0');
    if (place !== 'local/gone') continue;
    for (const { server } of cluster.nodes.slice(0, 3)) await server.query('DROP TABLE parts.partition_owners SYNC');
    await expect(restoreBackup({ ...context, clickhouse: empty }, { place }, 90)).rejects.toThrow(
      /has 1 tables, .* empty/,
    );
  }
});

const byPlace = (a: { topic: string; partition: number }, b: { topic: string; partition: number }): number =>
  a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1;
