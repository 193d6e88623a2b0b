import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text as readText } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { Session } from 'chdb';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { StartError } from '../../../common/errors.ts';
import { temporaryFolder, testLogger } from '../../harness/clickhouse.ts';
import { row } from '../../harness/clickhouse-rowbinary.ts';
import { waitFor } from '../../harness/wait-for.ts';

// read by the engine when it is loaded: as on a machine elsewhere
process.env['TZ'] = 'Asia/Kathmandu';

const WRITER = fileURLToPath(new URL('write-until-killed.ts', import.meta.url));

let folder: ReturnType<typeof temporaryFolder>;
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => {
  folder.remove();
});

const open = (dataDir = folder.path, limits: { readers?: number; writers?: number } = {}): Promise<ClickHouse> =>
  openEmbedded({ dataDir, logger: testLogger, ...limits });
const text = async (clickhouse: ClickHouse, sql: string): Promise<string> =>
  (await clickhouse.read({ sql, format: 'TabSeparatedRaw' })).body.toString('utf8').trimEnd();

/** A child that writes into the folder; resolves when it has told `count` finished inserts (0: when it is open). */
async function startWriter(count: number): Promise<{ child: ChildProcess; acknowledged: () => number }> {
  const child = spawn(process.execPath, [WRITER, folder.path], { stdio: ['ignore', 'pipe', 'inherit'] });
  let last = -1;
  await new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line !== 'open') last = Number(line);
      if (last + 1 >= count) resolve();
    });
    child.once('exit', (code, signal) => reject(new Error(`the writer ended (${code ?? signal})`)));
  });
  return { child, acknowledged: () => last + 1 };
}

async function kill(child: ChildProcess): Promise<void> {
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await exited;
}

test('killed in the middle of inserts and opened again: every finished insert is there, once, and nothing is left of the unfinished one', async () => {
  let expected = 0;
  for (const count of [5, 12]) {
    const { child, acknowledged } = await startWriter(count);
    await kill(child);
    expected = Math.max(expected, acknowledged());
    const before = performance.now();
    const clickhouse = await open();
    const reopened = performance.now() - before;
    expect(readdirSync(join(folder.path, 'clickhouse', 'rows'))).toEqual([]);
    expect(Number(await text(clickhouse, 'SELECT uniqExact(n) FROM written'))).toBeGreaterThanOrEqual(expected);
    expect(await text(clickhouse, 'SELECT countIf(length(a) != 100000), min(n) FROM written')).toBe('0\t0');
    await clickhouse.close();
    expect(reopened).toBeLessThan(5_000);
  }
});

test('a folder in use by another process is refused in one line that names it', async () => {
  const { child } = await startWriter(0);
  const error = await open().catch((e: unknown) => e);
  await kill(child);
  expect(error).toBeInstanceOf(StartError);
  expect((error as Error).message).toBe(
    `the data folder ${folder.path} is in use by process ${child.pid}; stop that first, wait for it if it is a command, or set DATA_DIR to another folder. If it is npm start, every command but move asks it: set HOST and PORT to its own, or use --url`,
  );
  await (await open()).close();
});

test('of two processes that open a folder at the same instant, the one that fails says which other one has it', async () => {
  const children = [0, 1].map(() =>
    spawn(process.execPath, [WRITER, folder.path], { stdio: ['ignore', 'ignore', 'pipe'] }),
  );
  const ends = children.map(async (child, n) => {
    const [said] = await Promise.all([readText(child.stderr), once(child, 'exit')]);
    return { said, other: children[1 - n]! };
  });
  const { said, other } = await Promise.race(ends);
  other.kill('SIGKILL');
  await Promise.all(ends);
  expect(said).toContain(`is in use by process ${other.pid};`);
});

test('a folder that cannot be made or written is refused in one line', async () => {
  writeFileSync(join(folder.path, 'file'), '');
  await expect(open(join(folder.path, 'file', 'data'))).rejects.toThrow(
    /^cannot write to the data folder .*ENOTDIR.*; set DATA_DIR to a folder of your own$/,
  );
  const locked = join(folder.path, 'locked');
  mkdirSync(locked);
  chmodSync(locked, 0o500);
  // root may write anywhere
  if (process.getuid?.() !== 0)
    await expect(open(join(locked, 'data'))).rejects.toThrow(/^cannot write to the data folder .*EACCES/);
});

test.each(['{a,b}', 'a*', 'a?'])('a folder whose name is a pattern of files is refused: %s', async (name) => {
  await expect(open(join(folder.path, name))).rejects.toMatchObject({ name: 'StartError', exitCode: 78 });
});

test('what a killed process left of its inserts is removed, and nothing else', async () => {
  const rows = join(folder.path, 'clickhouse', 'rows');
  const foreign = [join(folder.path, 'rows'), join(rows, 'of others')];
  for (const path of foreign) {
    mkdirSync(path, { recursive: true });
    writeFileSync(join(path, '7'), 'kept');
  }
  writeFileSync(join(rows, '7'), 'left');
  const clickhouse = await open();
  expect(readdirSync(rows)).toEqual(['of others']);
  for (const path of foreign) expect(readdirSync(path)).toEqual(['7']);
  await clickhouse.close();
});

