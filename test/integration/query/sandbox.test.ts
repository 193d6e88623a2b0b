import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fromSystem } from '../../../common/clickhouse/errors.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { createKey } from '../../../services/query/keys/key-table.ts';
import { readSettings } from '../../../services/query/answer/query.ts';
import { ISOLATED_SETTINGS } from '../../../services/query/answer/sandbox.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { call, openEngine, startService, store, type Engine } from './service.ts';

/** A caller's own SELECT sees the named subqueries of its endpoint and nothing else: two walls, each tried alone. */
const NOW = Date.UTC(2026, 2, 1, 9, 0, 0);
const SECRET = 'secretofsomebodyelse';
const LIMITS = { max_execution_time: 1, max_memory_usage: 1e9, max_rows_to_read: 1e9, max_result_bytes: 1e8 };
/** together more than what the engines take as the text of a query or as an address */
const LARGE = 10;
const LARGE_BYTES = 300_000;
let engine: Engine;
let service: QueryService;
let server: Engine;
let onServer: QueryService;
const folder = temporaryFolder();

async function fill({ clickhouse }: Engine): Promise<void> {
  await store(
    clickhouse,
    'edge_logs',
    [
      ...[0, 1, 2, 3].map((i) =>
        JSON.stringify({
          id: `e${i}`,
          timestamp: NOW * 1000 + i,
          project: 'p',
          metadata: { request: { path: `/rest/v1/${i}` }, response: { status_code: 200 + i * 100 } },
        }),
      ),
      JSON.stringify({ id: SECRET, timestamp: NOW * 1000, project: 'q', event_message: SECRET }),
      ...Array.from({ length: LARGE }, (_, i) =>
        JSON.stringify({
          id: `l0${i}`,
          timestamp: NOW * 1000,
          project: 'large',
          event_message: `it's "\\ {rows_0:String} ${'é\n'.repeat(LARGE_BYTES / 3)}`,
        }),
      ),
    ],
    { now: NOW },
  );
  await createKey(clickhouse, { name: SECRET, scopes: ['admin'], projects: [], expiresAt: undefined }, NOW);
}

beforeAll(async () => {
  [engine, server] = await Promise.all([openEngine(), openEngine('server', { sandbox: 'without rights' })]);
  await Promise.all([fill(engine), fill(server)]);
  writeFileSync(
    join(folder.path, 'own.sql'),
    `-- a comment with WITH x AS (SELECT
WITH
    @now AS moment,
    edge AS
    (
        SELECT id, timestamp, path, status_code, message
        FROM edge_logs
        WHERE project = @project AND timestamp <= moment + toIntervalHour(1)
    ),
    codes AS (SELECT status_code, count() AS n FROM edge GROUP BY status_code),
    beyond_json AS (SELECT avgIf(1, id = '') AS nan, toUInt128(pow(2, 70)) AS wide, toDecimal128('12345678901234567.25', 2) AS exact FROM edge),
    many AS (SELECT arrayJoin(range(20001)) AS i FROM codes LIMIT 20001),
    just_enough AS (SELECT i FROM many LIMIT 20000)
SELECT id, timestamp FROM edge ORDER BY timestamp
`,
  );
  writeFileSync(
    join(folder.path, 'own.yaml'),
    `id: 00000000-0000-4000-8000-00000000aaaa
name: own
description: edge logs, for a caller's own statement
max_rows: 3
sandboxed: true
project: { parameter: project, match: exact }
parameters:
  required: [project]
  properties:
    project: { description: the project }
columns:
  - { name: id, render: string, description: the id }
  - { name: timestamp, render: unix_microseconds, description: when }
`,
  );
  [service, onServer] = [
    await startService(engine.clickhouse, engine.dataDir, { ENDPOINTS_DIR: folder.path }, { clock: () => NOW }),
    await startService(server.clickhouse, server.dataDir, { ENDPOINTS_DIR: folder.path }, { clock: () => NOW }),
  ];
  await Promise.all([service.ready, onServer.ready]);
});
afterAll(async () => {
  await Promise.all([service?.stop(), onServer?.stop()]);
  await Promise.all([engine?.close(), server?.close()]);
  folder.remove();
});

