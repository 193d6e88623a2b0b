import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { checkRights, RIGHTS, type Service } from '../../../common/clickhouse/rights.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { commandRoutes } from '../../../common/command/command-routes.ts';
import { backupPlaces } from '../../../common/config/backup-places.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startConsole } from '../../../services/console/console.ts';
import { createBackup } from '../../../services/ingest/operate/backup.ts';
import { proveExactlyOnce } from '../../../services/ingest/store/canary.ts';
import { deadLettersCommand } from '../../../services/ingest/commands/dead-letters.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import { rollupCommand } from '../../../services/rollup/commands/rollup.ts';
import { startRollup } from '../../../services/rollup/service.ts';
import { startServer, type TestServer } from '../../harness/clickhouse-server.ts';
import { serverOfRun } from '../../harness/clickhouse-run.ts';
import { temporaryFolder, testLogger } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { startScript } from '../../harness/service.ts';
import { API_KEY, call, send, startService } from '../query/service.ts';
import { edgeEvent, invocationEvent } from '../rollup/world.ts';

// Guarantee: with the GRANT statements of docs/security.md and no other right, each service does all its work on a
// server with ClickHouse's own access control. A service whose user lacks one of them does not start, and says which.

const SERVICES: readonly Service[] = ['rollup', 'ingest', 'query'];
const GUIDE = readFileSync(new URL('../../../docs/security.md', import.meta.url), 'utf8');
/** The documented rights by service; those of `backup` are for the user of query. */
const documented = Object.fromEntries(
  [...GUIDE.matchAll(/^-- npm run (\w+)[^\n]*\n((?:GRANT [^\n]*;\n)+)/gm)].map(([, name, grants]) => [
    name!,
    [...grants!.matchAll(/^GRANT (.*) TO \w+;$/gm)].map(([, right]) => right!),
  ]),
);

const folder = temporaryFolder();
let server: TestServer;
const opened: ClickHouse[] = [];

beforeAll(async () => {
  server = await startServer({ ...serverOfRun(), dataDir: folder.path });
  await server.query('CREATE DATABASE sluice');
  for (const name of SERVICES) await server.query(`CREATE USER ${name} IDENTIFIED BY 'x' SETTINGS PROFILE 'ours'`);
  for (const [, grant] of GUIDE.matchAll(/^(GRANT .*);$/gm)) await server.query(grant!);
});
afterAll(async () => {
  for (const clickhouse of opened) await clickhouse.close();
  await server.kill();
  folder.remove();
});

const urlOf = (user: string): string => `http://${user}:x@127.0.0.1:${server.port}/sluice`;

async function openAs(user: string): Promise<ClickHouse> {
  const clickhouse = await openServer({ url: urlOf(user), logger: testLogger, wait: false });
  opened.push(clickhouse);
  return clickhouse;
}

describe.each(SERVICES)('%s', (service) => {
  test('asks for the rights that the guide lists', async () => {
    expect(documented[service]).toEqual(RIGHTS[service].map((right) => right.replace('{database}', 'sluice')));
    await expect(checkRights(await openAs(service), service)).resolves.toBeUndefined();
  });

  test('names each right that is missing', async () => {
    const clickhouse = await openAs(service);
    for (const right of documented[service]!) {
      await server.query(`REVOKE ${right} FROM ${service}`);
      const name = right.replace('sluice.*', '`sluice`.*');
      await expect(checkRights(clickhouse, service)).rejects.toMatchObject({
        exitCode: 78,
        message: expect.stringMatching(/lacks rights/) as string,
      });
      await expect(checkRights(clickhouse, service)).rejects.toThrow(`run there: GRANT ${name} TO \`${service}\`;`);
      await server.query(`GRANT ${right} TO ${service}`);
    }
  });

  test('does not start without them: exit code 78 and one line', async () => {
    await server.query(`CREATE USER OR REPLACE nothing IDENTIFIED BY 'x'`);
    const process = startScript(service, {
      CLICKHOUSE_URL: urlOf('nothing'),
      KAFKA_BROKERS: '127.0.0.1:1',
      DATA_DIR: folder.path,
      PORT: '0',
      LOG_LEVEL: 'fatal',
    });
    expect(await process.exited, process.stderr()).toBe(78);
    const said = process
      .stderr()
      .split('\n')
      .filter((line) => line.includes('lacks rights'));
    expect(said).toEqual([expect.stringContaining(`${service} needs; run there: GRANT `)]);
  });
});

