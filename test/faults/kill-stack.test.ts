import { afterEach, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openServer } from '../../common/clickhouse/server.ts';
import { startServer, type TestServer } from '../harness/clickhouse-server.ts';
import { serverOfRun } from '../harness/clickhouse-run.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { lastingPort } from '../harness/ports.ts';
import { pipe } from '../harness/kafka.ts';
import { endAll, startScript, type Service } from '../harness/service.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld } from './ledger.ts';

// Guarantee: the three services as an operator starts them, on a genuine ClickHouse server, survive kill -9 of the
// server, of ingest and of rollup while events keep coming:
// every message is once in its table, in the account and in every rollup, and the endpoint answers what a scan of the
// raw rows says.

const KEY = 'the-key-of-the-stack-test';
const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  await endAll();
  for (const end of ends.splice(0).toReversed()) await end();
});

test('kill -9 of the server, of ingest and of rollup under load', { timeout: 300_000 }, async () => {
  const folder = temporaryFolder();
  ends.push(folder.remove);
  let server = await startServer({ ...serverOfRun(), dataDir: folder.path });
  ends.push(() => server.kill());
  await server.query('CREATE DATABASE sluice');
  const world = await createWorld();
  const url = `${server.url}/sluice`;
  const env = { ...world.env, CLICKHOUSE_URL: url, DATA_DIR: folder.path, API_KEY: KEY };
  // an orchestrator starts again what ended, until the test is over
  let over = false;
  const kept = new Map<string, Service>();
  const keep = (script: string, more: Readonly<Record<string, string>> = {}): void => {
    const service = startScript(script, { ...env, ...more });
    kept.set(script, service);
    void service.exited.then(() => {
      if (!over) keep(script, more);
      return undefined;
    });
  };
  const port = String(await lastingPort());
  const metricsPorts = { ingest: String(await lastingPort()), rollup: String(await lastingPort()) };
  keep('rollup', { METRICS_PORT: metricsPorts.rollup });
  keep('ingest', { METRICS_PORT: metricsPorts.ingest });
  keep('query', { PORT: port });
  ends.push(() => {
    over = true;
  });
  const isReady = (name: string, at: string): Promise<true> =>
    waitFor(
      async () => (await fetch(`http://127.0.0.1:${at}/readyz`)).ok,
      60_000,
      `${name} is ready: ${kept.get(name)?.stderr().slice(-500)}`,
    );
  await Promise.all([
    isReady('rollup', metricsPorts.rollup),
    isReady('ingest', metricsPorts.ingest),
    isReady('query', port),
  ]);
  const clickhouse: ClickHouse = await openServer({ url, logger: testLogger });
  ends.push(() => clickhouse.close());

  const load = (): Promise<void> =>
    world.produce({ edge_logs: 1_500, function_edge_logs: 800, postgres_logs: 200, auth_logs: 100 });
  const kills: readonly (readonly [string, () => Promise<void>])[] = [
    [
      'the server',
      async () => {
        server = await restarted(server, folder.path);
      },
    ],
    ['ingest', () => killService(kept, 'ingest')],
    ['rollup', () => killService(kept, 'rollup')],
    [
      'the server again',
      async () => {
        server = await restarted(server, folder.path);
      },
    ],
  ];
  for (const [what, kill] of kills) {
    await load();
    const loading = load();
    const before = await stored(clickhouse);
    await waitFor(
      async () => (await stored(clickhouse)) > before,
      60_000,
      `batches are written when ${what} is killed`,
    );
    await kill();
    await loading;
  }
  await world.finished(clickhouse, 120_000);
  await world.expectExact(clickhouse);

  const projects = await select<{ project: string; count: number; errors: number }>(
    clickhouse,
    "SELECT project, toFloat64(count()) AS count, toFloat64(countIf(status_code >= 400)) AS errors FROM function_edge_logs WHERE is_invocation AND timestamp >= toStartOfDay(now('UTC') - INTERVAL 7 DAY, 'UTC') GROUP BY project",
  );
  expect(projects.length).toBeGreaterThan(0);
  for (const { project, count, errors } of projects) {
    const response = await fetch(
      `http://127.0.0.1:${port}/api/endpoints/functions.invocation-stats?${new URLSearchParams({ project, interval: '7day' }).toString()}`,
      { headers: { 'x-api-key': KEY } },
    );
    const { result } = (await response.json()) as { result: { count: number; error_count: number }[] };
    expect(
      {
        count: result.reduce((sum, row) => sum + row.count, 0),
        errors: result.reduce((sum, row) => sum + row.error_count, 0),
      },
      project,
    ).toEqual({ count, errors });
  }
});

async function stored(clickhouse: ClickHouse): Promise<number> {
  return (await select<{ n: number }>(clickhouse, 'SELECT toFloat64(count()) AS n FROM edge_logs'))[0]!.n;
}

async function restarted(server: TestServer, dataDir: string): Promise<TestServer> {
  await server.kill();
  return await startServer({ ...serverOfRun(), dataDir, port: server.port });
}

/** kill -9 of the service itself, which is the one child of npm; it is started again by `keep`. */
async function killService(kept: ReadonlyMap<string, Service>, name: string): Promise<void> {
  const before = kept.get(name)!;
  process.kill(Number((await pipe('pgrep', ['-P', String(before.pid)], '')).trim()), 'SIGKILL');
  await before.exited;
  await waitFor(() => kept.get(name) !== before, 10_000, `${name} was started again`);
}
