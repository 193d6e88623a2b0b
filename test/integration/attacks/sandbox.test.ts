import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shrinkHeap } from '../../../common/lifecycle/shrink-heap.ts';
import { ISOLATED_SETTINGS } from '../../../services/query/answer/sandbox.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { call, openEngine, startService, store, type Engine, type Mode } from '../query/service.ts';
import { whileAlive } from './alive.ts';

/** SELECTs of callers that cost more than they may. */
const NOW = Date.UTC(2026, 2, 1, 9, 0, 0);
const SECONDS = 4;
const folder = temporaryFolder();
let engine: Engine;
let service: QueryService;
afterAll(() => folder.remove());

const doubled = (times: number, text = "'ab'"): string =>
  Array.from({ length: times }, (_, i) => (i === 0 ? `${text} AS s0` : `concat(s${i - 1}, s${i - 1}) AS s${i}`)).join(
    ', ',
  );
/** refused by what they say */
const refused = [
  `SELECT ${doubled(20)}, editDistance(s19, reverse(s19)) AS d`,
  `SELECT ${doubled(40)}, length(s39) AS n`,
  `SELECT ${doubled(18)}, length(s17) AS n`,
  // in another SELECT the same names stand for each other in the other order
  `SELECT (SELECT s0 FROM (SELECT 1 AS s17, ${Array.from({ length: 17 }, (_, i) => `s${i + 1} AS s${i}`).join(', ')})) AS t, ${doubled(18)}, length(s17) AS n`,
  `SELECT concat(${'id, '.repeat(2000)}id) AS a, concat(a, a, a, a, a, a) AS b FROM edge`,
  "SELECT repeat('a', 1000000)",
  "SELECT leftPad('a', 1000000)",
  'SELECT hasAll(range(10000), range(10000))',
  "SELECT extractAll(message, 'a.*?b|a') FROM edge",
  // a constant is searched once for each of ten million values in one block
  'SELECT arrayCount(x -> has(range(10000), x + n + 10000), range(10000)) AS c FROM (SELECT arrayJoin(range(1000)) AS n)',
  `SELECT arrayCount(x -> has([${Array.from({ length: 300 }, (_, i) => i + 1000).join()}], x), range(10000)) AS c FROM edge`,
  'SELECT length(arrayIntersect(range(10000), [n])) AS c FROM (SELECT arrayJoin(range(1000)) AS n)',
  'SELECT position(message, id) AS c FROM edge',
  'SELECT JSONHas(message, id) AS c FROM edge',
  "SELECT replaceAll(message, id, '') AS c FROM edge",
  'SELECT substringUTF8(message, length(id)) AS c FROM edge',
  "SELECT arrayCount(x -> CAST((range(10000), range(10000)), 'Map(UInt64, UInt64)')[x + n + 10000] = 1, range(10000)) AS c FROM (SELECT arrayJoin(range(1000)) AS n)",
  "SELECT arrayCount(x -> CAST((range(10000), range(10000)), concat('Ma', 'p(UInt64, UInt64)'))[x + n + 10000] = 1, range(10000)) AS c FROM (SELECT arrayJoin(range(1000)) AS n)",
  `SELECT map(${Array.from({ length: 900 }, (_, i) => `${i},1`).join()}) AS m, arrayCount(x -> m[toUInt16(x)] = 1, range(10000)) AS c FROM edge`,
  // each of many short needles is searched by itself
  "SELECT multiSearchAny(message, arrayMap(x -> concat('x', toString(length(id) % 10)), range(1000))) AS c FROM edge",
  'SELECT multiSearchFirstIndex(message, [id]) AS c FROM edge',
  // each row adds up its whole frame
  ...[
    'ROWS BETWEEN 1000000 PRECEDING AND CURRENT ROW',
    'ROWS 1000000 PRECEDING',
    'ROWS BETWEEN (999) PRECEDING AND CURRENT ROW',
    'RANGE BETWEEN 1 PRECEDING AND CURRENT ROW',
    'ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING',
    'RANGE CURRENT ROW',
  ].map((frame) => `SELECT corr(n, n) OVER (ORDER BY n ${frame}) AS c FROM (SELECT arrayJoin(range(10000)) AS n)`),
  'SELECT corr(n, n) OVER w AS c FROM (SELECT arrayJoin(range(10000)) AS n) WINDOW w AS (ORDER BY n ROWS 1000 PRECEDING)',
  // in a window
  'SELECT count() OVER (ORDER BY editDistance(id, message)) AS c FROM edge',
  'SELECT count() OVER (PARTITION BY position(message, id)) AS c FROM edge',
  `SELECT ${doubled(11)}, count() OVER (ORDER BY s10, s10, s10, s10, s10, s10, s10, s10) AS c`,
  "SELECT match(message, '.{1000}.{500}!') FROM edge",
  'SELECT match(message, message) FROM edge',
  `SELECT message LIKE '${'%a'.repeat(150)}' FROM edge`,
  `SELECT ${Array.from({ length: 101 }, () => 'lower(').join('')}message${')'.repeat(101)} FROM edge`,
];
/** allowed by what they say, and ended by their limits */
const costly = [
  'SELECT count() AS n FROM (SELECT arrayJoin(range(10000)) AS a, arrayJoin(range(10000)) AS b, arrayJoin(range(10000)) AS c)',
  // the largest that may be doubled
  `SELECT ${doubled(11)}, length(s10) AS n`,
  'SELECT groupArray(a) AS n FROM (SELECT arrayJoin(range(9999)) AS a, arrayJoin(range(9999)) AS b)',
  'SELECT sum(cityHash64(a.id, b.id, c.id)) AS n FROM edge AS a JOIN edge AS b ON 1 = 1 JOIN edge AS c ON 1 = 1 JOIN edge AS d ON 1 = 1',
  'SELECT arrayMap(x -> arrayMap(y -> arrayMap(z -> x * y * z, range(9999)), range(9999)), range(9999)) AS n',
  "SELECT count() AS n FROM edge WHERE match(message, '[a-z].{190}\u0001')",
];