test('the three services do all their work with the documented rights', async () => {
  const settings = readSettings({ API_KEY, DATA_DIR: folder.path });
  const [asRollup, asIngest, asQuery] = [await openAs('rollup'), await openAs('ingest'), await openAs('query')];
  const now = Math.floor(Date.now() / 60_000) * 60_000;
  const project = 'abcdefghijklmnopqrst';

  const rollup = await startRollup({ clickhouse: asRollup, settings, logger: testLogger, registry: createRegistry() });
  await proveExactlyOnce(asIngest);
  const batches = {
    edge_logs: [edgeEvent(now, `https://${project}.example.com/rest/v1/todos`, { project }), 'no event'],
    function_edge_logs: [invocationEvent(now, project, 'f')],
  } as const;
  for (const source of ['edge_logs', 'function_edge_logs'] as const)
    await openTestStore(asIngest, { source }).writeBatch({
      incarnation: 1,
      records: batches[source].map((value, offset) => ({
        offset,
        time: now,
        key: null,
        value: Buffer.from(value),
        headers: [],
      })),
    });
  await asIngest.killInsert('nobody');
  expect((await reconcile(asIngest, settings.RAW_RETENTION_DAYS)).faults).toEqual([]);

  const console_ = startConsole({
    clickhouse: asQuery,
    settings,
    registry: createRegistry(),
    logger: testLogger,
    clock: Date.now,
  });
  const context = { clickhouse: asQuery, settings, logger: testLogger };
  const query = await startService(
    asQuery,
    folder.path,
    {},
    { clock: () => now + 1_000, routes: [...console_.routes, ...commandRoutes(context, [deadLettersCommand])] },
  );
  await query.ready;
  const answered = async (path: string, body?: unknown): Promise<unknown> => {
    const reply = await send(query.address, path, {
      headers: { 'x-api-key': API_KEY, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    });
    expect(reply.status, reply.text).toBeLessThan(300);
    return JSON.parse(reply.text);
  };
  const expectAnswers = async (): Promise<void> => {
    const stats = await call(query, 'functions.invocation-stats', { project, interval: '1hr' });
    expect(stats.rows.at(-1)).toMatchObject({ count: 1 });
    for (const pattern of [project, 'abc.*t'])
      expect((await call(query, 'usage.api-counts', { project: pattern, interval: 'minutely' })).rows).toMatchObject([
        { total_rest_requests: 1 },
      ]);
    expect((await call(query, 'logs.all', { project })).rows).toHaveLength(1);
  };
  await expectAnswers();
  expect(await answered('/api/status')).toMatchObject({ result: { system: { store_answers: true } } });
  await answered('/api/keys', { name: 'k', scopes: ['query'] });
  const replay = { action: 'replay_all', filter: { topic: 'edge_logs' } };
  expect(await answered('/api/commands/dead-letters', replay)).toMatchObject({ result: { next: null } });

  const rebuilt = await rollupCommand.run(
    { ...context, clickhouse: asRollup },
    { action: 'rebuild', from: now / 1000 - 86_400, to: now / 1000 + 60, rollup: null, acceptLoss: false },
  );
  expect(rebuilt).toMatchObject({ rebuilt: [{ left: [] }, { left: [] }] });
  await expectAnswers();
  await rollup.stop();
  // again, on the schema that is there
  await migrate(asRollup, testLogger);

  const places = backupPlaces(`local=${folder.path}/backups`);
  await createBackup({ clickhouse: asQuery, places, logger: testLogger }, { place: 'local/one' });
  await query.stop();
  await console_.stop();
  expect(await select(asQuery, 'SELECT name FROM api_keys')).toEqual([{ name: 'k' }]);
});