const ask = (sql: string, project = 'p', of = service) => call(of, 'own', { project, sql });

describe.each([
  ['embedded', () => service],
  ['server', () => onServer],
] as const)('what is allowed, %s', (_mode, of) => {
  it.each<[string, Record<string, unknown>[]]>([
    [
      '',
      [
        { id: 'e0', timestamp: NOW * 1000 },
        { id: 'e1', timestamp: NOW * 1000 + 1 },
        { id: 'e2', timestamp: NOW * 1000 + 2 },
      ],
    ],
    ['SELECT count() AS n FROM edge', [{ n: 4 }]],
    ['select id from edge order by id desc limit 2 -- the newest', [{ id: 'e3' }, { id: 'e2' }]],
    [
      'SELECT timestamp, status_code FROM edge WHERE status_code >= 500',
      [{ timestamp: '2026-03-01T09:00:00.000003', status_code: 500 }],
    ],
    [
      "SELECT c.n, e.id FROM edge AS e JOIN codes AS c ON e.status_code = c.status_code WHERE e.id = 'e1'",
      [{ n: 1, id: 'e1' }],
    ],
    [
      'SELECT id FROM edge WHERE status_code IN (SELECT status_code FROM codes WHERE status_code > 300) ORDER BY id',
      [{ id: 'e2' }, { id: 'e3' }],
    ],
    [
      "SELECT JSONExtractString(message, 'metadata', 'request', 'path') AS p FROM edge ORDER BY p LIMIT 1 OFFSET 1",
      [{ p: '/rest/v1/1' }],
    ],
    [
      "SELECT status_code, count() AS n FROM (SELECT * FROM edge WHERE id != 'e0') GROUP BY status_code ORDER BY status_code LIMIT 1",
      [{ status_code: 300, n: 1 }],
    ],
    ['SELECT id FROM edge WHERE has([200, 300], status_code) ORDER BY id', [{ id: 'e0' }, { id: 'e1' }]],
    [
      'SELECT isNaN(nan) AS n, toString(wide) AS w, toString(exact) AS e FROM beyond_json',
      [{ n: 1, w: String(2n ** 70n), e: '12345678901234567.25' }],
    ],
    [
      "SELECT 'edge_logs; DROP TABLE x -- {a:String} @now' AS text",
      [{ text: 'edge_logs; DROP TABLE x -- {a:String} @now' }],
    ],
    [
      'SELECT quantile(0.5)(status_code) AS q, countIf(status_code > 200) AS c, arrayMap(x -> x + 1, [1, 2]) AS a FROM edge',
      [{ q: 350, c: 3, a: [2, 3] }],
    ],
    [
      'SELECT n, sum(n) OVER (PARTITION BY intDiv(status_code, 400) ORDER BY status_code DESC) AS s FROM codes WHERE status_code < 500',
      [
        { n: 1, s: 1 },
        { n: 1, s: 1 },
        { n: 1, s: 2 },
      ],
    ],
    [
      "SELECT count() OVER (PARTITION BY toString(status_code) LIKE '% following') AS c FROM codes WHERE status_code < 500",
      [{ c: 3 }, { c: 3 }, { c: 3 }],
    ],
    [
      'SELECT avg(status_code) OVER (ORDER BY id ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS a, row_number() OVER w AS r, max(id) OVER () AS m FROM edge WINDOW w AS (ORDER BY (SELECT count() FROM codes), id) ORDER BY id LIMIT 2',
      [
        { a: 200, r: 1, m: 'e3' },
        { a: 250, r: 2, m: 'e3' },
      ],
    ],
    [
      "SELECT arrayMap(i -> [10, 20, 40][i], [1, 3]) AS a, splitByChar('e', id)[length(id)] AS last FROM edge WHERE id = 'e2'",
      [{ a: [10, 40], last: '2' }],
    ],
    [
      "SELECT JSONExtract(message, 'metadata', 'Map(String, String)')['request'] AS r, map('a', 1)['a'] AS m FROM edge WHERE id = 'e1'",
      [{ r: '{"path":"/rest/v1/1"}', m: 1 }],
    ],
    ["SELECT id FROM edge WHERE multiSearchAny(path, ['/1', '/3']) ORDER BY id", [{ id: 'e1' }, { id: 'e3' }]],
    [
      "(SELECT id FROM edge WHERE id = 'e0') UNION ALL SELECT id FROM edge WHERE id = 'e1' ORDER BY id",
      [{ id: 'e0' }, { id: 'e1' }],
    ],
    [
      "SELECT * EXCEPT (message, path) FROM edge WHERE id = 'e0'",
      [{ id: 'e0', timestamp: '2026-03-01T09:00:00', status_code: 200 }],
    ],
  ])('%s', async (sql, rows) => {
    const reply = await ask(sql, 'p', of());
    expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
    expect(reply.rows).toEqual(expect.arrayContaining(rows));
    expect(reply.rows).toHaveLength(rows.length);
  });

  it('at most max rows, and of another project nothing', async () => {
    const reply = await ask('SELECT id FROM edge', 'p', of());
    expect([reply.rows.length, reply.headers['x-result-truncated']]).toEqual([3, 'true']);
    expect((await ask('SELECT * FROM edge', 'r', of())).rows).toEqual([]);
  });

  it('over more than a megabyte of what the subquery reads', async () => {
    const reply = await ask(
      'SELECT count() AS n, sum(length(message)) AS bytes, max(id) AS last FROM edge',
      'large',
      of(),
    );
    expect([reply.status, reply.status === 200 ? '' : reply.text]).toEqual([200, '']);
    expect(reply.rows[0]).toMatchObject({ n: LARGE, last: 'l09' });
    expect(Number(reply.rows[0]?.['bytes'])).toBeGreaterThan(LARGE * LARGE_BYTES);
  });

  it('of an endpoint that is not sandboxed, `sql` is ignored like any unknown parameter', async () => {
    const reply = await call(of(), 'logs.all', { project: 'p', sql: 'SELECT * FROM api_keys' });
    expect([reply.status, reply.headers['x-ignored-parameters'], reply.rows.length]).toEqual([200, 'sql', 4]);
  });

  it('a subquery that is too large is named', async () => {
    expect((await ask('SELECT count() AS n FROM just_enough', 'p', of())).rows).toEqual([{ n: 20_000 }]);
    expect((await ask('SELECT count() AS n FROM many', 'p', of())).error).toMatchObject({
      code: 'timeout',
      message: 'the query exceeded its limit of size of the answer: many has more than 20000 rows or 16 MiB',
    });
  });
});

