import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { startServer, type TestServer } from '../harness/clickhouse-server.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { produce } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { endIngestChildren, logged, startIngestChild } from './ingest-child.ts';
import { createWorld } from './ledger.ts';

// Guarantee: a process that is suspended in the middle of an insert, of which the server has a part, and wakes when its
// partitions have long been others', stores nothing twice.

const SESSION_TIMEOUT_MS = 3_000;
const EVENTS = 3_000;
/** The server has these of the insert when its process is suspended. It begins an insert after max_query_size, 1 MiB. */
const PART_BYTES = 4_000_000;
const RUNNING = "FROM system.processes WHERE query LIKE 'INSERT INTO `edge_logs`%'";

const folder = temporaryFolder();
let server: TestServer;
let clickhouse: ClickHouse;
let rollup: RollupService;

beforeAll(async () => {
  server = await startServer({ dataDir: folder.path });
  await server.query('CREATE DATABASE sluice');
  clickhouse = await openServer({ url: `${server.url}/sluice`, logger: testLogger });
  const settings = readSettings({});
  rollup = await startRollup({ clickhouse, settings, logger: testLogger, registry: createRegistry() });
});
afterEach(() => endIngestChildren());
afterAll(async () => {
  await rollup.stop();
  await clickhouse.close();
  await server.stop();
  folder.remove();
});

/** Hands connections on to the server, but stops in the middle of the first large insert into edge_logs. */
async function startHolding(port: number) {
  const holds = Promise.withResolvers<void>();
  let goOn = (): void => undefined;
  let hasHeld = false;
  const proxy = createServer((client) => {
    const upstream = connect(port, '127.0.0.1');
    client.on('error', () => upstream.destroy()).once('close', () => upstream.destroy());
    upstream.on('error', () => client.destroy()).pipe(client);
    let passed: number | undefined;
    client.on('data', (chunk) => {
      upstream.write(chunk);
      if (hasHeld) return;
      if (chunk.includes('INSERT') && chunk.includes('edge_logs')) passed = 0;
      if (passed === undefined || (passed += chunk.length) < PART_BYTES) return;
      hasHeld = true;
      client.pause();
      goOn = () => client.resume();
      holds.resolve();
    });
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  return { port: (proxy.address() as AddressInfo).port, holds: holds.promise, goOn: () => goOn(), proxy };
}

test('a process suspended in the middle of an insert wakes after another one has stored its batch', async () => {
  const world = await createWorld({ partitions: 1 });
  const env = { ...world.env, CLICKHOUSE_URL: `${server.url}/sluice` };
  // one insert of 15 MB
  const event = { project: 'p', event_message: 'x'.repeat(5_000), metadata: {} };
  const value = JSON.stringify(event);
  const topic = world.topicOf('edge_logs');
  const reports = await produce(Array.from({ length: EVENTS }, () => ({ topic, partition: 0, value })));
  world.acknowledged(
    'edge_logs',
    0,
    reports.map((r) => Number(r.offset)),
    value,
    'row',
  );
  const direct = new URL(server.url);
  const { port, holds, goOn, proxy } = await startHolding(Number(direct.port));
  const through = Object.assign(new URL('/sluice', direct), { port: String(port) }).href;
  const old = startIngestChild({ env: { ...env, CLICKHOUSE_URL: through }, sessionTimeoutMs: SESSION_TIMEOUT_MS });
  await holds;
  old.signal('SIGSTOP');
  await sleep(1_000);
  expect(await server.query(`SELECT count() ${RUNNING}`)).toBe('1');
  const next = startIngestChild({ env, sessionTimeoutMs: SESSION_TIMEOUT_MS });
  await world.finished(clickhouse, 90_000);
  expect(logged(next, 'batch_recovered').length).toBeGreaterThan(0);
  await world.expectExact(clickhouse);
  old.signal('SIGCONT');
  goOn();
  await waitFor(() => logged(old, 'group_joined').length > 1, 30_000, 'the old owner is a member again');
  await world.produce({ edge_logs: 100 });
  await world.finished(clickhouse);
  await world.expectExact(clickhouse);
  for (const child of [old, next]) expect(await child.stop()).toMatchObject({ code: 0 });
  await world.expectExact(clickhouse);
  proxy.close();
});
