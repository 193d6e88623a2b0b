import { beforeAll, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Read, type Statement } from '../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { proveExactlyOnce } from '../../services/ingest/store/canary.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import type { RunningIngest } from '../../services/ingest/service.ts';
import { createBadShares, readPauses, resumePartition } from '../../services/ingest/store/bad-share-pause.ts';
import { createShardOf } from '../../services/ingest/store/shard.ts';
import { statements } from '../../services/ingest/store/statements.ts';
import { build } from '../../services/rollup/period/build.ts';
import { readRollups } from '../../services/rollup/period/catalogue.ts';
import { ALL_TIME } from '../../services/rollup/period/view-sql.ts';
import { differencesOf } from '../../services/rollup/repairs.ts';
import type { Context } from '../../services/rollup/period/context.ts';
import { createRollupMetrics } from '../../services/rollup/period/metrics.ts';
import { newestPeriod } from '../../services/rollup/period/periods.ts';
import { testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { waitFor } from '../harness/wait-for.ts';
import { DATABASE, LOAD, PATIENCE_MS, TABLES, useCluster } from './use-cluster.ts';

// Guarantee: two replicas of one shard lose and double nothing while either is killed, lags or is replaced, and while
// Keeper is unavailable. Each test says in which state its fault struck. Afterwards the account is exact, every rollup
// equals its raw table, and both replicas say so.

const on = useCluster({ shards: 1 });
/** Through the first node, and through the second one. */
let clients: readonly [ClickHouse, ClickHouse];
const client = (...order: readonly number[]): Promise<ClickHouse> => on.clientAs('sluice', order);

const contextOf = (clickhouse: ClickHouse): Context => ({
  clickhouse,
  settings: on.world.settings,
  logger: testLogger,
  metrics: createRollupMetrics(undefined),
  clock: Date.now,
  engineClock: () => Promise.resolve(Date.now()),
  wait: () => Promise.resolve(),
});

/** Whether all tables of a node, or none, have a session in Keeper. */
async function hasKeeper(node: number, all: boolean): Promise<boolean> {
  const { server } = on.cluster.nodes[node]!;
  const sql = `SELECT countIf((is_session_expired OR is_readonly) = ${all}) FROM system.replicas`;
  return (await server.query(sql)) === '0';
}

/** Makes a client leave this node, its current one, for the other one. */
async function leave(clickhouse: ClickHouse, node: 0 | 1): Promise<void> {
  const { server } = on.cluster.nodes[node]!;
  await server.query(`SYSTEM STOP FETCHES ${DATABASE}.canary`);
  try {
    await proveExactlyOnce(await client(1 - node, node));
    await select(fresh(clickhouse, ['canary'], 4_000), 'SELECT 1');
  } finally {
    await server.query(`SYSTEM START FETCHES ${DATABASE}.canary`);
  }
}

/** 50 requests of one project. */
function edgeBatch(period: number) {
  const evaluatedAt = Date.now();
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
  return { evaluatedAt, period, records };
}

/** A database without tables on both nodes, beside that of the other tests. */
async function databaseBeside(database: string) {
  const queryOn = (node: number, sql: string): Promise<string> => on.cluster.nodes[node]!.server.query(sql);
  for (const node of [0, 1]) await queryOn(node, `CREATE DATABASE ${database}`);
  return { queryOn, open: (...order: readonly number[]) => on.clientAs('sluice', order, database) };
}

beforeAll(async () => {
  clients = [await client(0, 1), await client(1, 0)];
});

test('the same batch to either replica counts once, in raw and in its rollup', async () => {
  const stores = clients.map((clickhouse) => openTestStore(clickhouse, { source: 'edge_logs', topic: 'twice' }));
  const batch = edgeBatch(await newestPeriod({ clickhouse: clients[0] }));
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

test('of two builds of a period through different replicas, the earlier one swaps nothing in', async () => {
  const period = await newestPeriod({ clickhouse: clients[0] });
  const rollup = (await readRollups(clients[0])).find((r) => r.name === 'api_requests')!;
  let later: string | undefined;
  const execute = async (statement: Statement): Promise<void> => {
    if (statement.sql.includes('PARTITION ID'))
      later ??= (await build(contextOf(clients[1]), rollup, period, { urgent: true })).kind;
    await clients[0].execute(statement);
  };
  const earlier = await build(contextOf({ ...clients[0], execute }), rollup, period, { urgent: true });
  expect([earlier.kind, later]).toEqual(['taken', 'built']);
});

test('what one replica migrated is not migrated again through one that lags behind', async () => {
  const { queryOn, open } = await databaseBeside('migrated');
  const [one, two] = [await open(0, 1), await open(1, 0)];
  const migrations = ['a', 'b'].map((name, at) => ({
    version: at + 1,
    name: `000${at + 1}_create_${name}.sql`,
    checksum: name,
    statements: [`CREATE TABLE ${name} (n UInt8) ENGINE = MergeTree ORDER BY n`],
  }));
  await migrate(one, testLogger, migrations.slice(0, 1));
  await queryOn(1, 'SYSTEM STOP FETCHES migrated.migrations');
  try {
    await migrate(one, testLogger, migrations);
    expect(await migrate(two, testLogger, migrations)).toEqual({ version: 2, applied: 0 });
  } finally {
    await queryOn(1, 'SYSTEM START FETCHES migrated.migrations');
  }
});

test('a start creates no table on an empty node that has no database yet, or no tables', async () => {
  const { queryOn, open } = await databaseBeside('joined');
  const clickhouse = await open(0, 1);
  const sql = 'CREATE TABLE a (n UInt8) ENGINE = MergeTree ORDER BY n';
  const migrations = [{ version: 1, name: '0001_create_a.sql', checksum: 'a', statements: [sql] }];
  await migrate(clickhouse, testLogger, migrations);
  for (const statement of ['DROP DATABASE joined SYNC', 'CREATE DATABASE joined']) {
    await queryOn(1, statement);
    for (const from of [clickhouse, await open(1, 0)])
      await expect(migrate(from, testLogger, migrations)).resolves.toEqual({ version: 1, applied: 0 });
  }
  await clickhouse.cluster!.complete();
  const tables =
    "SELECT groupArray((name, uuid)) FROM (SELECT * FROM system.tables WHERE database = 'joined' ORDER BY name)";
  expect(await queryOn(1, tables)).toBe(await queryOn(0, tables));
});

test('a table that a migration creates on all nodes is created by nobody else', async () => {
  const { open } = await databaseBeside('migrating');
  const [one, other] = [await open(0, 1), await open(1, 0)];
  // its first call would wait for the end of the migration
  await other.cluster!.complete();
  const sql = 'CREATE TABLE a (n UInt8) ENGINE = MergeTree ORDER BY n';
  const execute = async (statement: Statement): Promise<void> => {
    if (statement.sql === sql) {
      // as if the other node had not begun yet
      await one.execute({ sql, ofNode: true });
      await other.cluster!.complete();
      await one.execute({ sql: 'DROP TABLE a SYNC', ofNode: true });
    }
    await one.execute(statement);
  };
  const migrations = [{ version: 1, name: '0001_create_a.sql', checksum: 'a', statements: [sql] }];
  await expect(migrate({ ...one, execute }, testLogger, migrations)).resolves.toEqual({ version: 1, applied: 1 });
});

test('FSYNC reaches the tables of every replica, and stops at none that one of them has alone', async () => {
  const { queryOn, open } = await databaseBeside('fsynced');
  const clickhouse = await open(0, 1);
  const create = (name: string): string => `CREATE TABLE ${name} (n UInt8) ENGINE = MergeTree ORDER BY n`;
  const migrations = [{ version: 1, name: '0001_create_a.sql', checksum: 'a', statements: [create('a')] }];
  await migrate(clickhouse, testLogger, migrations);
  await clickhouse.execute({ sql: create('a_build_1704067200_0000000a'), ofNode: true });
  await queryOn(0, create('fsynced.`my-own`'));
  for (const fsync of [true, false]) {
    await migrate(clickhouse, testLogger, migrations, fsync);
    for (const node of [0, 1])
      expect(
        await queryOn(
          node,
          "SELECT groupArray(engine_full LIKE '%fsync_after_insert = 1%') FROM system.tables WHERE database = 'fsynced' AND name IN ('a', 'migrations')",
        ),
      ).toBe(fsync ? '[1,1]' : '[0,0]');
  }
});

test('a view that a returning replica has not dropped yet is not created on the others again', async () => {
  const { queryOn, open } = await databaseBeside('dropped');
  for (const node of [0, 1]) await queryOn(node, 'CREATE TABLE dropped.raw (n UInt8) ENGINE = MergeTree ORDER BY n');
  await queryOn(0, 'CREATE VIEW dropped.r_v1 AS SELECT n FROM dropped.raw');
  await queryOn(1, 'CREATE TABLE dropped.r_v1 (n UInt8) ENGINE = MergeTree ORDER BY n');
  await queryOn(1, 'CREATE MATERIALIZED VIEW dropped.r_v1_mv TO dropped.r_v1 AS SELECT n FROM dropped.raw');
  await (await open(0, 1)).cluster!.complete();
  await queryOn(0, 'INSERT INTO dropped.raw SELECT 1');
  expect(await queryOn(0, 'SELECT count() FROM dropped.raw')).toBe('1');
});

test('what asks for fresh rows of a table that no node has is told so', async () => {
  const { open } = await databaseBeside('empty');
  await expect(reconcile(await open(0, 1), 90, 0)).rejects.toMatchObject({ codeName: 'UNKNOWN_TABLE' });
});

test('the proof of exactly once sees its rows through a replica that lags behind', async () => {
  await on.cluster.nodes[1]!.server.query(`SYSTEM STOP FETCHES ${DATABASE}.canary`);
  try {
    // the node is lost after the inserts
    const lagging = await client(1, 0);
    const afterLoss = { ...clients[0], read: (read: Read) => lagging.read(read) };
    await expect(proveExactlyOnce(afterLoss)).resolves.toBeUndefined();
  } finally {
    await on.cluster.nodes[1]!.server.query(`SYSTEM START FETCHES ${DATABASE}.canary`);
  }
});

test('a pause that one replica has not fetched yet is listed and ended through it', async () => {
  const [writing, lagging] = [await client(0, 1), await client(1, 0)];
  const place = { topic: 'paused', partition: 3 };
  await on.cluster.nodes[1]!.server.query(`SYSTEM STOP FETCHES ${DATABASE}.paused_partitions`);
  try {
    await writing.execute({
      sql: statements.pausePartition,
      params: { ...place, incarnation: 0, next: 5, bad: 1, messages: 1, seconds: 600 },
    });
    expect(await readPauses(lagging, place)).toMatchObject([{ ...place, next: 5 }]);
    await resumePartition(await client(1, 0), place.topic, place.partition);
    expect(await readPauses(writing, place)).toMatchObject([{ leftMs: 0 }]);
  } finally {
    await on.cluster.nodes[1]!.server.query(`SYSTEM START FETCHES ${DATABASE}.paused_partitions`);
  }
});

test.each(['batches', 'paused_partitions'])(
  'a partition is paused through a replica that has not fetched the last rows of %s',
  async (table) => {
    const [writing, lagging] = [await client(0, 1), await client(1, 0)];
    const place = { topic: `lags in ${table}`, partition: 3 };
    const params = { ...place, incarnation: 0, next: 0, bad: 1, messages: 1, seconds: 600 };
    const pause = (): Promise<void> => writing.execute({ sql: statements.pausePartition, params });
    await pause();
    expect(await readPauses(lagging, place)).toMatchObject([{ next: 0 }]);
    await on.cluster.nodes[1]!.server.query(`SYSTEM STOP FETCHES ${DATABASE}.${table}`);
    try {
      await resumePartition(writing, place.topic, place.partition);
      await pause();
      await resumePartition(writing, place.topic, place.partition);
      const records = [{ offset: 0, time: Date.now(), key: null, headers: [], value: Buffer.from('no event') }];
      await openTestStore(writing, { source: 'edge_logs', ...place }).writeBatch({ records });
      const limits = { percent: 50, window: 1, pauseSeconds: 600 };
      expect(
        await createBadShares(lagging, createShardOf(lagging), limits)(place.topic, place.partition).pauses(0, 1),
      ).toBe(true);
    } finally {
      await on.cluster.nodes[1]!.server.query(`SYSTEM START FETCHES ${DATABASE}.${table}`);
    }
    const [found] = await readPauses(writing, place);
    expect(found).toMatchObject({ next: 1, bad: 1 });
    expect(found!.leftMs).toBeGreaterThan(0);
  },
);

test('a lost replica is not left out of what every node must do while Keeper is unavailable', async () => {
  const { cluster } = on;
  const clickhouse = await client(0, 1);
  await cluster.nodes[1]!.server.kill();
  await cluster.zookeeper.kill();
  try {
    await waitFor(() => hasKeeper(0, false), PATIENCE_MS, 'the session has ended');
    await expect(clickhouse.killInsert('none')).rejects.toMatchObject({ kind: 'retry' });
  } finally {
    await cluster.zookeeper.start();
    await cluster.restart(1);
  }
  for (const node of [0, 1]) await waitFor(() => hasKeeper(node, true), PATIENCE_MS, 'Keeper is there again');
});

test('a replica whose users lack rights delays takeovers, and ends no service', async () => {
  const { server } = on.cluster.nodes[1]!;
  const [ingest, rollup] = [await on.clientAs('ingest', [0, 1]), await on.clientAs('rollup', [0, 1])];
  await rollup.execute({ sql: 'CREATE TABLE half (n UInt8) ENGINE = MergeTree ORDER BY n' });
  await server.query(`DROP TABLE ${DATABASE}.half SYNC`);
  await server.query('REVOKE SELECT ON system.processes FROM ingest');
  await server.query(`REVOKE CREATE TABLE ON ${DATABASE}.* FROM rollup`);
  try {
    await expect(ingest.killInsert('none')).rejects.toMatchObject({ kind: 'retry', codeName: 'ACCESS_DENIED' });
    await rollup.cluster!.complete();
    const reason = expect.stringContaining('CREATE TABLE');
    expect(on.log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_not_ready', reason }));
  } finally {
    await server.query('GRANT SELECT ON system.processes TO ingest');
    await server.query(`GRANT CREATE TABLE ON ${DATABASE}.* TO rollup`);
  }
  await expect(ingest.killInsert('none')).resolves.toBeUndefined();
  await rollup.cluster!.complete();
  expect(await on.countOn(1, 'half')).toBe(0);
  await rollup.execute({ sql: 'DROP TABLE half SYNC' });
});

test('ingest that starts without Keeper waits for it', async () => {
  let starting: Promise<RunningIngest>;
  await on.cluster.zookeeper.kill();
  try {
    for (const node of [0, 1]) await waitFor(() => hasKeeper(node, false), PATIENCE_MS, 'the session has ended');
    starting = on.ingestFrom(0, 1);
    await waitFor(() => on.log.some(({ during }) => during === 'the start'), PATIENCE_MS, 'it says that it waits');
  } finally {
    await on.cluster.zookeeper.start();
  }
  const ingest = await starting;
  await waitFor(() => ingest.isJoined(), PATIENCE_MS, 'it has joined its group');
  expect(ingest.stuck()).toEqual([]);
  await ingest.stop();
  for (const node of [0, 1]) await waitFor(() => hasKeeper(node, true), PATIENCE_MS, 'Keeper is there again');
});

test('a build whose node is left for another one is taken up again', async () => {
  const own = await client(0, 1);
  const period = await newestPeriod({ clickhouse: own });
  const rollup = (await readRollups(own)).find((r) => r.name === 'api_requests')!;
  const execute = async (statement: Statement): Promise<void> => {
    if (statement.sql.startsWith('TRUNCATE')) await leave(own, 0);
    await own.execute(statement);
  };
  expect(await build(contextOf({ ...own, execute }), rollup, period, { urgent: true })).toEqual({ kind: 'taken' });
  expect(await build(contextOf(own), rollup, period, { urgent: true })).toMatchObject({ kind: 'built' });
});

test('a node that lags fills no rollup, though another one was looked at before', async () => {
  const { nodes } = on.cluster;
  const own = await client(0, 1);
  const period = await newestPeriod({ clickhouse: own });
  const rollup = (await readRollups(own)).find((r) => r.name === 'api_requests')!;
  const started = `SYSTEM START FETCHES ${DATABASE}.edge_logs`;
  await nodes[0]!.server.query(started.replace('START', 'STOP'));
  try {
    await openTestStore(await client(1, 0), { source: 'edge_logs', topic: 'late' }).writeBatch(edgeBatch(period));
    const execute = async (statement: Statement): Promise<void> => {
      if (statement.sql.startsWith('TRUNCATE')) await leave(own, 1);
      await own.execute(statement);
      if (statement.sql.startsWith('INSERT')) await nodes[0]!.server.query(started);
    };
    const { kind } = await build(contextOf({ ...own, execute }), rollup, period, { urgent: true });
    expect(kind).toBe('taken');
  } finally {
    await nodes[0]!.server.query(started);
  }
  expect(await differencesOf(contextOf(own), rollup, period, ALL_TIME)).toEqual([]);
});

test(
  'kill -9 of a replica in the middle of an insert: only its partitions wait for it',
  { timeout: 600_000 },
  async () => {
    const [one, two] = clients;
    const ingest = await on.ingestFrom(0, 1);
    await on.world.produce(LOAD);
    await on.world.finished(fresh(two, TABLES), PATIENCE_MS);
    const { node, fast } = await on.slowInsert();
    await on.cluster.nodes[node]!.server.kill();
    const killedAt = performance.now();
    await select(one, 'SELECT count() FROM edge_logs');
    expect(performance.now() - killedAt).toBeLessThan(1_000);
    await on.world.produce({ postgres_logs: 60, auth_logs: 40 });
    await waitFor(
      async () => (await on.world.behind(two)).every((partition) => partition.startsWith('edge_logs')),
      PATIENCE_MS,
      'other partitions go on with the other replica',
    );
    // the insert that the kill cut
    expect(on.log).toContainEqual(
      expect.objectContaining({ msg: 'clickhouse_unavailable', during: expect.stringContaining('insert of batch') }),
    );
    await on.cluster.restart(node);
    await fast();
    await on.expectExact();
    await ingest.stop();
  },
);

test('a replica that lags behind while partitions change their owner', { timeout: 600_000 }, async () => {
  const first = await on.ingestFrom(0, 1);
  await on.cluster.nodes[1]!.server.query('SYSTEM STOP FETCHES');
  try {
    await on.world.produce(LOAD);
    await on.world.finished(fresh(clients[0], ['batches']), PATIENCE_MS);
    await first.stop();
    // all of it is acknowledged, and the second replica knows of none of it
    expect(await on.countOn(1, 'batches')).toBeLessThan(await on.countOn(0, 'batches'));
    const second = await on.ingestFrom(1, 0);
    await on.world.produce(LOAD);
    await on.world.finished(clients[0], PATIENCE_MS);
    expect(on.log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_changed', reason: 'REPLICA_LAGS' }));
    await second.stop();
  } finally {
    await on.cluster.nodes[1]!.server.query('SYSTEM START FETCHES');
  }
  await on.expectExact();
});

test(
  'a rollup is built from what every replica acknowledged, though the node that builds lags behind',
  { timeout: 600_000 },
  async () => {
    const ingest = await on.ingestFrom(1, 0);
    const clickhouse = await client(0, 1);
    await on.cluster.nodes[0]!.server.query('SYSTEM STOP FETCHES');
    try {
      await on.world.produce(LOAD);
      // since the kill above, this client may read through node 0, which fetches nothing
      await on.world.finished(fresh(clients[1], ['batches']), PATIENCE_MS);
      // what node 0 builds by itself lacks these rows, and swapping it in would drop them from the rollup
      expect(await on.countOn(0, 'edge_logs')).toBeLessThan(await on.countOn(1, 'edge_logs'));
      const context = contextOf(clickhouse);
      const period = await newestPeriod({ clickhouse: clients[1] });
      for (const of of await readRollups(clickhouse))
        await waitFor(
          async () => (await build(context, of, period, { urgent: true })).kind === 'built',
          PATIENCE_MS,
          `${of.name} is built, where the rollup service does not build it at the same time`,
        );
    } finally {
      await on.cluster.nodes[0]!.server.query('SYSTEM START FETCHES');
    }
    await ingest.stop();
    await clickhouse.close();
    await on.expectExact();
  },
);