const escapes = [
  // other tables, by every name that they have
  'SELECT * FROM edge_logs',
  'SELECT * FROM sluice.edge_logs',
  'SELECT * FROM `sluice`.`edge_logs`',
  'SELECT * FROM "edge_logs"',
  'SELECT * FROM api_keys',
  'SELECT * FROM sluice.api_keys',
  'SELECT * FROM default.edge',
  'SELECT * FROM edge, sluice.edge_logs',
  'SELECT * FROM edge JOIN sluice.edge_logs AS l ON 1 = 1',
  'SELECT * FROM edge WHERE id IN sluice.edge_logs',
  'SELECT * FROM edge WHERE id IN (SELECT id FROM sluice.edge_logs)',
  'SELECT (SELECT max(id) FROM sluice.edge_logs)',
  'SELECT * FROM (SELECT * FROM (SELECT * FROM sluice.edge_logs))',
  'SELECT id FROM edge UNION ALL SELECT id FROM sluice.edge_logs',
  "SELECT 'x' IN sluice.api_keys",
  'SELECT * FROM edge GLOBAL ANY LEFT JOIN sluice.api_keys USING id',
  'SELECT exists(SELECT 1 FROM sluice.api_keys)',
  'SELECT * FROM edge WHERE id IN (sluice.api_keys)',
  'SELECT id FROM edge EXCEPT SELECT id FROM sluice.edge_logs',
  'SELECT id FROM edge INTERSECT SELECT id FROM sluice.edge_logs',
  'FROM sluice.edge_logs SELECT *',
  'SELECT * FROM sluice.edge_logs FINAL',
  'TABLE sluice.edge_logs',
  // its own names for tables
  'WITH edge AS (SELECT * FROM sluice.edge_logs) SELECT * FROM edge',
  'WITH x AS (SELECT * FROM sluice.edge_logs) SELECT * FROM x',
  'SELECT * FROM (WITH edge_logs AS (SELECT 1) SELECT * FROM edge_logs), sluice.edge_logs',
  // system tables
  'SELECT * FROM system.tables',
  'SELECT query FROM system.query_log',
  'SELECT * FROM system.processes',
  'SELECT * FROM system.settings',
  'SELECT * FROM information_schema.tables',
  'SELECT * FROM INFORMATION_SCHEMA.COLUMNS',
  'SELECT * FROM system.parts_columns',
  // table functions
  "SELECT * FROM merge('sluice', 'edge_logs')",
  "SELECT * FROM file('/etc/passwd', 'LineAsString')",
  "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
  "SELECT * FROM remote('127.0.0.1', sluice.edge_logs)",
  "SELECT * FROM cluster('default', sluice.edge_logs)",
  "SELECT * FROM s3('http://127.0.0.1:1/x', 'CSV')",
  "SELECT * FROM executable('cat /etc/passwd', 'LineAsString', 'a String')",
  'SELECT * FROM view(SELECT * FROM sluice.edge_logs)',
  "SELECT * FROM mergeTreeIndex(sluice, 'edge_logs_v1')",
  'SELECT * FROM loop(sluice.edge_logs)',
  'SELECT * FROM numbers(10)',
  "SELECT * FROM values('a String', 'x')",
  "SELECT * FROM dictionary('x')",
  "SELECT * FROM mysql('h', 'd', 't', 'u', 'p')",
  "SELECT * FROM viewIfPermitted(SELECT * FROM sluice.edge_logs ELSE null('id String'))",
  "SELECT * FROM fuzzQuery('SELECT 1')",
  "SELECT * FROM generateRandom('a Int8')",
  "SELECT * FROM input('a String')",
  "SELECT * FROM format(CSV, '1')",
  // functions that read, wait or tell
  "SELECT file('/etc/passwd')",
  "SELECT `file`('/etc/passwd')",
  'SELECT "fi\\x6ce"(\'/etc/passwd\')',
  "SELECT dictGet('d', 'a', 1)",
  "SELECT joinGet('sluice.j', 'a', 1)",
  "SELECT hasColumnInTable('sluice', 'api_keys', 'hash')",
  'SELECT sleep(3)',
  'SELECT sleepEachRow(1) FROM edge',
  'SELECT currentUser(), hostName(), version()',
  "SELECT getSetting('max_threads')",
  "SELECT getServerSetting('max_connections')",
  "SELECT getMacro('x')",
  'SELECT serverUUID()',
  'SELECT currentDatabase()',
  "SELECT arrayReduce('sum', [1])",
  "SELECT formatQuery('SELECT 1')",
  'SELECT addressToLine(1)',
  'SELECT * APPLY(toString) FROM edge',
  "SELECT COLUMNS('.*') APPLY(hex) FROM edge",
  'SELECT evalMLMethod(1, 2)',
  "SELECT getClientHTTPHeader('x')",
  'SELECT queryID()',
  "SELECT throwIf(1, 'x')",
  'SELECT * REPLACE (hostName() AS id) FROM edge',
  'SELECT @@version',
  "SELECT globalVariable('version')",
  // in windows, of which EXPLAIN AST of 25.8 prints nothing
  'SELECT count() OVER (PARTITION BY hostName()) FROM edge',
  'SELECT count() OVER (ORDER BY version() DESC) FROM edge',
  'SELECT count() OVER(/* ( */ORDER BY id, sleepEachRow(1)) FROM edge',
  'SELECT count() OVER (ORDER BY id ROWS BETWEEN length(hostName()) PRECEDING AND CURRENT ROW) FROM edge',
  'SELECT count() OVER w FROM edge WINDOW v AS (ORDER BY id), w AS (PARTITION BY currentUser())',
  'SELECT count() OVER (ORDER BY (SELECT max(id) FROM sluice.edge_logs)) FROM edge',
  'SELECT count() OVER (PARTITION BY id IN sluice.edge_logs) FROM edge',
  // settings, formats, files
  'SELECT 1 SETTINGS max_threads = 1',
  'SELECT * FROM (SELECT 1 SETTINGS readonly = 0)',
  'SELECT * FROM edge SETTINGS readonly = 0, max_rows_to_read = 0',
  'SELECT 1 FORMAT JSON',
  "SELECT * FROM edge INTO OUTFILE '/tmp/x'",
  "SELECT 1 INTO OUTFILE '/tmp/x' TRUNCATE FORMAT CSV",
  `SELECT * FROM sqlite('${folder.path}/made', 'a')`,
  `SELECT * FROM edge WHERE id IN (SELECT a FROM SQLite('${folder.path}/made', 'a'))`,
  `SELECT * FROM edge INTO OUTFILE '${folder.path}/made'`,
  `SELECT 1 FROM INFILE '${folder.path}/own.sql'`,
  // other statements, and more than one
  'INSERT INTO sluice.api_keys SELECT 1',
  'DROP TABLE sluice.edge_logs',
  'CREATE TABLE x (a Int8) ENGINE = Memory',
  'ALTER TABLE sluice.edge_logs DELETE WHERE 1',
  'SET readonly = 0',
  'SET ROLE reader',
  'GRANT ALL ON *.* TO default',
  'USE sluice',
  'SELECT 1; SELECT * FROM sluice.edge_logs',
  'SELECT 1; SET ROLE reader; SELECT * FROM sluice.edge_logs',
  'SELECT 1;',
  'EXPLAIN SELECT * FROM sluice.edge_logs',
  'EXPLAIN AST SELECT 1',
  'DESCRIBE sluice.edge_logs',
  'SHOW TABLES FROM sluice',
  'SHOW CREATE TABLE sluice.api_keys',
  'EXISTS sluice.api_keys',
  'SYSTEM SHUTDOWN',
  'KILL QUERY WHERE 1',
  'OPTIMIZE TABLE sluice.edge_logs',
  'BACKUP TABLE sluice.edge_logs TO Null',
  'SELECT 1 PARALLEL WITH SELECT * FROM sluice.edge_logs',
  'EXECUTE AS default SELECT 1',
  'graph = 1 SELECT 1',
  'optimize = 1 SELECT * FROM sluice.edge_logs',
  // out of the brackets
  '1) UNION ALL SELECT * FROM (SELECT id FROM sluice.edge_logs',
  'SELECT 1) AS x, (SELECT * FROM sluice.edge_logs',
  'SELECT id FROM edge) SELECT * FROM sluice.edge_logs --',
  'SELECT 1 /*',
  "SELECT 'x",
  'SELECT $$x',
  'SELECT 1 \\G',
  ')',
  '',
  // comments and characters
  'SELECT * FROM/**/sluice.edge_logs',
  'SELECT * FROM -- x\nsluice.edge_logs',
  'SELECT * FROM # x\nsluice.edge_logs',
  'SELECT * FROM\u00a0sluice.edge_logs',
  'SELECT\u200b* FROM sluice.edge_logs',
  'SELECT * FROM sluice．edge_logs',
  'SELECT * FROM “edge_logs”',
  'ＳＥＬＥＣＴ * FROM sluice.edge_logs',
  'SELECT * FROM `sluice\n`.edge_logs',
  'SELECT * FROM `edge\\x5flogs`',
  'SELECT * FROM "sl\\u0075ice".edge_logs',
  'SELECT 1 AS `a\n  TableIdentifier edge`',
  'SELECT * FROM $x$sluice$x$.edge_logs',
  // parameters
  'SELECT * FROM {t:Identifier}',
  'SELECT {rows_0:String}',
  'SELECT @project',
  'SELECT {now:String}',
  // what is no SELECT at all
  'edge',
  'SELECT FROM',
  'SELECT * FROM nothing',
  'SELECT nothing FROM edge',
  'SELECT count( FROM edge',
  "SELECT 1 + 'x' FROM edge",
  '-- nothing',
  'NULL',
].filter((sql) => sql !== '');

