import { isDeepStrictEqual } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { RIGHTS, type Service as ServiceName } from '../../common/clickhouse/rights.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { newestPeriod } from '../../services/rollup/period/periods.ts';
import { requestRepair } from '../../services/rollup/repairs.ts';
import { startServer, type TestServer } from '../harness/clickhouse-server.ts';
import { serverOfRun } from '../harness/clickhouse-run.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { expectInvocationStats } from '../harness/expect-answers.ts';
import { pipe } from '../harness/kafka.ts';
import { apiCounts, invocationsOf, invocationStats, logsAll, type StoredEvent } from '../harness/oracle.ts';
import { lastingPort } from '../harness/ports.ts';
import { endAll, startScript, type Service } from '../harness/service.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld, underLoad, type World } from './ledger.ts';

// Guarantee: the three services, each as its own user with the documented rights, survive kill -9 of the ClickHouse
// server, of ingest and of rollup under load. Afterwards every message is stored once, the account of reconcile is
// exact, every rollup equals its raw table, and all three endpoints answer what the produced events say.
// Each kill strikes while work is in flight: ingest has sent an insert that the server runs, and has not read its
// answer; the rollup service has a side table that it fills.

const KEY = 'the-key-of-the-stack-test';
const DAY = 86_400;
const HOUR_MICROS = 3_600e6;
const INSERTS = "SELECT count() FROM system.processes WHERE user = 'ingest' AND query_kind = 'Insert'";
const SIDE_TABLES =
  "SELECT count() FROM system.tables WHERE database = 'sluice' AND match(name, '_repair_[0-9]+_[0-9a-f]{8}$')";

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

test('kill -9 of the server, of ingest and of rollup under load', { timeout: 300_000 }, async () => {
  const folder = temporaryFolder();
  ends.push(folder.remove);
  let server = await startServer({ ...serverOfRun(), dataDir: folder.path });
  ends.push(() => server.kill());
  await createUsers(server);
  const world = await createWorld();
  const stack = await startStack(server, world, folder.path);
  const clickhouse: ClickHouse = await openServer({ url: `${server.url}/sluice`, logger: testLogger });
  ends.push(() => clickhouse.close());

  const killServer = async (): Promise<void> => {
    const ingest = await stack.freeze('ingest', () => isAny(server, INSERTS));
    await server.kill();
    process.kill(ingest, 'SIGCONT');
    server = await startServer({ ...serverOfRun(), dataDir: folder.path, port: server.port });
  };
  await underLoad(world, killServer);
  await underLoad(world, async () => {
    await stack.freeze('ingest', () => isAny(server, INSERTS));
    await stack.kill('ingest');
  });
  await underLoad(world, async () => {
    const period = await newestPeriod({ clickhouse });
    const now = Math.floor(Date.now() / 1000);
    for (const source of ['edge_logs', 'function_edge_logs'])
      await requestRepair(
        { clickhouse },
        { source, period, from: now - 5 * DAY, to: now + DAY, reason: 'command', accept_loss: false },
      );
    await stack.freeze('rollup', () => isAny(server, SIDE_TABLES));
    await stack.kill('rollup');
  });
  await underLoad(world, killServer);

  await world.finished(clickhouse, 120_000);
  await world.expectExact(clickhouse);
  const account = startScript('reconcile', { ...stack.env('ingest'), PORT: '1' }, ['--json']);
  expect(await account.exited, account.stderr()).toBe(0);
  expect(JSON.parse(account.stdout())).toMatchObject({ ok: true });
  await expectAnswers(stack.queryPort, world.rows());
});

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const isAny = async (server: TestServer, sql: string): Promise<boolean> => (await server.query(sql)) !== '0';

async function createUsers(server: TestServer): Promise<void> {
  await server.query('CREATE DATABASE sluice');
  for (const [name, rights] of Object.entries(RIGHTS)) {
    await server.query(`CREATE USER ${name} IDENTIFIED BY 'x' SETTINGS PROFILE 'ours'`);
    for (const right of rights) await server.query(`GRANT ${right.replace('{database}', 'sluice')} TO ${name}`);
  }
}

interface Stack {
  readonly queryPort: number;
  env(service: ServiceName): Record<string, string>;
  /** Stops the service's process with SIGSTOP at a moment at which `inFlight` holds; returns its process id. */
  freeze(service: ServiceName, inFlight: () => Promise<boolean>): Promise<number>;
  /** kill -9; the service is started again. */
  kill(service: ServiceName): Promise<void>;
}

