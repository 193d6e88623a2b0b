import { createServer } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { openClickHouse } from '../../../common/clickhouse/open.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { StartError } from '../../../common/errors.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startRollup } from '../../../services/rollup/service.ts';
import { startFace, type Face, type Fault } from '../../harness/clickhouse-face.ts';
import { row } from '../../harness/clickhouse-rowbinary.ts';
import { temporaryFolder, testLogger } from '../../harness/clickhouse.ts';

let face: Face;
let folder: ReturnType<typeof temporaryFolder>;
const PASSWORD = 'p@ss/w:rd%';

beforeAll(async () => {
  folder = temporaryFolder();
  face = await startFace({ dataDir: folder.path, password: PASSWORD });
});
afterAll(async () => {
  await face.stop();
  folder.remove();
});

const failure = async (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error,
  );

describe('what goes wrong between us and the server', () => {
  let clickhouse: ClickHouse;
  let stored = 0;

  beforeAll(async () => {
    clickhouse = await openServer({ url: face.url, logger: testLogger, requestTimeoutMs: 1_000 });
    await clickhouse.execute({ sql: 'CREATE TABLE t (n UInt64, a String) ENGINE = MergeTree ORDER BY n' });
  });
  beforeEach(async () => {
    await face.inject();
    stored = Number(await count());
  });
  afterAll(async () => {
    await clickhouse.close();
  });

  const count = async (): Promise<string> =>
    (await clickhouse.read({ sql: 'SELECT count() FROM t', format: 'TabSeparated' })).body.toString('utf8').trim();
  const insert = (): Promise<void> =>
    clickhouse.insertRows({ table: 't', columns: ['n', 'a'], pieces: [row(1, 'a'), row(2, 'x'.repeat(3_000_000))] });

  test('data may go to a disk whose free space is unknown, as in S3', async () => {
    await clickhouse.execute({
      sql: `CREATE TABLE blobs (n UInt64, a String) ENGINE = MergeTree ORDER BY n SETTINGS disk = disk(type = 'local_blob_storage', path = '${folder.path}/blobs/')`,
    });
    await clickhouse.insertRows({ table: 'blobs', columns: ['n', 'a'], pieces: [row(1, 'a')] });
    const { body } = await clickhouse.read({ sql: 'SELECT n, a FROM blobs', format: 'TabSeparated' });
    expect(body.toString()).toBe('1\ta\n');
  });

  test.each<[Fault['action'], Partial<Fault>, Partial<ClickHouseError>, rows: number]>([
    ['reset', {}, { codeName: 'ECONNRESET', kind: 'retry', outcome: 'unknown' }, 0],
    ['cut_request', {}, { kind: 'retry', outcome: 'unknown' }, 0],
    ['hang', {}, { codeName: 'ETIMEDOUT', kind: 'retry', outcome: 'unknown' }, 0],
    ['error', { code: 252 }, { code: 252, codeName: 'TOO_MANY_PARTS', kind: 'retry', outcome: 'unknown' }, 0],
    ['error', { code: 62 }, { code: 62, codeName: 'SYNTAX_ERROR', kind: 'fatal', outcome: 'not_written' }, 0],
    ['garbage', { status: 200 }, { code: undefined, codeName: 'HTTP_200', kind: 'retry', outcome: 'unknown' }, 0],
    ['garbage', { status: 502 }, { code: undefined, codeName: 'HTTP_502', kind: 'retry', outcome: 'unknown' }, 0],
    ['garbage', { status: 413 }, { code: undefined, codeName: 'HTTP_413', kind: 'fatal', outcome: 'not_written' }, 0],
    ['reset_after', {}, { codeName: 'ECONNRESET', kind: 'retry', outcome: 'unknown' }, 2],
    ['hang_after', {}, { codeName: 'ETIMEDOUT', kind: 'retry', outcome: 'unknown' }, 2],
    ['error_after', { code: 159 }, { code: 159, codeName: 'TIMEOUT_EXCEEDED', kind: 'retry', outcome: 'unknown' }, 2],
    ['cut_response', {}, { codeName: 'ECONNRESET', kind: 'retry', outcome: 'unknown' }, 2],
    [
      'late_exception',
      { code: 241 },
      { code: 241, codeName: 'MEMORY_LIMIT_EXCEEDED', kind: 'retry', outcome: 'unknown' },
      2,
    ],
  ])('an insert that meets %s %o', async (action, fault, expected, rows) => {
    await face.inject({ action, match: '^INSERT', ...fault });
    expect(await failure(insert())).toMatchObject(expected);
    expect(Number(await count()) - stored).toBe(rows);
  });

  test('of an insert that is cut in its body the server has half, and stores nothing', async () => {
    const aborted = (): Promise<string> =>
      face.query("SELECT sum(value) FROM system.errors WHERE last_error_message LIKE 'Unexpected EOF, got 15% of 30%'");
    const before = Number(await aborted());
    await face.inject({ action: 'cut_request', match: '^INSERT' });
    await failure(insert());
    expect(Number(await aborted())).toBe(before + 1);
    expect(Number(await count())).toBe(stored);
  });

  test.each<[Fault['action'], Partial<Fault>, Partial<ClickHouseError>]>([
    ['reset', {}, { codeName: 'ECONNRESET', kind: 'retry' }],
    ['hang', {}, { codeName: 'ETIMEDOUT', kind: 'retry' }],
    ['error', { code: 202 }, { code: 202, kind: 'retry' }],
    ['garbage', { status: 200 }, { codeName: 'HTTP_200', kind: 'retry' }],
    ['garbage', { status: 503 }, { codeName: 'HTTP_503', kind: 'retry' }],
    ['cut_response', {}, { codeName: 'ECONNRESET', kind: 'retry' }],
    ['late_exception', { code: 159 }, { code: 159, codeName: 'TIMEOUT_EXCEEDED', kind: 'retry' }],
  ])('a read that meets %s %o is never a part of an answer', async (action, fault, expected) => {
    await face.inject({ action, match: 'whole', ...fault });
    const read = (): Promise<unknown> =>
      clickhouse.read({ sql: "SELECT 'whole', number FROM numbers(1000)", format: 'TabSeparated' });
    expect(await failure(read())).toMatchObject({ ...expected, outcome: 'not_written' });
    expect(await read()).toMatchObject({ readRows: 1000 });
  });

  test('a server that is away: refused, nothing written; back again: goes on by itself', async () => {
    await face.down();
    expect(await failure(insert())).toMatchObject({ codeName: 'ECONNREFUSED', kind: 'retry', outcome: 'not_written' });
    expect(await failure(clickhouse.ping())).toMatchObject({ codeName: 'ECONNREFUSED', kind: 'retry' });
    await face.up();
    await clickhouse.ping();
    await insert();
    expect(Number(await count()) - stored).toBe(2);
  });

  test('a slow answer is waited for as long as bytes or the time limit allow', async () => {
    await face.inject({ action: 'delay', match: '^INSERT', ms: 700 });
    await insert();
    expect(Number(await count()) - stored).toBe(2);
  });

  test.each([
    ['reads block by block', 'numbers(30) WHERE sleepEachRow(0.1) = 0', 30],
    ['sorts what it has read', '(SELECT row_number() OVER (ORDER BY cityHash64(number)) FROM numbers(20000000))', 2e7],
  ])('a read that %s is waited for longer than the fixed time, as long as it makes progress', async (_, from, rows) => {
    const settings = rows === 30 ? { max_block_size: 1 } : {};
    const read = (what: string): Promise<unknown> =>
      clickhouse.read({ sql: `SELECT ${what} FROM ${from}`, format: 'TabSeparated', settings });
    const since = performance.now();
    await expect(read('count()')).resolves.toMatchObject({ body: Buffer.from(`${rows}\n`) });
    expect(performance.now() - since).toBeGreaterThan(1_000);
    expect(await failure(read(`throwIf(count() = ${rows})`))).toMatchObject({ code: 395, outcome: 'not_written' });
  });

  test('a read without progress is ended after the fixed time', async () => {
    const since = performance.now();
    const read = clickhouse.read({ sql: 'SELECT sleep(3)', format: 'TabSeparated' });
    expect(await failure(read)).toMatchObject({ codeName: 'ETIMEDOUT', kind: 'retry', outcome: 'not_written' });
    expect(performance.now() - since).toBeLessThan(2_500);
  });

  test('an answer that was quick in the engine and comes after the time limit of its read is none', async () => {
    const read = (max_execution_time: number): Promise<unknown> =>
      clickhouse.read({ sql: "SELECT 'late'", format: 'TabSeparated', settings: { max_execution_time } });
    await face.inject({ action: 'delay', match: 'late', ms: 200, times: 2 });
    expect(await failure(read(0.05))).toMatchObject({
      code: 159,
      codeName: 'TIMEOUT_EXCEEDED',
      outcome: 'not_written',
    });
    await expect(read(30)).resolves.toMatchObject({ body: Buffer.from('late\n') });
  });
});