describe('the first wall', () => {
  it.each(escapes)('refuses %j', async (sql) => {
    const reply = await ask(sql);
    expect([reply.status, reply.text.includes(SECRET)]).toEqual([400, false]);
    expect([reply.error.code, reply.error.errors?.map((e) => e.parameter)]).toEqual(['invalid_parameter', ['sql']]);
    expect(reply.text).not.toMatch(/exception|Code: \d|UNKNOWN_|\.sql/i);
  });
  it.each([
    'editDistance(id, id) FROM edge',
    'count() OVER (ORDER BY id, editDistance(id, id)) FROM edge',
    'count() OVER w FROM edge WINDOW w AS (PARTITION BY editDistance(id, id))',
  ])('names the function that %s must not call', async (columns) => {
    for (const of of [service, onServer])
      expect((await ask(`SELECT ${columns}`, 'p', of)).error.errors?.[0]?.message).toBe('must not call editDistance');
  });
  it('an over-long statement', async () => {
    expect((await ask(`SELECT '${'x'.repeat(8200)}'`)).error.errors?.[0]?.message).toBe('is longer than 8192 bytes');
  });
});

/** What a text without a right to anything may get: what it says itself, and what every engine answers. */
const HARMLESS = new Map<string, unknown[][]>([
  ['SELECT * FROM numbers(10)', [[0], [1], [2], [3]]],
  ["SELECT * FROM values('a String', 'x')", [['x']]],
  ["SELECT * FROM format(CSV, '1')", [['1']]],
  ['SELECT currentDatabase()', [['default']]],
  ["SELECT arrayReduce('sum', [1])", [[1]]],
  ["SELECT formatQuery('SELECT 1')", [['SELECT 1']]],
  ['SELECT * FROM (SELECT 1 SETTINGS readonly = 0)', [[1]]],
  ['SELECT 1;', [[1]]],
  ['SELECT 1 AS `a\n  TableIdentifier edge`', [[1]]],
  [
    'EXPLAIN AST SELECT 1',
    [
      ['SelectWithUnionQuery (children 1)'],
      [' ExpressionList (children 1)'],
      ['  SelectQuery (children 1)'],
      ['   ExpressionList (children 1)'],
      ['    Literal UInt64_1'],
    ],
  ],
  ['SELECT 1 SETTINGS max_threads = 1', [[1]]],
  ['SELECT 1 FORMAT JSON', [{ 1: 1 }] as unknown as unknown[][]],
]);
/**
 * 25.8 asks for no right to tell whether a table has a column: a bit of a schema that anybody may read, and nothing of
 * what is stored.
 */