test('no file is left of an insert, whether it succeeds or fails', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n' });
  const insert = (table: string, ...pieces: Uint8Array[]): Promise<void> =>
    clickhouse.insertRows({ table, columns: ['n'], pieces });
  await insert('t', row(1));
  await expect(insert('t', row(2), Buffer.from([1]))).rejects.toMatchObject({ code: 33 });
  await expect(insert('no_such_table', row(3))).rejects.toMatchObject({ code: 60, outcome: 'not_written' });
  expect(readdirSync(join(folder.path, 'clickhouse', 'rows'))).toEqual([]);
  await clickhouse.close();
});

test('256 MiB of the disk stay free, and inserts of rows leave 256 MiB more, so that retention still has room', async () => {
  const clickhouse = await open();
  const disk = "SELECT keep_free_space FROM system.disks WHERE name = 'default'";
  expect(await text(clickhouse, disk)).toBe(String(256 * 2 ** 20));
  await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n' });
  // the views of a table see the settings of the insert that fills it
  const margin = "getSetting('min_free_disk_bytes_to_perform_insert')";
  await clickhouse.execute({ sql: `CREATE TABLE margins (bytes UInt64) ENGINE = MergeTree ORDER BY bytes` });
  await clickhouse.execute({ sql: `CREATE MATERIALIZED VIEW v TO margins AS SELECT ${margin} AS bytes FROM t` });
  const insert = (settings = {}): Promise<void> =>
    clickhouse.insertRows({ table: 't', columns: ['n'], pieces: [row(1)], settings });
  await insert();
  expect(await text(clickhouse, 'SELECT bytes FROM margins')).toBe(String(256 * 2 ** 20));
  // as on a disk without that room: ingest repeats it, and a day can be dropped
  await expect(insert({ min_free_disk_bytes_to_perform_insert: 2 ** 60 })).rejects.toMatchObject({
    codeName: 'NOT_ENOUGH_SPACE',
    kind: 'retry',
  });
  expect(await text(clickhouse, 'SELECT count() FROM t')).toBe('1');
  await clickhouse.execute({ sql: "ALTER TABLE t DROP PARTITION ID 'all'" });
  expect(await text(clickhouse, 'SELECT count() FROM t')).toBe('0');
  await clickhouse.close();
});

test('an insert whose rows are still being written to their file is ended too', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n' });
  const pieces = Array.from({ length: 100 }, (_, n) => row(n));
  const insert = clickhouse.insertRows({ table: 't', columns: ['n'], pieces, queryIds: ['topic:0'] });
  const failed = expect(insert).rejects.toMatchObject({ code: 394, kind: 'retry' });
  await clickhouse.killInsert('topic:0');
  await failed;
  expect(await text(clickhouse, 'SELECT count() FROM t')).toBe('0');
  await clickhouse.close();
});

test('closing ends reads at once, lets an insert finish, and the folder can be opened again', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n' });
  const read = clickhouse
    .read({ sql: 'SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) % 7 = 1', format: 'Null' })
    .catch((e: unknown) => e);
  const write = clickhouse.execute({
    sql: 'INSERT INTO t SELECT number FROM numbers(20) WHERE sleepEachRow(0.05) = 0',
    settings: { max_block_size: 1 },
  });
  const before = performance.now();
  await clickhouse.close();
  expect(performance.now() - before).toBeLessThan(4_000);
  expect(await read).toMatchObject({ code: 394 });
  await write;
  await expect(clickhouse.read({ sql: 'SELECT 1', format: 'Null' })).rejects.toMatchObject({
    code: 236,
    kind: 'retry',
  });
  await expect(clickhouse.execute({ sql: 'SELECT 1' })).rejects.toMatchObject({ code: 236, outcome: 'not_written' });
  const again = await open();
  expect(await text(again, 'SELECT count() FROM t')).toBe('20');
  await again.close();
});

test('an insert that does not end is ended when the engine is closed', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64) ENGINE = MergeTree ORDER BY n' });
  const write = clickhouse
    .execute({
      sql: 'INSERT INTO t SELECT number FROM numbers(1000000) WHERE sleepEachRow(0.05) = 0',
      settings: { max_block_size: 1 },
    })
    .catch((e: unknown) => e);
  const before = performance.now();
  await clickhouse.close();
  expect(performance.now() - before).toBeLessThan(8_000);
  expect(await write).toMatchObject({ code: 394, kind: 'retry', outcome: 'unknown' });
});