describe.each(['embedded', 'server'] as const)('%s', (mode: Mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode, { sandbox: 'without rights' });
    await store(
      engine.clickhouse,
      'edge_logs',
      Array.from({ length: 400 }, (_, i) =>
        JSON.stringify({ id: `e${i}`, timestamp: (NOW - i) * 1000, project: 'p', event_message: 'abc'.repeat(500) }),
      ),
      { now: NOW },
    );
    writeFileSync(
      join(folder.path, 'own.sql'),
      'WITH edge AS (SELECT id, message FROM edge_logs WHERE project = @project)\nSELECT id AS n FROM edge',
    );
    writeFileSync(
      join(folder.path, 'own.yaml'),
      `id: 00000000-0000-4000-8000-00000000aaaa\nname: own\ndescription: own\nmax_seconds: ${SECONDS}\nsandboxed: true\nproject: { parameter: project, match: exact }\nparameters: { required: [project], properties: { project: { description: p } } }\ncolumns:\n  - { name: n, render: json, description: n }\n`,
    );
    service = await startService(
      engine.clickhouse,
      engine.dataDir,
      { ENDPOINTS_DIR: folder.path },
      { clock: () => NOW },
    );
    await service.ready;
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it.each(refused)('refuses %s', async (sql) => {
    const from = performance.now();
    const reply = await call(service, 'own', { project: 'p', sql });
    expect(performance.now() - from).toBeLessThan(SECONDS * 1000);
    expect([reply.status, reply.error.errors?.map((e) => e.parameter)]).toEqual([400, ['sql']]);
  });

  it.each(costly)('ends %s about at its limit, and others are answered meanwhile', async (sql) => {
    await whileAlive(service.address, async () => {
      const from = performance.now();
      const reply = await call(service, 'own', { project: 'p', sql });
      expect([200, 400, 504]).toContain(reply.status);
      // the limit for what is read and for what is made of it, and the start of another process
      expect(performance.now() - from).toBeLessThan((2 * SECONDS + 8) * 1000);
    });
    const next = await call(service, 'own', { project: 'p', sql: 'SELECT count() AS n FROM edge' });
    expect([next.status, next.text]).toEqual([200, '{"result":[{"n":400}]}']);
  });
});

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('without the first wall, beside the embedded engine', () => {
  beforeAll(async () => {
    engine = await openEngine();
  });
  afterAll(() => engine?.close());

  it.each([
    "SELECT editDistance(materialize(repeat('ab', 30000)), repeat('ba', 30000)) FROM numbers(100)",
    "SELECT match(materialize(repeat(repeat('ab', 1000), 1000)), '.{1000}.{500}\\\\x01')",
    "SELECT extractAll(repeat('a', 1000000), 'a.*?b|a')",
  ])('%s ends with its process, and the next statement is answered', async (sql) => {
    const one = async (): Promise<string> =>
      (await engine.clickhouse.read({ sql: 'SELECT 1', format: 'TSV', isolated: true })).body.toString();
    // its process is there
    expect(await one()).toBe('1\n');
    const from = performance.now();
    await expect(
      engine.clickhouse.read({
        sql,
        format: 'TSV',
        settings: { ...ISOLATED_SETTINGS, max_execution_time: 1 },
        isolated: true,
      }),
    ).rejects.toMatchObject({ code: 159 });
    // without that end each goes on for a minute or more
    expect(performance.now() - from).toBeLessThan(8_000);
    expect(await one()).toBe('1\n');
  });

  it('a process that was killed while it was idle fails one statement and not the service', async () => {
    const one = () => engine.clickhouse.read({ sql: 'SELECT 1', format: 'TSV', isolated: true });
    await one();
    const pids = execFileSync('pgrep', ['-P', String(process.pid), '-f', 'isolated-process'], { encoding: 'utf8' });
    for (const pid of pids.trim().split('\n').map(Number)) {
      process.kill(pid, 'SIGKILL');
      await waitFor(() => !isThere(pid), 5_000, 'it has ended');
    }
    await expect(one()).rejects.toMatchObject({ code: 1001, kind: 'retry' });
    await expect(one()).resolves.toBeDefined();
  });

  it('an answer is forgotten once it was read', async () => {
    const held = (): number => {
      shrinkHeap();
      return process.memoryUsage().arrayBuffers;
    };
    // 4 MB
    const sql = 'SELECT arrayStringConcat(range(10000)) FROM (SELECT arrayJoin(range(100)))';
    const before = held();
    for (let i = 0; i < 10; i++) await engine.clickhouse.read({ sql, format: 'TSV', isolated: true });
    // V8 may count freed buffers down later, in a thread of its own; answers that are kept stay counted
    await expect.poll(() => held() - before, { timeout: 10_000 }).toBeLessThan(20e6);
  });

  it('a statement ends with its caller', async () => {
    const caller = new AbortController();
    const reading = engine.clickhouse.read({
      sql: "SELECT match(materialize(repeat(repeat('ab', 1000), 1000)), '.{1000}.{500}\\\\x01')",
      format: 'TSV',
      settings: { max_execution_time: 50 },
      isolated: true,
      signal: caller.signal,
    });
    setTimeout(() => caller.abort(), 1_000);
    const from = performance.now();
    await expect(reading).rejects.toMatchObject({ code: 394 });
    expect(performance.now() - from).toBeLessThan(5_000);
  });

  it('a statement sees no other one and no error of another', async () => {
    const secret = 'the words of another caller';
    const other = engine.clickhouse
      .read({
        sql: `SELECT count() AS n FROM (SELECT number, '${secret}' AS s FROM numbers(1000000000000)) WHERE cityHash64(s, number) = 1`,
        format: 'TSV',
        settings: { max_execution_time: 3 },
        isolated: true,
      })
      .catch(() => undefined);
    await engine.clickhouse
      .read({ sql: `SELECT nothing AS \`${secret}\``, format: 'TSV', isolated: true })
      .catch(() => undefined);
    for (const table of ['processes', 'errors', 'query_log']) {
      await expect(
        engine.clickhouse.read({ sql: `SELECT * FROM system.${table}`, format: 'JSONEachRow', isolated: true }),
      ).rejects.toMatchObject({ code: 497 });
    }
    await other;
  });
});
