import { join } from 'node:path';
import { startServer, type TestServer } from './clickhouse-server.ts';
import { startKeeperRelay, type KeeperRelay } from './keeper-relay.ts';
import { lastingPort } from './ports.ts';
import { RELAY_HOST, startRelay } from './relay.ts';
import { startZooKeeper, type ZooKeeper } from './zookeeper.ts';

/** The name of the cluster in the servers' `remote_servers`. */
export const CLUSTER = 'pair';

interface NodePorts {
  readonly http: number;
  readonly tcp: number;
  readonly interserver: number;
}

interface ClusterNode {
  server: TestServer;
  readonly shard: string;
  readonly replica: string;
}

export interface TestCluster {
  readonly zookeeper: ZooKeeper;
  /** Each node's way to ZooKeeper. Needs `relayed`. */
  readonly keepers: readonly KeeperRelay[];
  /** shard after shard */
  readonly nodes: readonly ClusterNode[];
  /** CLICKHOUSE_URL of all nodes, or of these, in this order */
  url(database: string, indexes?: readonly number[]): string;
  /** Starts a node again that was killed; `empty`: as a new machine, without its former data. */
  restart(index: number, options?: { readonly empty?: boolean }): Promise<void>;
  /** Cuts the connection over which two nodes send each other their rows. Needs `severable`. */
  cut(one: number, other: number): void;
  /** Every cut connection works again. */
  heal(): void;
  stop(): Promise<void>;
}

/** Starts genuine ClickHouse 25.8 servers that are one cluster, held together by ZooKeeper. */
export async function startCluster(
  dataDir: string,
  {
    shards = 1,
    replicas = 2,
    config = '',
    severable = false,
    relayed = false,
  }: { shards?: number; replicas?: number; config?: string; severable?: boolean; relayed?: boolean } = {},
): Promise<TestCluster> {
  const zookeeper = await startZooKeeper(dataDir);
  const keepers = await Promise.all(
    Array.from({ length: relayed ? shards * replicas : 0 }, () => startKeeperRelay(zookeeper.port)),
  );
  const places: { shard: string; replica: string; ports: NodePorts }[] = [];
  for (let shard = 1; shard <= shards; shard++)
    for (let replica = 1; replica <= replicas; replica++)
      places.push({
        shard: `s${shard}`,
        replica: `r${replica}`,
        ports: { http: await lastingPort(), tcp: await lastingPort(), interserver: await lastingPort() },
      });
  const shardXml = (shard: string): string =>
    `<shard><internal_replication>true</internal_replication>${places
      .filter((p) => p.shard === shard)
      .map((p) => `<replica><host>127.0.0.1</host><port>${p.ports.tcp}</port></replica>`)
      .join('')}</shard>`;
  const configOf = ({ shard, replica }: (typeof places)[number], { port }: { readonly port: number }): string => `
  <zookeeper>
    <node><host>127.0.0.1</host><port>${port}</port></node>
    <session_timeout_ms>15000</session_timeout_ms>
    <operation_timeout_ms>10000</operation_timeout_ms>
  </zookeeper>
  <macros><shard>${shard}</shard><replica>${replica}</replica></macros>
  <remote_servers replace="1"><${CLUSTER}><secret>of the test</secret>${[...new Set(places.map((p) => p.shard))].map(shardXml).join('')}</${CLUSTER}></remote_servers>
  <!-- this build fetches one part at a time by default, where the servers fetch 16 -->
  <background_fetches_pool_size>16</background_fetches_pool_size>
  <!-- a table that lost Keeper, or did not find it at the start, looks for it every minute by default -->
  <merge_tree>
    <zookeeper_session_expiration_check_period>2</zookeeper_session_expiration_check_period>
    <initialization_retry_period>2</initialization_retry_period>
  </merge_tree>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
  ${config}`;
  const lives = places.map(() => 0);
  const start = (index: number): Promise<TestServer> => {
    const place = places[index]!;
    return startServer({
      dataDir: join(dataDir, `${place.shard}-${place.replica}-${lives[index]}`),
      config: configOf(place, keepers[index] ?? zookeeper),
      port: place.ports.http,
      tcpPort: place.ports.tcp,
      interserverPort: place.ports.interserver,
      ...(severable && { interserverHost: RELAY_HOST }),
    });
  };
  const nodes = await Promise.all(
    places.map(async ({ shard, replica }, index) => ({ server: await start(index), shard, replica })),
  );
  const relays = severable
    ? await Promise.all(
        places.map(({ ports }) => startRelay(ports.interserver, () => nodes.map(({ server }) => server.pid))),
      )
    : [];
  return {
    zookeeper,
    keepers,
    nodes,
    url: (database, indexes = nodes.map((_, i) => i)) =>
      indexes.map((i) => `${nodes[i]!.server.url}/${database}`).join(','),
    async restart(index, { empty = false } = {}) {
      if (empty) lives[index]!++;
      nodes[index]!.server = await start(index);
    },
    cut(one, other) {
      relays[one]!.cut(nodes[other]!.server.pid);
      relays[other]!.cut(nodes[one]!.server.pid);
    },
    heal() {
      for (const relay of relays) relay.heal();
    },
    async stop() {
      await Promise.all(nodes.map(({ server }) => server.kill()));
      await zookeeper.kill();
      await Promise.all([...relays, ...keepers].map((relay) => relay.close()));
    },
  };
}