describe('at the start', () => {
  const start = (change: (url: URL) => void): Promise<unknown> => {
    const url = new URL(face.url);
    change(url);
    return failure(openServer({ url: url.href, logger: testLogger, wait: false }));
  };

  test.each<[string, (url: URL) => void, RegExp]>([
    [
      'a wrong password',
      (url) => {
        url.password = 'wr0ng';
      },
      /^ClickHouse at http:\/\/127\.0\.0\.1:\d+\/sluice refuses the user sluice or its password; check CLICKHOUSE_URL$/,
    ],
    [
      'no such database',
      (url) => {
        url.pathname = '/nope';
      },
      /^ClickHouse at .* has no database nope; create it: CREATE DATABASE `nope`$/,
    ],
    [
      'nobody at that port',
      (url) => {
        url.port = '1';
      },
      /^ClickHouse at http:\/\/127\.0\.0\.1:1\/sluice does not answer: ECONNREFUSED$/,
    ],
    [
      'no such host',
      (url) => {
        url.hostname = 'no-such-host.invalid';
      },
      /^ClickHouse at .* does not answer: (ENOTFOUND|EAI_AGAIN)$/,
    ],
  ])('%s is one clear line without the password', async (_, change, message) => {
    const error = await start(change);
    expect(error).toBeInstanceOf(StartError);
    expect((error as Error).message).toMatch(message);
    expect((error as Error).message).not.toContain(encodeURIComponent(PASSWORD));
    expect((error as Error).message).not.toMatch(/wr0ng|p@ss/);
  });

  test('something that is no ClickHouse is told from one that is away', async () => {
    const other = createServer((socket) => {
      socket.end('220 mail.example.org ESMTP\r\n');
    });
    await new Promise<void>((resolve) => {
      other.listen(0, '127.0.0.1', resolve);
    });
    const address = other.address();
    const error = await start((url) => {
      url.port = String(typeof address === 'object' ? address?.port : '');
    });
    other.close();
    expect(error).toBeInstanceOf(StartError);
    expect((error as Error).message).toMatch(
      /does not answer like ClickHouse's HTTP interface \(HPE_\w+\); check CLICKHOUSE_URL$/,
    );
  });

  test('a version that is too old is named with the one that is wanted', async () => {
    const old = temporaryFolder();
    for (const [version, fits] of [
      ['no version', false],
      ['25.3.6.56', false],
      ['24.12.1.1', false],
      ['25.8.1.1', true],
      ['26.1.1.1', true],
    ] as const) {
      const oldFace = await startFace({ dataDir: old.path, version });
      const opened = await openServer({ url: oldFace.url, logger: testLogger, wait: false }).catch((e: unknown) => e);
      await oldFace.stop();
      if (fits) expect(opened).toMatchObject({ version });
      else
        expect(opened).toMatchObject({
          name: 'StartError',
          message: `ClickHouse at ${oldFace.url.replace('sluice@', '')} is version ${version}; 25.8 or newer is needed`,
        });
    }
    old.remove();
  });

  test('a server that restarts after its first answer is waited for', async () => {
    await face.inject(
      { action: 'reset', match: 'FROM system.settings$', times: 2 },
      { action: 'reset', match: '^CHECK GRANT', times: 20 },
    );
    const settings = { CLICKHOUSE_URL: face.url, DATA_DIR: folder.path, QUERY_CONCURRENCY: 4 };
    const clickhouse = await openClickHouse(settings, testLogger, { service: 'query' });
    await clickhouse.close();
    await face.inject({ action: 'reset', match: 'FROM system.settings$', times: 2 });
    const opened = failure(openClickHouse(settings, testLogger, { wait: false }));
    expect(await opened).toMatchObject({ name: 'StartError', message: expect.stringContaining('does not answer') });
    await face.inject();
  });

  test('a server that is not up yet is waited for, until the wait is broken off', async () => {
    await face.down();
    const stop = new AbortController();
    const given = openClickHouse(
      { CLICKHOUSE_URL: face.url, DATA_DIR: folder.path, QUERY_CONCURRENCY: 4 },
      testLogger,
      { signal: stop.signal },
    );
    setTimeout(() => stop.abort(), 200);
    expect(await failure(given)).toMatchObject({ name: 'AbortError' });
    const waited = openClickHouse(
      { CLICKHOUSE_URL: face.url, DATA_DIR: folder.path, QUERY_CONCURRENCY: 4 },
      testLogger,
    );
    await face.up();
    const clickhouse = await waited;
    await clickhouse.ping();
    expect(clickhouse.where).not.toContain('p@ss');
    await clickhouse.close();
  });
});

test('the rollup service starts in a database whose name the engine quotes', async () => {
  const home = await openServer({ url: face.url, logger: testLogger });
  await home.execute({ sql: 'CREATE DATABASE `my-logs`' });
  await home.close();
  const clickhouse = await openServer({
    url: Object.assign(new URL(face.url), { pathname: 'my-logs' }).href,
    logger: testLogger,
  });
  const rollup = await startRollup({
    clickhouse,
    settings: readSettings({}),
    logger: testLogger,
    registry: createRegistry(),
  });
  const rows = await clickhouse.read({ sql: 'SELECT count() FROM api_requests', format: 'TabSeparated' });
  expect(rows.body.toString('utf8')).toBe('0\n');
  await rollup.stop();
  await clickhouse.close();
});
