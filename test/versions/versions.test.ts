import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { openServer } from '../../common/clickhouse/server/server.ts';
import { parameterNames } from '../../common/clickhouse/sql.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { sources } from '../../common/sources.ts';
import { proveExactlyOnce } from '../../services/ingest/store/canary.ts';
import { announceReplay } from '../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { rollupCommand } from '../../services/rollup/commands/rollup.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { startServer, type ServerVersion } from '../harness/clickhouse-server.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { call, startService } from '../integration/query/service.ts';
import { edgeEvent, invocationEvent } from '../integration/rollup/world.ts';
import { startVersion } from './engine.ts';

// Every version that docs/dependencies.md lists: the schema is made, a token counts once, every
// statement of ours is understood, and the endpoints answer.

/** A genuine server where there is one, else the engine of a wheel. */
const VERSIONS: readonly (readonly [string, { readonly server: ServerVersion } | { readonly wheel: string }])[] = [
  ['25.8', { server: '25.8' }],
  ['26.1', { wheel: 'chdb-core==26.1.0' }],
  ['26.3', { wheel: 'chdb-core==26.3.0' }],
  ['26.7', { server: '26.7' }],
  ['26.9', { wheel: 'chdb-core==26.9.0' }],
];

const DAY = 86_400_000;
const REF = 'abcdefghijklmnopqrst';
const ROWS = Array.from({ length: 10 }, (_, i) => i);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Our statements by file. Those of endpoints are asked over HTTP. */
const statements = readdirSync(`${ROOT}services`, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.sql') && !file.includes('endpoints/'))
  .map((file) => [file, readFileSync(`${ROOT}services/${file}`, 'utf8')] as const);

/** A value that the parameter takes: the name of a table where it stands for one. */
function valueOf(name: string, type: string): string | number | readonly (string | number)[] {
  if (name === 'source') return 'edge_logs';
  if (type === 'Identifier') return 'function_invocations_v1';
  if (type.startsWith('Array')) return /Int/.test(type) ? [1] : ['x'];
  if (/^(Nullable\()?(U?Int|Float|Bool|Decimal)/.test(type)) return 1;
  return '';
}

function valuesOf(sql: string): Record<string, string | number | readonly (string | number)[]> {
  return Object.fromEntries(
    [...parameterNames(sql)].map((name) => {
      const type = new RegExp(`\\{${name}\\s*:\\s*([^}]+)\\}`).exec(sql)?.[1]?.trim() ?? 'String';
      return [name, valueOf(name, type)];
    }),
  );
}

describe.each(VERSIONS)('ClickHouse %s', (version, from) => {
  const folder = temporaryFolder();
  let clickhouse: ClickHouse;
  let stop: () => Promise<void>;

  beforeAll(async () => {
    if ('server' in from) {
      const server = await startServer({ version: from.server, dataDir: folder.path });
      await server.query('CREATE DATABASE sluice');
      stop = () => server.kill();
      clickhouse = await openServer({ url: `${server.url}/sluice`, logger: testLogger, wait: false });
    } else {
      const engine = await startVersion(from.wheel, folder.path);
      stop = () => engine.stop();
      clickhouse = await openServer({ url: engine.url, logger: testLogger, wait: false, readers: 1, writers: 1 });
    }
  });
  afterAll(async () => {
    await clickhouse?.close();
    await stop?.();
    folder.remove();
  });

  test('makes the schema, and again', async () => {
    expect(clickhouse.version).toMatch(new RegExp(`^${version.replace('.', '\\.')}\\.`));
    await migrate(clickhouse, testLogger);
    expect(await migrate(clickhouse, testLogger)).toMatchObject({ applied: 0 });
  });

  test('counts the same token once, and keeps nothing of a batch that fails', async () => {
    await expect(proveExactlyOnce(clickhouse)).resolves.toBeUndefined();
  });

  test('counts one of two claims of a partition, and one of two announcements of a replay', async () => {
    const place = { source: 'auth_logs', topic: 'claimed', partition: 0 } as const;
    for (const group of ['first', 'second']) await openTestStore(clickhouse, { ...place, group }).claim(1);
    const claims = await select(
      clickhouse,
      "SELECT consumer_group AS owner FROM partition_owners WHERE topic = 'claimed'",
    );
    expect(claims).toEqual([{ owner: 'first' }]);
    const letter = { topic: 'claimed', partition: 0, incarnation: 0, offset: '0' };
    for (const evaluatedAt of [1, 2])
      await announceReplay(clickhouse, letter, { evaluatedAt, version: 1, period: 0 }, undefined);
    const announced = await select(
      clickhouse,
      "SELECT toUInt32(toUnixTimestamp64Milli(evaluated_at)) AS at FROM dead_letter_replays WHERE kafka_topic = 'claimed'",
    );
    expect(announced).toEqual([{ at: 1 }]);
  });

  test('stores a batch of every source once, counts it in rollups and answers for it', async () => {
    const now = Math.floor(Date.now() / 60_000) * 60_000;
    const settings = readSettings({});
    const rollup = await startRollup({ clickhouse, settings, logger: testLogger, registry: createRegistry() });
    for (const { name: source } of sources) {
      const messages =
        source === 'edge_logs'
          ? ROWS.map((i) => edgeEvent(now - i, `https://${REF}.example.com/rest/v1/todos`, { project: REF }))
          : source === 'function_edge_logs'
            ? ROWS.map((i) => invocationEvent(now - i, REF, 'f', { status: i < 2 ? 500 : 200, ms: i }))
            : ROWS.map(() => JSON.stringify({ project: REF, metadata: { project: REF, project_ref: REF } }));
      const records = [...messages, 'no event'].map((message, offset) => ({
        offset,
        time: now,
        key: null,
        value: Buffer.from(message),
        headers: [],
      }));
      const store = openTestStore(clickhouse, { source });
      const batch = { incarnation: 1, evaluatedAt: now, records };
      await store.insertBatch(batch);
      await store.writeBatch(batch);
    }
    const account = await reconcile(clickhouse, settings.RAW_RETENTION_DAYS);
    expect(account.faults).toEqual([]);
    expect(account.partitions.map((p) => [p.stored, p.dead_lettered])).toEqual(sources.map(() => [ROWS.length, 1]));
    await expectAnswers(now);
    const [from, to] = [now - DAY, now + DAY].map((ms) => Math.floor(ms / 1000)) as [number, number];
    const rebuilt = await rollupCommand.run(
      { clickhouse, settings, logger: testLogger },
      { action: 'rebuild', from, to, rollup: null, acceptLoss: false },
    );
    expect(rebuilt).toMatchObject({ rebuilt: [{ left: [] }, { left: [] }] });
    await expectAnswers(now);
    // the statements below write nonsense into its tables
    await rollup.stop();
  });

  async function expectAnswers(now: number): Promise<void> {
    const service = await startService(clickhouse, folder.path, {}, { clock: () => now + 1_000 });
    const stats = await call(service, 'functions.invocation-stats', { project: REF, interval: '1hr' });
    expect(stats.status, stats.text).toBe(200);
    expect(stats.rows.filter((row) => row['count'] !== 0)).toEqual([
      expect.objectContaining({
        count: ROWS.length - 1,
        min_execution_time: 1,
        max_execution_time: 9,
        p99_execution_time: 9,
      }),
      expect.objectContaining({ count: 1, error_count: 1, min_execution_time: 0 }),
    ]);
    expect(stats.rows).toHaveLength(61);
    for (const project of [REF, 'abc.*t'])
      expect((await call(service, 'usage.api-counts', { project, interval: 'minutely' })).rows).toMatchObject([
        { total_rest_requests: ROWS.length - 1 },
        { total_rest_requests: 1, total_auth_requests: 0 },
      ]);
    const logs = await call(service, 'logs.all', { project: REF });
    expect(logs.rows.map((row) => row['timestamp'])).toEqual(ROWS.map((i) => (now - i) * 1000));
    expect(logs.rows[0]!['metadata']).toEqual([
      { request: [{ url: `https://${REF}.example.com/rest/v1/todos`, path: '/rest/v1/todos' }] },
    ]);
    await service.stop();
  }

  test.each(statements)('runs %s', async (_, sql) => {
    const params = valuesOf(sql);
    if (/^(?:\s*--.*\n)*\s*(SELECT|WITH)\b/.test(sql)) await clickhouse.read({ sql, params, format: 'Null' });
    else await clickhouse.execute({ sql, params });
    // the statement was not taken for another one: the engine is there and answers
    expect(await select(clickhouse, 'SELECT 1 AS n')).toEqual([{ n: 1 }]);
  });
});
