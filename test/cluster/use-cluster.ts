import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import type { ClickHouse, Read, ReadResult } from '../../common/clickhouse/clickhouse.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { openClickHouse } from '../../common/clickhouse/open.ts';
import { CLUSTER_RIGHTS, RIGHTS, SHARD_RIGHTS, type Service } from '../../common/clickhouse/rights.ts';
import { readSettings, type Settings } from '../../common/config/settings.ts';
import { createKafka } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { createWorld, type World } from '../faults/ledger.ts';
import { CLUSTER, startCluster, type TestCluster } from '../harness/clickhouse-cluster.ts';
import type { TestServer } from '../harness/clickhouse-server.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';

export const DATABASE = 'sluice';
/** Everything that is written while events flow. */
export const TABLES = [
  ...sources.map((s) => s.name),
  'batches',
  'dead_letters',
  'dead_letter_replays',
  'rollup_repairs',
  'api_requests_v1',
  'function_invocations_v1',
];
export const LOAD = { edge_logs: 200, function_edge_logs: 120, postgres_logs: 60, auth_logs: 40 } as const;
/** Under load of others four servers and ZooKeeper take minutes on two cores. */
export const PATIENCE_MS = 240_000;

/** Who may do everything, or a user of docs/security.md with exactly the rights that it lists. */
type User = 'sluice' | Service;

/** Nodes are counted shard after shard; `order`: which of them a process asks first. */
export interface UsedCluster {
  readonly cluster: TestCluster;
  readonly world: World;
  readonly folder: string;
  /** What our clients and ingests logged in this test. */
  readonly log: Record<string, unknown>[];
  clientAs(user: User, order: readonly number[], database?: string): Promise<ClickHouse>;
  /** Settings of a process of its own. */
  envOf(user: User, order: readonly number[]): Readonly<Record<string, string>>;
  /** Ingest that ends with the test. */
  ingestFrom(...order: readonly number[]): Promise<RunningIngest>;
  /** The same, with other settings. */
  ingestWith(settings: Partial<Settings>, ...order: readonly number[]): Promise<RunningIngest>;
  /** Creates the databases and users on an empty server. */
  prepare(server: TestServer): Promise<void>;
  /** What a replica holds by itself, whatever it still has to fetch. */
  countOn(node: number, table: string): Promise<number>;
  /**
   * Resolves to the node on which an insert runs that takes more than a second, so that a fault surely strikes it. Each
   * row of edge_logs takes 20 ms until `fast` is called. `of`: the nodes that are looked at.
   */
  slowInsert(of?: readonly number[]): Promise<{ readonly node: number; readonly fast: () => Promise<void> }>;
  /** Each replica has everything once, and says so. */
  expectExact(): Promise<void>;
}

