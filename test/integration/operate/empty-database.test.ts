import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startServer, type TestServer } from '../../harness/clickhouse-server.ts';
import { temporaryFolder } from '../../harness/temporary-folder.ts';

// Guarantee: the runbook empties a database of any size. By default ClickHouse refuses to drop a table above 50 GB.

const runbook = readFileSync(new URL('../../../docs/runbook.md', import.meta.url), 'utf8');
const drops = [...runbook.matchAll(/DROP DATABASE (\w+)[\w =]*/g)];

let server: TestServer;
const folder = temporaryFolder();
beforeAll(async () => {
  const config = '<max_table_size_to_drop>1</max_table_size_to_drop>';
  server = await startServer({ dataDir: folder.path, config });
});
afterAll(async () => {
  await server?.kill();
  folder.remove();
});

test('the runbook drops databases', () => {
  expect(drops.length).toBeGreaterThan(2);
});

test.each(drops.map(([statement, database]) => [statement.trim(), database!]))('%s', async (statement, database) => {
  await server.query(`CREATE DATABASE ${database}`);
  await server.query(`CREATE TABLE ${database}.t ENGINE = MergeTree ORDER BY number AS SELECT * FROM numbers(1000)`);
  try {
    await server.query(statement);
    expect(await server.query(`SELECT count() FROM system.databases WHERE name = '${database}'`)).toBe('0');
  } finally {
    await server.query(`DROP DATABASE IF EXISTS ${database} SYNC SETTINGS max_table_size_to_drop = 0`);
  }
});