test('a session that is left in disorder is not used again', async () => {
  // one reader: the next read would get the session of the last
  const clickhouse = await open(folder.path, { readers: 1, writers: 1 });
  for (let round = 0; round < 20; round++) {
    await expect(
      text(clickhouse, "SELECT 'of the first', number, throwIf(number = 500000) FROM numbers(1000000)"),
    ).rejects.toMatchObject({ code: 395 });
    expect(await text(clickhouse, `SELECT ${round}`)).toBe(String(round));
    await expect(
      clickhouse.execute({ sql: "SELECT 'of the first', number, throwIf(number = 500000) FROM numbers(1000000)" }),
    ).rejects.toMatchObject({ code: 395 });
    await clickhouse.execute({ sql: 'SELECT 1' });
  }
  await clickhouse.close();
});

test('settings that a writer could not set are set by its next statement', async () => {
  const clickhouse = await open(folder.path, { writers: 1 });
  const insertSize = "INSERT INTO sizes SELECT getSetting('max_block_size')";
  await clickhouse.execute({ sql: 'CREATE TABLE sizes (n UInt64) ENGINE = MergeTree ORDER BY tuple()' });
  const wrong = { max_block_size: 1234, join_default_strictness: 'no such one' };
  await expect(clickhouse.execute({ sql: insertSize, settings: wrong })).rejects.toMatchObject({ code: 418 });
  await clickhouse.execute({ sql: insertSize, settings: { max_block_size: 1234 } });
  expect(await text(clickhouse, 'SELECT n FROM sizes')).toBe('1234');
  await clickhouse.close();
});

test('times without a zone are UTC, whatever the zone of the machine', async () => {
  const clickhouse = await open();
  expect(await text(clickhouse, 'SELECT serverTimezone()')).toBe('Asia/Kathmandu');
  const time = 'toString(toDateTime(0))';
  expect(await text(clickhouse, `SELECT ${time}`)).toBe('1970-01-01 00:00:00');
  await clickhouse.execute({ sql: 'CREATE TABLE times (t String) ENGINE = MergeTree ORDER BY t' });
  await clickhouse.execute({ sql: `INSERT INTO times SELECT ${time}` });
  expect(await text(clickhouse, 'SELECT t FROM times')).toBe('1970-01-01 00:00:00');
  await clickhouse.close();
});

test('the engine stores nothing of its own: no query log, no metric log', async () => {
  const clickhouse = await open();
  await text(clickhouse, 'SELECT 1');
  expect(existsSync(join(folder.path, 'clickhouse', 'store'))).toBe(false);
  await clickhouse.close();
});

test('merges wait while a backlog comes in, and go on when it ends', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE large (n UInt64, text String) ENGINE = MergeTree ORDER BY n' });
  const columns = ['n', 'text'];
  const pieces = [row(1, 'x'.repeat(17_000_000))];
  for (let i = 0; i < 2; i++) await clickhouse.insertRows({ table: 'large', columns, pieces });
  const merge = async (): Promise<string> =>
    await clickhouse.execute({ sql: 'OPTIMIZE TABLE large FINAL' }).then(
      () => 'merged',
      (error: { codeName: string }) => error.codeName,
    );
  await waitFor(async () => (await merge()) === 'ABORTED', 2_000, 'merges are held');
  const parts = "SELECT count() FROM system.parts WHERE table = 'large' AND active";
  expect(await text(clickhouse, parts)).toBe('2');
  await waitFor(async () => (await merge()) === 'merged', 10_000, 'parts are merged');
  expect(await text(clickhouse, parts)).toBe('1');
  await clickhouse.close();
});

test('expressions are not compiled, however often they run: that takes 20 MB of memory', async () => {
  const clickhouse = await open();
  await clickhouse.execute({ sql: 'CREATE TABLE seen (n Int64) ENGINE = MergeTree ORDER BY n' });
  for (let i = 0; i < 10; i++)
    await clickhouse.execute({
      sql: 'INSERT INTO seen SELECT sum((number * 3 + 7) * (number - 5) + number * number) FROM numbers(100000) GROUP BY number % 7',
    });
  await clickhouse.execute({ sql: 'TRUNCATE TABLE seen' });
  await clickhouse.execute({
    sql: "INSERT INTO seen SELECT value FROM system.metrics WHERE metric = 'CompiledExpressionCacheCount'",
  });
  expect(await text(clickhouse, 'SELECT n FROM seen')).toBe('0');
  await clickhouse.close();
});

test('closed with many sessions while a write runs: the engine has ended, another folder can be opened at once', async () => {
  const clickhouse = await open();
  for (let threads = 1; threads <= 12; threads++)
    await clickhouse.read({ sql: 'SELECT 1', format: 'Null', settings: { max_threads: threads } });
  void clickhouse.execute({ sql: 'CREATE TABLE t ENGINE = MergeTree ORDER BY n AS SELECT sleep(0.5) AS n' });
  await waitFor(
    async () => (await text(clickhouse, "SELECT count() FROM system.processes WHERE query LIKE 'CREATE%'")) === '1',
    5_000,
    'the write runs',
    25,
  );
  await clickhouse.close();
  expect(() => new Session(join(folder.path, 'other')).close()).not.toThrow();
});