const HARMLESS_ON_SERVER = new Map<string, unknown[][]>([
  ["SELECT hasColumnInTable('sluice', 'api_keys', 'hash')", [[1]]],
]);
const aboutTheEngine = [
  ...[
    'processes',
    'errors',
    'disks',
    'server_settings',
    'settings',
    'user_processes',
    'stack_trace',
    'macros',
    'metrics',
    'build_options',
    'functions',
    'tables',
    'databases',
    'query_log',
    'asynchronous_metrics',
    'users',
    'one',
  ].flatMap((table) => [
    `SELECT * FROM system.${table}`,
    `SELECT * FROM \`system\`.${table}`,
    `SELECT 1 IN (SELECT 1 FROM System . "${table}")`,
  ]),
  'SELECT * FROM `system.errors`',
  "SELECT * FROM eval('SELECT * FROM system.errors')",
  "SELECT * FROM merge('system', 'errors')",
  "SELECT * FROM numbers(1), merge('system', 'errors')",
  'SHOW PROCESSLIST',
  'SHOW FUNCTIONS',
  "SHOW SETTINGS LIKE '%'",
  'SELECT hostName()',
  'SELECT hostname ()',
  'SELECT FQDN/**/()',
  'SELECT `fullHostName`()',
  'SELECT arrayMap(x -> hostName(), [1])',
  'SELECT current_user',
  'SELECT filesystemCapacity()',
  'SELECT (SELECT uptime())',
  '(SELECT version())',
];

