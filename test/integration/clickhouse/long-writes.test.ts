import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { createLogger } from '../../../common/logger.ts';
import { startFace, type Face } from '../../harness/clickhouse-face.ts';
import { startServer } from '../../harness/clickhouse-server.ts';
import { row } from '../../harness/clickhouse-rowbinary.ts';
import { temporaryFolder, testLogger } from '../../harness/clickhouse.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: a write takes as long as the server works on it, however long that is. One that is given up is over when
// its error comes: it writes nothing behind the back of whoever looks at what it left. Where the server cannot be
// asked, the log says so. The fixed time of a request is 60 s in a service, and half a second here.

const REQUEST_TIMEOUT_MS = 500;
/** A view that sleeps for every row, three tenths of a second. */
const SECONDS_A_ROW = 0.3;

let folder: ReturnType<typeof temporaryFolder>;
let face: Face;
let clickhouse: ClickHouse;
/** log lines from warn on */
let lines: string[];

beforeAll(() => {
  folder = temporaryFolder();
});
beforeEach(async () => {
  face = await startFace({ dataDir: folder.path, password: 'secret' });
  lines = [];
  const logger = createLogger('warn', { write: (line) => void lines.push(line) });
  clickhouse = await openServer({ url: face.url, logger, requestTimeoutMs: REQUEST_TIMEOUT_MS });
  for (const sql of ['slow_mv', 'slow', 'slow_counts'].map((name) => `DROP TABLE IF EXISTS ${name}`))
    await clickhouse.execute({ sql });
  await clickhouse.execute({
    sql: 'CREATE TABLE slow (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 100',
  });
  await clickhouse.execute({
    sql: 'CREATE TABLE slow_counts (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS non_replicated_deduplication_window = 100',
  });
  await clickhouse.execute({
    sql: `CREATE MATERIALIZED VIEW slow_mv TO slow_counts AS SELECT n FROM slow WHERE sleepEachRow(${SECONDS_A_ROW}) = 0 SETTINGS max_block_size = 1`,
  });
});
afterEach(async () => {
  await face.inject();
  await clickhouse.close();
  await face.kill();
});
afterAll(() => folder.remove());

const text = async (sql: string): Promise<string> => face.query(sql);
const insert = (rows: number, queryId?: string): Promise<void> =>
  clickhouse.insertRows({
    table: 'slow',
    columns: ['n'],
    pieces: Array.from({ length: rows }, (_, n) => row(n)),
    settings: { insert_deduplication_token: 'batch', function_sleep_max_microseconds_per_block: 60_000_000 },
    ...(queryId !== undefined && { queryIds: [queryId] }),
  });
const failure = async (promise: Promise<unknown>): Promise<ClickHouseError> =>
  promise.then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error as ClickHouseError,
  );
const mayStillRun = (): boolean => lines.some((line) => line.includes('clickhouse_write_may_still_run'));
const running = async (): Promise<string> =>
  text("SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO%'");

