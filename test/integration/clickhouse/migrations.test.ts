import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { loadMigrations, migrate, waitForSchema, type Migration } from '../../../common/clickhouse/migrations.ts';
import { StartError } from '../../../common/errors.ts';
import { sources } from '../../../common/sources.ts';
import { openTestClickHouse, temporaryFolder, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';

let opened: TestClickHouse;
let clickhouse: ClickHouse;
let files: ReturnType<typeof temporaryFolder>;

beforeEach(async () => {
  opened = await openTestClickHouse({ migrated: false });
  clickhouse = opened.clickhouse;
  files = temporaryFolder();
  write(
    '0001_create_a.sql',
    "-- two tables; one file\nCREATE TABLE a (n UInt64) ENGINE = MergeTree ORDER BY n;\nCREATE TABLE b (n UInt64, s String DEFAULT ';') ENGINE = MergeTree ORDER BY n;\n",
  );
  write(
    '0002_create_view.sql',
    'CREATE MATERIALIZED VIEW b_mv TO b AS SELECT n FROM a;\nALTER TABLE b ADD COLUMN t String;\n',
  );
});
afterEach(async () => {
  await opened.close();
  files.remove();
});

const write = (name: string, text: string): void => {
  writeFileSync(join(files.path, name), text);
};
const load = (): Migration[] => loadMigrations(pathToFileURL(`${files.path}/`));
const run = (): Promise<{ version: number; applied: number }> => migrate(clickhouse, testLogger, load());
const tables = async (): Promise<string[]> =>
  (
    await clickhouse.read({
      sql: "SELECT name FROM system.tables WHERE database = currentDatabase() AND name != 'migrations' ORDER BY name",
      format: 'TabSeparated',
    })
  ).body
    .toString('utf8')
    .split('\n')
    .filter((l) => l !== '');

test('are applied once, in order, and those that are new later', async () => {
  expect(await run()).toEqual({ version: 2, applied: 2 });
  expect(await tables()).toEqual(['a', 'b', 'b_mv']);
  expect(await run()).toEqual({ version: 2, applied: 0 });
  write('0003_create_c.sql', 'CREATE TABLE c (n UInt64) ENGINE = MergeTree ORDER BY n');
  expect(await run()).toEqual({ version: 3, applied: 1 });
});

test('may be killed between any two statements', async () => {
  const statements = load().flatMap((m) => m.statements).length;
  for (let allowed = 0; allowed < statements * 2 + 6; allowed++) {
    let left = allowed;
    // as a process does that is killed after so many statements: the last one has taken effect, nothing after it
    const killed: ClickHouse = {
      ...clickhouse,
      execute: async (statement) => {
        if (left-- <= 0) throw new Error('killed');
        await clickhouse.execute(statement);
      },
    };
    await migrate(killed, testLogger, load()).catch((error: unknown) =>
      expect(error).toMatchObject({ message: 'killed' }),
    );
    expect((await run()).version).toBe(2);
    expect(await tables()).toEqual(['a', 'b', 'b_mv']);
    for (const name of ['b_mv', 'a', 'b', 'migrations']) await clickhouse.execute({ sql: `DROP TABLE ${name} SYNC` });
  }
});

test('may be applied by several processes at once', async () => {
  const results = await Promise.all([run(), run(), run(), run()]);
  expect(results.map((r) => r.version)).toEqual([2, 2, 2, 2]);
  expect(await tables()).toEqual(['a', 'b', 'b_mv']);
  expect(await run()).toEqual({ version: 2, applied: 0 });
});

describe('are refused', () => {
  const refused = async (): Promise<string> => {
    const error = await run().catch((e: unknown) => e);
    expect(error).toBeInstanceOf(StartError);
    return (error as Error).message;
  };

  test('when an applied one was edited', async () => {
    await run();
    write('0001_create_a.sql', 'CREATE TABLE a (n Int64) ENGINE = MergeTree ORDER BY n');
    expect(await refused()).toMatch(
      /^migration 0001_create_a\.sql differs from the one applied to the database .* restore the file, and put the change into a new migration$/,
    );
  });

  test('when an applied one was renamed', async () => {
    await run();
    renameSync(join(files.path, '0002_create_view.sql'), join(files.path, '0002_create_other.sql'));
    expect(await refused()).toMatch(
      /^migration 0002_create_other\.sql differs from the one applied to the database \(0002_create_view\.sql/,
    );
  });

  test('when the database is newer', async () => {
    write('0003_create_c.sql', 'CREATE TABLE c (n UInt64) ENGINE = MergeTree ORDER BY n');
    await run();
    rmSync(join(files.path, '0003_create_c.sql'));
    expect(await refused()).toBe(
      'the database has schema version 3 (0003_create_c.sql), but this build knows versions up to 2; use the build that migrated it, or a newer one',
    );
  });

  test('when somebody else made the table', async () => {
    await clickhouse.execute({ sql: 'CREATE TABLE b (x String) ENGINE = MergeTree ORDER BY x' });
    expect(await refused()).toBe(
      'migration 0001_create_a.sql: statement 2 creates what already exists, and no migration created it; use an empty database',
    );
    // a service that is started again and again gets no further
    for (let again = 0; again < 3; again++)
      expect(await refused()).toContain('creates what already exists, and no migration created it');
  });

  test('when numbers are missing, double or not four digits', () => {
    write('0004_create_d.sql', 'SELECT 1');
    expect(load).toThrow('migration 0004_create_d.sql: expected NNNN_<verb>_<object>.sql with the number 0003');
    renameSync(join(files.path, '0004_create_d.sql'), join(files.path, '0002_create_d.sql'));
    expect(load).toThrow('migration 0002_create_view.sql: expected NNNN_<verb>_<object>.sql with the number 0003');
    renameSync(join(files.path, '0002_create_d.sql'), join(files.path, '3_create_d.sql'));
    expect(load).toThrow('migration 3_create_d.sql: expected');
  });

  test('but not for line ends', async () => {
    await run();
    write(
      '0002_create_view.sql',
      'CREATE MATERIALIZED VIEW b_mv TO b AS SELECT n FROM a;\r\nALTER TABLE b ADD COLUMN t String;\r\n',
    );
    expect(await run()).toEqual({ version: 2, applied: 0 });
  });
});

describe('the services that do not migrate', () => {
  test('wait for their version, and not for a newer one', async () => {
    let ready = false;
    const waiting = waitForSchema(clickhouse, testLogger, { migrations: load(), pollMs: 10 }).finally(() => {
      ready = true;
    });
    await sleep(100);
    expect(ready).toBe(false);
    await migrate(clickhouse, testLogger, load().slice(0, 1));
    await sleep(100);
    expect(ready).toBe(false);
    await run();
    await waiting;
    await waitForSchema(clickhouse, testLogger, { migrations: load().slice(0, 1) });
  });

  test('refuse a schema that differs from their files, and can be stopped while they wait', async () => {
    const stop = new AbortController();
    const waiting = waitForSchema(clickhouse, testLogger, {
      migrations: load(),
      pollMs: 10,
      signal: stop.signal,
    }).catch((e: unknown) => e);
    stop.abort();
    expect(await waiting).toMatchObject({ name: 'AbortError' });
    await run();
    write('0001_create_a.sql', 'CREATE TABLE a (n Int64) ENGINE = MergeTree ORDER BY n');
    await expect(waitForSchema(clickhouse, testLogger, { migrations: load() })).rejects.toThrow(
      /^migration 0001_create_a\.sql differs from the one/,
    );
  });
});

test("sluice's own migrations apply to an empty database, and a second time not at all", async () => {
  const own = loadMigrations();
  expect(await migrate(clickhouse, testLogger, own)).toEqual({ version: own.length, applied: own.length });
  expect(await migrate(clickhouse, testLogger, own)).toEqual({ version: own.length, applied: 0 });
  // reconcile counts the rows of a source that the view lacks as missing
  const view = await clickhouse.read({
    sql: "SELECT arraySort(extractAll(as_select, ' FROM [^ ]*\\.([a-z_]+)')) AS read FROM system.tables WHERE database = currentDatabase() AND name = 'stored_rows'",
    format: 'JSONEachRow',
  });
  expect(rows(view)).toEqual([{ read: sources.map(({ name }) => name).toSorted() }]);
});
