import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { openServer } from '../../common/clickhouse/server.ts';
import { parameterNames } from '../../common/clickhouse/sql.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createRegistry } from '../../common/metrics.ts';
import { proveExactlyOnce } from '../../services/ingest/canary.ts';
import { startRollup, type RollupService } from '../../services/rollup/service.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { startServer, type ServerVersion } from '../harness/clickhouse-server.ts';
import { call, startService } from '../integration/query/service.ts';
import { startVersion } from './engine.ts';

// Every version that the README lists: the schema is made, a token counts once by both ways of inserting, every
// statement of ours is understood, and the endpoints answer.

/** A genuine server where there is one, else the engine of a wheel. */
const VERSIONS: readonly (readonly [string, { readonly server: ServerVersion } | { readonly wheel: string }])[] = [
  ['25.8', { server: '25.8' }],
  ['26.1', { wheel: 'chdb-core==26.1.0' }],
  ['26.3', { wheel: 'chdb-core==26.3.0' }],
  ['26.7', { server: '26.7' }],
  ['26.9', { wheel: 'chdb-core==26.9.0' }],
];

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/**
 * Our statements that only read, by file: those of endpoints are asked by HTTP, those that insert run with the others.
 */
const reads = readdirSync(`${ROOT}services`, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.sql') && !file.includes('endpoints/'))
  .map((file) => ({ file, sql: readFileSync(`${ROOT}services/${file}`, 'utf8') }))
  .filter(({ sql }) => /^(?:\s*--.*\n)*\s*(SELECT|WITH)\b/.test(sql));

/** A value that a parameter of this type takes. */
function valueOf(type: string): string | number | readonly string[] {
  if (type.startsWith('Array')) return [];
  if (/^(Nullable\()?(U?Int|Float|Bool|Decimal)/.test(type)) return 1;
  if (/^(Nullable\()?Date/.test(type)) return '2026-03-01';
  return type.includes('UUID') ? '00000000-0000-4000-8000-000000000000' : 'x';
}

describe.each(VERSIONS)('ClickHouse %s', (version, from) => {
  const folder = temporaryFolder();
  let clickhouse: ClickHouse;
  let rollup: RollupService | undefined;
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
    await rollup?.stop();
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

  test('publishes its rollups, and the endpoints answer', async () => {
    rollup = await startRollup({
      clickhouse,
      settings: readSettings({}),
      logger: testLogger,
      registry: createRegistry(),
    });
    const service = await startService(clickhouse, folder.path);
    const project = 'abcdefghijklmnopqrst';
    for (const [endpoint, more, rows] of [
      ['functions.invocation-stats', { interval: '1hr' }, 61],
      ['logs.all', { project_tier: 'PRO' }, 0],
      ['usage.api-counts', { interval: 'daily' }, 0],
      ['usage.api-counts', { interval: 'daily', project: 'a.*b' }, 0],
    ] as const) {
      const reply = await call(service, endpoint, { project, ...more });
      expect(
        { status: reply.status, rows: reply.status === 200 ? reply.rows.length : reply.text },
        `${endpoint} ${JSON.stringify(more)}`,
      ).toEqual({ status: 200, rows });
    }
    await service.stop();
  });

  test.each(reads.map(({ file, sql }) => [file, sql] as const))('understands %s', async (_, sql) => {
    const params = Object.fromEntries(
      [...parameterNames(sql)].map((name) => [
        name,
        valueOf(new RegExp(`\\{${name}\\s*:\\s*([^}]+)\\}`).exec(sql)?.[1]?.trim() ?? 'String'),
      ]),
    );
    await expect(clickhouse.read({ sql, params, format: 'Null' })).resolves.toBeDefined();
  });
});