describe('a write to a server', () => {
  test('that takes five times the fixed time of a request succeeds', async () => {
    const since = performance.now();
    await insert(9);
    expect(performance.now() - since).toBeGreaterThan(5 * REQUEST_TIMEOUT_MS);
    expect(await text('SELECT (SELECT count() FROM sluice.slow), (SELECT count() FROM sluice.slow_counts)')).toBe(
      '9\t9',
    );
  });

  test('goes on while the server refuses every question about it', async () => {
    await face.inject({ action: 'error', code: 202, match: '^SELECT .* FROM system.processes', times: Infinity });
    await insert(9);
    expect(await text('SELECT count() FROM sluice.slow_counts')).toBe('9');
  });

  test('whose connection breaks is over when its error comes, and the same batch again completes it', async () => {
    const failed = failure(insert(9));
    failed.catch(() => undefined);
    await waitFor(
      async () => (await text('SELECT count() FROM sluice.slow')) === '9',
      10_000,
      'the rows are there, and the view is at work',
    );
    await face.down();
    await face.up();
    expect(await failed).toMatchObject({ kind: 'retry', outcome: 'unknown' });
    expect(mayStillRun()).toBe(false);
    expect(await running()).toBe('0');
    await insert(9);
    expect(await text('SELECT (SELECT count() FROM sluice.slow), (SELECT count() FROM sluice.slow_counts)')).toBe(
      '9\t9',
    );
  });

  test('that cannot be asked about has an unknown outcome, and the log says that it may still run', async () => {
    const failed = failure(insert(9));
    failed.catch(() => undefined);
    await waitFor(
      async () => (await text('SELECT count() FROM sluice.slow')) === '9',
      10_000,
      'the rows are there, and the view is at work',
    );
    await face.down();
    expect(await failed).toMatchObject({ kind: 'retry', outcome: 'unknown' });
    expect(mayStillRun()).toBe(true);
    await face.up();
  });

  test('that never reached the server is given up after the fixed time', async () => {
    await face.inject({ action: 'hang', match: '^INSERT' });
    const since = performance.now();
    expect(await failure(insert(1))).toMatchObject({
      codeName: 'ETIMEDOUT',
      kind: 'retry',
      outcome: 'unknown',
    });
    expect(mayStillRun()).toBe(false);
    expect(performance.now() - since).toBeLessThan(REQUEST_TIMEOUT_MS + 5_000);
    expect(await text('SELECT count() FROM sluice.slow')).toBe('0');
  });

  test('of another process is ended by the id of its batch, and no other is', async () => {
    const other = await openServer({ url: face.url, logger: testLogger });
    const failed = failure(insert(30, 'topic:0:1:5'));
    failed.catch(() => undefined);
    const kept = other.execute({
      sql: 'INSERT INTO slow_counts SELECT number + 100 FROM numbers(20) WHERE sleepEachRow(0.5) = 0',
      settings: { function_sleep_max_microseconds_per_block: 60_000_000 },
    });
    await waitFor(async () => (await running()) === '2', 10_000, 'both run');
    await other.killInsert('topic:0:1:55');
    await other.killInsert('topic:0:1');
    expect(Number(await running())).toBe(2);
    await other.killInsert('topic:0:1:5');
    expect(Number(await running())).toBeLessThan(2);
    expect(await failed).toMatchObject({ code: 394, kind: 'retry', outcome: 'unknown' });
    await kept;
    expect(await text('SELECT count() FROM sluice.slow_counts WHERE n >= 100')).toBe('20');
    await other.close();
  });

  test('is not ended by another installation, whose database is another one on the same server', async () => {
    await face.query('CREATE DATABASE IF NOT EXISTS other');
    const other = await openServer({
      url: Object.assign(new URL(face.url), { pathname: 'other' }).href,
      logger: testLogger,
    });
    const kept = insert(9, 'ingest:edge_logs:0');
    await waitFor(async () => (await running()) === '1', 10_000, 'it runs');
    await other.killInsert('ingest:edge_logs:0');
    expect(await running()).toBe('1');
    await kept;
    expect(await text('SELECT count() FROM sluice.slow_counts')).toBe('9');
    await other.close();
  });
});

test('a server that was replaced by another version is told the settings of that version', async () => {
  const own = temporaryFolder();
  const older = await startFace({ dataDir: own.path, password: 'secret', engine: '25.8' });
  const replaced = await openServer({ url: older.url, logger: testLogger, requestTimeoutMs: REQUEST_TIMEOUT_MS });
  expect(replaced.version).toMatch(/^25\.8\./);
  await older.kill();
  const port = Number(new URL(older.url).port);
  const newer = await startFace({ dataDir: own.path, password: 'secret', engine: '26.7', port });
  try {
    await newer.query('CREATE TABLE sluice.t (n UInt64) ENGINE = MergeTree ORDER BY n');
    // the old connections break first
    await waitFor(
      async () => {
        await replaced.insertRows({ table: 't', columns: ['n'], pieces: [row(1)] });
        return true;
      },
      10_000,
      'it goes on',
    );
    expect(replaced.version).toMatch(/^26\.7\./);
    const { body } = await replaced.read({
      sql: "SELECT getSetting('analyzer_inline_views')",
      format: 'TabSeparated',
      fewRows: true,
    });
    expect(body.toString()).toMatch(/^(true|1)\n$/);
  } finally {
    await replaced.close();
    await newer.kill();
    own.remove();
  }
});

test('an insert that has ended is known to be over, whatever the profile sets', async () => {
  const own = temporaryFolder();
  const server = await startServer({ profile: 'hostile', dataDir: own.path });
  const hostile = await openServer({ url: `${server.url}/default`, logger: testLogger, wait: false });
  await expect(hostile.killInsert('batch')).resolves.toBeUndefined();
  await hostile.close();
  await server.kill();
  own.remove();
});