/** The three services, ready. Each is started again whenever it ends, as an orchestrator does. */
async function startStack(server: TestServer, world: World, dataDir: string): Promise<Stack> {
  const ports = { rollup: await lastingPort(), ingest: await lastingPort(), query: await lastingPort() };
  const env = (name: ServiceName): Record<string, string> => ({
    ...world.env,
    CLICKHOUSE_URL: `http://${name}:x@127.0.0.1:${server.port}/sluice`,
    DATA_DIR: dataDir,
    API_KEY: KEY,
    [name === 'query' ? 'PORT' : 'METRICS_PORT']: String(ports[name]),
  });
  let isOver = false;
  const running = new Map<ServiceName, Service>();
  const keep = (name: ServiceName): void => {
    const service = startScript(name, env(name));
    running.set(name, service);
    void service.exited.then(() => {
      if (!isOver) keep(name);
      return undefined;
    });
  };
  const names = ['rollup', 'ingest', 'query'] as const;
  for (const name of names) keep(name);
  let frozen: number | undefined;
  ends.push(async () => {
    isOver = true;
    // a stopped process does not end
    if (frozen !== undefined && isRunning(frozen)) process.kill(frozen, 'SIGCONT');
    await endAll();
  });
  for (const name of names)
    await waitFor(
      async () => (await fetch(`http://127.0.0.1:${ports[name]}/readyz`)).ok,
      60_000,
      `${name} is ready: ${running.get(name)?.stderr().slice(-500)}`,
    );
  /** of the service itself, which is the one child of npm */
  const pidOf = async (name: ServiceName): Promise<number> =>
    Number((await pipe('pgrep', ['-P', String(running.get(name)!.pid)], '')).trim());
  return {
    queryPort: ports.query,
    env,
    async freeze(name, inFlight) {
      const pid = await pidOf(name);
      await waitFor(
        async () => {
          if (!(await inFlight())) return false;
          process.kill(pid, 'SIGSTOP');
          frozen = pid;
          if (await inFlight()) return true;
          process.kill(pid, 'SIGCONT');
          return false;
        },
        60_000,
        `${name} has work in flight`,
        25,
      );
      return pid;
    },
    async kill(name) {
      const before = running.get(name)!;
      process.kill(await pidOf(name), 'SIGKILL');
      await before.exited;
      await waitFor(() => running.get(name) !== before, 10_000, `${name} was started again`);
    },
  };
}

/** Asks the running query service, and compares with the oracle as of the moment of the answer. */
async function expectAnswers(port: number, events: readonly StoredEvent[]): Promise<void> {
  const ask = async (endpoint: string, params: Record<string, string>): Promise<Record<string, unknown>[]> => {
    const response = await fetch(
      `http://127.0.0.1:${port}/api/endpoints/${endpoint}?${new URLSearchParams(params).toString()}`,
      { headers: { 'x-api-key': KEY } },
    );
    const text = await response.text();
    expect(response.status, text).toBe(200);
    return (JSON.parse(text) as { result: Record<string, unknown>[] }).result;
  };
  /** An event that leaves the window of this length between question and answer may be in the answer or not. */
  const expectOneOf = async (
    endpoint: string,
    params: Record<string, string>,
    window: number,
    oracle: (now: number) => unknown,
  ): Promise<void> => {
    const from = Date.now() * 1000;
    const answer = await ask(endpoint, params);
    const to = (Date.now() + 1) * 1000;
    const moments = [from, ...events.map((e) => e.timestamp + window + 1).filter((t) => t > from && t <= to)];
    if (!moments.some((now) => isDeepStrictEqual(answer, oracle(now))))
      expect(answer, `${endpoint} ${JSON.stringify(params)}`).toEqual(oracle(from));
  };
  const invocations = invocationsOf(events);
  const projects = [...new Set(events.map((e) => e.project))];
  expect(projects.length).toBeGreaterThan(3);
  let counted = 0;
  for (const project of projects) {
    for (const interval of ['5min', '15min', '1hr', '1day', '7day']) {
      const asked = Date.now() * 1000;
      const answer = await ask('functions.invocation-stats', { project, interval });
      const newest = Number(answer.at(-1)!['timestamp']);
      // the last bucket holds a moment between question and answer
      const [least, most] = [asked, Date.now() * 1000].map(
        (now) => invocationStats([], { project, interval }, now).at(-1)!.timestamp,
      );
      expect(newest, interval).toBeGreaterThanOrEqual(least!);
      expect(newest, interval).toBeLessThanOrEqual(most!);
      const expected = invocationStats(invocations, { project, interval }, newest);
      expectInvocationStats(answer, expected);
      counted += expected.reduce((sum, row) => sum + row.count, 0);
    }
    for (const [interval, hours] of [
      ['minutely', 1],
      ['hourly', 1],
      ['1day', 24],
      ['daily', 168],
    ] as const)
      await expectOneOf('usage.api-counts', { project, interval }, hours * HOUR_MICROS, (now) =>
        apiCounts(events, interval, (url) => url.includes(project), now),
      );
    for (const [project_tier, hours] of [
      ['FREE', 24],
      ['PRO', 168],
    ] as const)
      await expectOneOf('logs.all', { project, project_tier }, hours * HOUR_MICROS, (now) =>
        logsAll(events, { project, project_tier }, now),
      );
  }
  await expectOneOf('usage.api-counts', { project: '/rest/v1/', interval: 'daily' }, 168 * HOUR_MICROS, (now) =>
    apiCounts(events, 'daily', (url) => url.includes('/rest/v1/'), now),
  );
  expect(counted).toBeGreaterThan(500);
}
