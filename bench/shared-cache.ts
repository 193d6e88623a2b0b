import { select, type ClickHouse } from '../common/clickhouse/clickhouse.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { openServer } from '../common/clickhouse/server/server.ts';
import { freePort } from '../common/kafka/local-broker/local-broker.ts';
import { createLogger } from '../common/logger.ts';
import { createTraffic } from '../demo/traffic.ts';
import { startServer } from '../test/harness/clickhouse-server.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openTestStore } from '../test/harness/ingest-store.ts';
import { startRedis } from '../test/harness/redis.ts';
import { endAll, startScript } from '../test/harness/service.ts';
import { waitFor } from '../test/harness/wait-for.ts';
import { recordsOf, SEED } from './filled.ts';
import { quantile, report, type Measurement } from './report.ts';
import { API_KEY } from './service.ts';

const BATCHES = 10;
/** of a batch */
const EVENTS = 10_000;
/** of different projects; some more projects are for the calls that warm up */
const CALLS = 400;
const PROJECTS = 450;
const DATABASE = 'bench';
const DEADLINE_MS = 60_000;

interface Asked {
  /** milliseconds */
  readonly times: readonly number[];
  /** how many ClickHouse answered */
  readonly misses: number;
}

/**
 * Two query processes on one server: what an answer costs the second one that the first one has given already, with a
 * Redis that both share and without.
 */
export async function benchSharedCache(): Promise<void> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const server = await startServer({ dataDir: folder.path });
  const redis = await startRedis();
  try {
    await server.query(`CREATE DATABASE ${DATABASE}`);
    const url = `${server.url}/${DATABASE}`;
    const clickhouse = await openServer({ url, logger });
    await migrate(clickhouse, logger);
    const projects = await fill(clickhouse);
    await clickhouse.close();
    const measurements: Measurement[] = [];
    for (const [what, more] of [
      ['two processes', {}],
      ['two processes that share Redis', { REDIS_URL: redis.url }],
    ] as const) {
      const [first, second] = await Promise.all([startQuery(url, more), startQuery(url, more)]);
      for (const { address } of [first, second]) await ask(address, projects.slice(CALLS));
      const asked = await ask(first.address, projects.slice(0, CALLS));
      const again = await ask(second.address, projects.slice(0, CALLS));
      measurements.push(
        ...measured(`${what}: the first one`, asked),
        ...measured(`${what}: the other one, the same calls`, again),
      );
      await Promise.all([first.end(), second.end()]);
    }
    report({ bench: 'shared-cache', seed: SEED, engine: server.version, measurements });
  } finally {
    await endAll();
    await redis.stop();
    await server.kill();
    folder.remove();
  }
}

/** Returns the references of the projects that have requests. */
async function fill(clickhouse: ClickHouse): Promise<string[]> {
  const traffic = createTraffic({ seed: SEED, projects: PROJECTS, functionsPerProject: 1, shares: { edge_logs: 1 } });
  const store = openTestStore(clickhouse, { source: 'edge_logs', topic: 'bench' });
  for (let offset = 0; offset < BATCHES * EVENTS; offset += EVENTS)
    await store.writeBatch({ records: recordsOf(traffic, offset, EVENTS) });
  const found = await select<{ ref: string }>(
    clickhouse,
    'SELECT toString(ref) AS ref FROM api_requests_v1 WHERE width = 60 GROUP BY ref ORDER BY ref',
  );
  return found.map(({ ref }) => ref);
}

const measured = (what: string, { times, misses }: Asked): Measurement[] => [
  { what: `${what}, p50`, value: quantile(times, 0.5), unit: 'ms' },
  { what: `${what}, p95`, value: quantile(times, 0.95), unit: 'ms' },
  { what: `${what}, answered by ClickHouse`, value: misses, unit: `of ${CALLS}` },
];

/** `npm run query` */
async function startQuery(
  url: string,
  more: Readonly<Record<string, string>>,
): Promise<{ readonly address: string; end(): Promise<number | null> }> {
  const port = await freePort();
  const address = `http://127.0.0.1:${port}`;
  const service = startScript('query', {
    CLICKHOUSE_URL: url,
    API_KEY,
    PORT: String(port),
    LOG_LEVEL: 'error',
    ...more,
  });
  await waitFor(async () => (await fetch(`${address}/readyz`)).ok, DEADLINE_MS, 'the query service is ready');
  return { address, end: () => service.end() };
}

async function ask(address: string, projects: readonly string[]): Promise<Asked> {
  const times: number[] = [];
  let misses = 0;
  for (const project of projects) {
    const from = performance.now();
    const response = await fetch(`${address}/api/endpoints/usage.api-counts?interval=daily&project=${project}`, {
      headers: { 'x-api-key': API_KEY },
    });
    const body = await response.text();
    times.push(performance.now() - from);
    if (!response.ok) throw new Error(`${response.status} ${body}`);
    if (response.headers.get('x-cache') === 'miss') misses++;
  }
  return { times, misses };
}