describe.each([
  ['embedded', () => engine],
  ['server', () => server],
] as const)('the second wall, without the first, %s', (mode, of) => {
  it.each([...escapes, ...aboutTheEngine])('gives nothing for %j but what the text says itself', async (sql) => {
    const answers = await Promise.all(
      [sql, `SELECT * FROM (\n${sql}\n)`].map(async (text) => {
        try {
          const { body } = await of().clickhouse.read({
            sql: text,
            format: 'JSONCompact',
            settings: { ...readSettings({ maxRows: 3, maxSeconds: 1 }, LIMITS), ...ISOLATED_SETTINGS },
            isolated: true,
          });
          return (JSON.parse(body.toString('utf8')) as { data: unknown[][] }).data;
        } catch {
          return [];
        }
      }),
    );
    const harmless = HARMLESS.get(sql) ?? (mode === 'server' ? HARMLESS_ON_SERVER.get(sql) : undefined) ?? [];
    for (const answer of answers) expect([[], harmless]).toContainEqual(answer);
  });

  it('answers what it is for: nothing above holds because nothing is answered', async () => {
    const { body } = await of().clickhouse.read({
      sql: 'SELECT {a:String} AS a, number FROM numbers(2)',
      params: { a: 'x' },
      format: 'JSONCompactEachRow',
      isolated: true,
    });
    expect(body.toString()).toBe('["x", 0]\n["x", 1]\n');
  });
});