/** Starts a cluster of two replicas a shard for the tests of a file, with the rollup service. */
export function useCluster(shape: { shards: number; severable?: boolean; relayed?: boolean }): UsedCluster {
  const { shards } = shape;
  const folder = temporaryFolder();
  const log: Record<string, unknown>[] = [];
  const ingests = new Set<RunningIngest>();
  const opened: ClickHouse[] = [];
  let cluster: TestCluster;
  let world: World;
  let rollup: RollupService;
  let readers: readonly ClickHouse[];
  const logger = pino(
    { level: 'info' },
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        log.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
        done();
      },
    }),
  );
  /** The nodes with this replica of each shard first. */
  const orderFrom = (replica: number): number[] =>
    Array.from({ length: shards }, (_, shard) => [2 * shard + replica, 2 * shard + 1 - replica]).flat();

  function envOf(user: User, order: readonly number[], database = DATABASE): Readonly<Record<string, string>> {
    const name = user === 'sluice' ? user : `${user}:x`;
    return {
      ...world.env,
      CLICKHOUSE_URL: cluster.url(database, order).replaceAll('//sluice@', `//${name}@`),
      CLICKHOUSE_CLUSTER: CLUSTER,
    };
  }

  async function clientAs(user: User, order: readonly number[], database?: string): Promise<ClickHouse> {
    const options = { wait: false, ...(user !== 'sluice' && { service: user }) };
    const client = await openClickHouse(readSettings(envOf(user, order, database)), logger, options);
    opened.push(client);
    return client;
  }

  async function prepare(server: TestServer): Promise<void> {
    const databases = [DATABASE, ...(shards > 1 ? [databaseOfAll(DATABASE)] : [])];
    for (const database of databases) await server.query(`CREATE DATABASE ${database}`);
    for (const user of ['ingest', 'query', 'rollup'] as const) {
      await server.query(`CREATE USER ${user} IDENTIFIED BY 'x' SETTINGS PROFILE 'ours'`);
      for (const right of [...RIGHTS[user], ...CLUSTER_RIGHTS[user], ...(shards > 1 ? SHARD_RIGHTS[user] : [])])
        await server.query(
          `GRANT ${right.replace('{database}', DATABASE).replace('{all}', databaseOfAll(DATABASE))} TO ${user}`,
        );
    }
  }

  async function ingestWith(settings: Partial<Settings>, ...order: readonly number[]): Promise<RunningIngest> {
    const clickhouse = await clientAs('ingest', order);
    const running = await startIngest({
      clickhouse,
      kafka: createKafka({
        brokers: kafkaBrokers(),
        clientId: 'cluster',
        logger,
        maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
      }),
      settings: { ...world.settings, ...settings },
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

  const countOn = async (node: number, table: string): Promise<number> =>
    Number(await cluster.nodes[node]!.server.query(`SELECT count() FROM ${DATABASE}.${table}`));

  async function insertingNode(nodes: readonly number[]): Promise<number | undefined> {
    for (const node of nodes) {
      const found = await cluster.nodes[node]!.server.query(
        "SELECT count() FROM system.processes WHERE startsWith(query_id, 'ingest:edge_logs') AND elapsed > 0.3",
      );
      if (found !== '0') return node;
    }
    return undefined;
  }

  /** Waits before each read until every replica has all rows of its shard, because any replica may answer. */
  async function settledRead(client: ClickHouse, read: Read): Promise<ReadResult> {
    for (const { server } of cluster.nodes)
      for (const table of TABLES) await server.query(`SYSTEM SYNC REPLICA ${DATABASE}.${table} LIGHTWEIGHT`);
    return await client.read(read);
  }

  beforeAll(async () => {
    cluster = await startCluster(folder.path, shape);
    for (const { server } of cluster.nodes) await prepare(server);
    world = await createWorld();
    rollup = await startRollup({
      clickhouse: await clientAs('rollup', orderFrom(0)),
      settings: world.settings,
      logger: testLogger,
      registry: createRegistry(),
    });
    readers = [await clientAs('query', orderFrom(0)), await clientAs('query', orderFrom(1))];
  }, 600_000);

  beforeEach(({ onTestFailed }) => {
    log.length = 0;
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

  return {
    get cluster() {
      return cluster;
    },
    get world() {
      return world;
    },
    folder: folder.path,
    log,
    clientAs,
    envOf,
    ingestFrom: (...order) => ingestWith({}, ...order),
    ingestWith,
    prepare,
    countOn,
    async slowInsert(of = [...cluster.nodes.keys()]) {
      const client = await clientAs('sluice', orderFrom(0));
      await client.execute({ sql: 'CREATE TABLE IF NOT EXISTS slowed (n UInt64) ENGINE = MergeTree ORDER BY n' });
      await client.execute({
        sql: 'CREATE MATERIALIZED VIEW slowed_mv TO slowed AS SELECT kafka_offset AS n FROM edge_logs WHERE sleepEachRow(0.02) = 0',
      });
      await world.produce({ edge_logs: 150 });
      return {
        node: await waitFor(() => insertingNode(of), PATIENCE_MS, 'an insert runs'),
        fast: () => client.execute({ sql: 'DROP VIEW slowed_mv SYNC' }),
      };
    },
    async expectExact() {
      for (const client of readers) {
        const settled = {
          get shards() {
            return client.shards;
          },
          read: (read: Read) => settledRead(client, read),
        };
        await world.finished(settled, PATIENCE_MS);
        await world.expectExact(settled);
      }
      for (const table of TABLES)
        for (let one = 0; one < cluster.nodes.length; one += 2)
          expect(await countOn(one + 1, table), `${table} on the nodes ${one} and ${one + 1}`).toBe(
            await countOn(one, table),
          );
    },
  };
}
