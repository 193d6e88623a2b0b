import { openCluster } from '../common/clickhouse/cluster/shards.ts';
import type { ClickHouse } from '../common/clickhouse/clickhouse.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { openServer } from '../common/clickhouse/server/server.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic } from '../demo/traffic.ts';
import { CLUSTER, startCluster } from '../test/harness/clickhouse-cluster.ts';
import { startServer } from '../test/harness/clickhouse-server.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openTestStore } from '../test/harness/ingest-store.ts';
import { ofRuns, report, type Measurement } from './report.ts';
import { cpuSeconds } from './service.ts';

const SEED = 11;
const ROUNDS = 5;
/** Batches of a round, and the events of each: as large as ingest makes them with a backlog. */
const BATCHES = 4;
const EVENTS = 3_400;
const DATABASE = 'bench';

interface Side {
  readonly what: string;
  readonly clickhouse: ClickHouse;
  /** of everything that works for it, seconds */
  cpu(): number;
  /** Resolves when every replica has every row. */
  settled(): Promise<void>;
}

/**
 * What replication costs: batches of edge events into raw, rollups and ledger, on one server and on two replicas with
 * ZooKeeper, in turn. A round ends when both replicas have everything.
 */
export async function benchCluster(): Promise<void> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const single = await startServer({ dataDir: folder.path });
  const cluster = await startCluster(folder.path);
  for (const server of [single, ...cluster.nodes.map((n) => n.server)])
    await server.query(`CREATE DATABASE ${DATABASE}`);
  const own = (): number => process.cpuUsage().user / 1e6 + process.cpuUsage().system / 1e6;
  const sides: readonly Side[] = [
    {
      what: 'one server',
      clickhouse: await openServer({ url: `${single.url}/${DATABASE}`, logger }),
      cpu: () => cpuSeconds(single.pid),
      settled: () => Promise.resolve(),
    },
    {
      what: 'two replicas and ZooKeeper',
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
    const cpuMicros = sides.map((): number[] => []);
    let offset = 0;
    for (let round = 0; round <= ROUNDS; round++) {
      const batches = Array.from({ length: BATCHES }, () =>
        Array.from({ length: EVENTS }, () => ({
          offset: offset++,
          time: Date.now(),
          key: null,
          value: Buffer.from(traffic.next(Date.now() * 1000).json),
          headers: [],
        })),
      );
      for (const i of round % 2 === 0 ? [0, 1] : [1, 0]) {
        const [from, cpu] = [performance.now(), sides[i]!.cpu() + own()];
        for (const records of batches) await stores[i]!.writeBatch({ records });
        await sides[i]!.settled();
        // the first round warms up
        if (round === 0) continue;
        perSecond[i]!.push((BATCHES * EVENTS * 1000) / (performance.now() - from));
        cpuMicros[i]!.push(((sides[i]!.cpu() + own() - cpu) * 1e6) / (BATCHES * EVENTS));
      }
    }
    report({
      bench: 'cluster',
      seed: SEED,
      engine: sides[0]!.clickhouse.version,
      measurements: sides.flatMap(({ what }, i): Measurement[] => [
        { what: `${what}: events`, unit: '/s', ...ofRuns(perSecond[i]!) },
        { what: `${what}: CPU an event, ingest's own included`, unit: 'us', ...ofRuns(cpuMicros[i]!) },
      ]),
    });
  } finally {
    for (const { clickhouse } of sides) await clickhouse.close();
    await single.kill();
    await cluster.stop();
    folder.remove();
  }
}