describe('behind both walls', () => {
  it('the tables are as they were', async () => {
    const counts = await Promise.all(
      ['edge_logs', 'api_keys'].map(async (t) =>
        (await engine.clickhouse.read({ sql: `SELECT count() FROM ${t}`, format: 'TSV' })).body.toString().trim(),
      ),
    );
    expect(counts).toEqual([String(5 + LARGE), '1']);
  });

  it('no file was made', () => {
    expect(readdirSync(folder.path).toSorted()).toEqual(['own.sql', 'own.yaml']);
  });
});

it("behind the second wall runs every statement that has a caller's text in it, and no other", async () => {
  const seen: [text: boolean, isolated: boolean][] = [];
  const watched = await startService(
    {
      ...engine.clickhouse,
      read: async (read) => {
        if (/theirs|FROM edge_logs/.test(read.sql)) seen.push([read.sql.includes('theirs'), read.isolated === true]);
        return await engine.clickhouse.read(read);
      },
    },
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path },
    { clock: () => NOW },
  );
  await watched.ready;
  seen.length = 0;
  expect((await ask('SELECT count() AS theirs FROM edge', 'p', watched)).rows).toEqual([{ theirs: 4 }]);
  expect(seen).toEqual([
    [true, true],
    [false, false],
    [true, true],
  ]);
  await watched.stop();
});

it.each([
  [
    'without a user of no rights',
    {},
    /own\.yaml:1: sandboxed: CLICKHOUSE_SANDBOX_URL must name a user without any right/,
  ],
  [
    'with one that has rights',
    { sandbox: 'with rights' },
    /own\.yaml:1: sandboxed: the user of CLICKHOUSE_SANDBOX_URL can read tables, and must not have any right/,
  ],
] as const)('in server mode a sandboxed endpoint is not served %s', async (_, options, message) => {
  const wrong = await openEngine('server', options);
  const other = await startService(wrong.clickhouse, wrong.dataDir, { ENDPOINTS_DIR: folder.path });
  await expect(other.ready).rejects.toThrow(message);
  await other.stop();
  await wrong.close();
});

it('if no isolated process can be started, the service says so, and not that a setting is wrong', async () => {
  const noProcess = fromSystem(Object.assign(new Error('spawn node ENOENT'), { code: 'ENOENT' }), false, false);
  const other = await startService(
    {
      ...engine.clickhouse,
      read: (read) => (read.isolated === true ? Promise.reject(noProcess) : engine.clickhouse.read(read)),
    },
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path },
  );
  await expect(other.ready).rejects.toBe(noProcess);
  await other.stop();
});

it('in server mode the first wall stands as well, and behind it there is nothing', async () => {
  for (const sql of [
    'SELECT * FROM sluice.edge_logs',
    'SELECT 1; SELECT 2',
    "SELECT file('/etc/passwd')",
    'SELECT 1 SETTINGS readonly = 0',
  ])
    expect([sql, (await ask(sql, 'p', onServer)).status]).toEqual([sql, 400]);
  for (const sql of ['SELECT count() FROM sluice.edge_logs', 'SELECT hash FROM sluice.api_keys']) {
    await expect(
      server.clickhouse.read({ sql, format: 'TSV', settings: ISOLATED_SETTINGS, isolated: true }),
    ).rejects.toMatchObject({ codeName: 'ACCESS_DENIED' });
  }
});
