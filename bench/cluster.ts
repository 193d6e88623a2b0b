import { openCluster } from '../common/clickhouse/cluster/shards.ts';
import type { ClickHouse } from '../common/clickhouse/clickhouse.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { openServer } from '../common/clickhouse/server/server.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic } from '../demo/traffic.ts';
import { CLUSTER, startCluster } from '../test/harness/clickhouse-cluster.ts';
import { startServer, type TestServer } from '../test/harness/clickhouse-server.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openTestStore } from '../test/harness/ingest-store.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { recordsOf } from './filled.ts';
import { ofRuns, report, type Measurement } from './report.ts';
import { cpuMs, cpuSeconds } from './service.ts';

const SEED = 11;
const ROUNDS = 8;
/** Batches of a round, and the events of each: as large as ingest makes them with a backlog (32 MB). */
const BATCHES = 4;
const EVENTS = 10_000;
const DATABASE = 'bench';

interface Side {
  readonly what: string;
  readonly clickhouse: ClickHouse;
  readonly servers: readonly TestServer[];
  /** of everything that works for it, seconds */
  cpu(): number;
  /** Resolves when every replica has every row. */
  settled(): Promise<void>;
}

/**
 * What replication costs: batches of edge events into raw, rollups and ledger, on one server and on two replicas with
 * ZooKeeper, in turn. A round ends when both replicas have everything. CPU is that of all rounds, merges included:
 * they come in some rounds only, and last into the next one.
 */
export async function benchCluster(): Promise<void> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const single = await startServer({ dataDir: folder.path });
  const cluster = await startCluster(folder.path);
  for (const server of [single, ...cluster.nodes.map((n) => n.server)])
    await server.query(`CREATE DATABASE ${DATABASE}`);
  const sides: readonly Side[] = [
    {
      what: 'one server',
      servers: [single],
      clickhouse: await openServer({ url: `${single.url}/${DATABASE}`, logger }),
      cpu: () => cpuSeconds(single.pid),
      settled: () => Promise.resolve(),
    },
    {
      what: 'two replicas and ZooKeeper',
      servers: cluster.nodes.map((n) => n.server),
      clickhouse: await openCluster({ urls: cluster.url(DATABASE).split(','), cluster: CLUSTER, logger }),
      cpu: () =>
        [...cluster.nodes.map((n) => n.server), cluster.zookeeper].reduce((sum, p) => sum + cpuSeconds(p.pid), 0),
      settled: async () => {
        for (const table of ['edge_logs', 'api_requests_v1', 'batches'])
          await cluster.nodes[1]!.server.query(`SYSTEM SYNC REPLICA ${DATABASE}.${table} LIGHTWEIGHT`);
      },
    },
  ];
  try {
    const traffic = createTraffic({ seed: SEED, projects: 50, functionsPerProject: 1, shares: { edge_logs: 1 } });
    const stores = sides.map(({ clickhouse }) => openTestStore(clickhouse, { source: 'edge_logs', topic: 'bench' }));
    for (const { clickhouse } of sides) await migrate(clickhouse, logger);
    const perSecond = sides.map((): number[] => []);
    /** of this process for each side, seconds */
    const ours = sides.map(() => 0);
    let before = sides.map(() => 0);
    let offset = 0;
    // the first round warms up
    for (let round = 0; round <= ROUNDS; round++) {
      const batches = Array.from({ length: BATCHES }, () => {
        offset += EVENTS;
        return recordsOf(traffic, offset - EVENTS, EVENTS);
      });
      for (const i of round % 2 === 0 ? [0, 1] : [1, 0]) {
        const [from, cpu] = [performance.now(), process.cpuUsage()];
        for (const records of batches) await stores[i]!.writeBatch({ records });
        await sides[i]!.settled();
        if (round === 0) continue;
        perSecond[i]!.push((BATCHES * EVENTS * 1000) / (performance.now() - from));
        ours[i]! += cpuMs(cpu) / 1000;
      }
      if (round > 0 && round < ROUNDS) continue;
      for (const server of sides.flatMap(({ servers }) => servers)) await merged(server);
      if (round === 0) before = sides.map((side) => side.cpu());
    }
    const micros = sides.map((side, i) => ((side.cpu() - before[i]! + ours[i]!) * 1e6) / (ROUNDS * BATCHES * EVENTS));
    report({
      bench: 'cluster',
      seed: SEED,
      engine: sides[0]!.clickhouse.version,
      measurements: [
        ...sides.flatMap(({ what }, i): Measurement[] => [
          { what: `${what}: events`, unit: '/s', ...ofRuns(perSecond[i]!) },
          { what: `${what}: CPU an event, ingest's own included`, unit: 'us', value: micros[i]! },
        ]),
        {
          what: 'two replicas and ZooKeeper to one server: CPU an event',
          unit: 'times',
          value: micros[1]! / micros[0]!,
          goal: { atMost: 1.6 },
        },
      ],
    });
  } finally {
    for (const { clickhouse } of sides) await clickhouse.close();
    await single.kill();
    await cluster.stop();
    folder.remove();
  }
}

async function merged(server: TestServer): Promise<void> {
  await waitFor(async () => (await server.query('SELECT count() FROM system.merges')) === '0', 60_000, 'no merge runs');
}
