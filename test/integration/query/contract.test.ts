import { connect } from 'node:net';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { API_KEY, modes, openEngine, send, startService, store, type Engine, type Reply } from './service.ts';

/** What callers may rely on, case by case, through a real socket. */
const NOW = Date.UTC(2026, 2, 1, 9, 30, 15, 250);
const REF = 'abcdefghijklmnopqrst';
const OTHER = 'zyxwvutsrqponmlkjihg';
const ids = {
  stats: '3c5b6f0a-7f8e-4a52-9a63-0f5d1f3f7a01',
  logs: '8e1d2b4c-0d3f-4a0b-b6a5-6a9c2f5d7e02',
  counts: 'd0a7c3e9-5b21-4c6f-8f0e-2b8e4d9c1f03',
};
const key = { 'x-api-key': API_KEY };

let engine: Engine;
let service: QueryService;
const keys: Record<string, { id: string; key: string }> = {};

const edge = (micros: number, more: object = {}, project = REF): string =>
  JSON.stringify({
    id: `e${micros}`,
    timestamp: micros,
    project,
    event_message: 'GET | 200',
    metadata: {
      request: { url: `https://${project}.supabase.co/rest/v1/t`, path: '/rest/v1/t', method: 'GET' },
      response: { status_code: 200 },
    },
    ...more,
  });
const invocation = (micros: number, status: number, ms: number | null): string =>
  JSON.stringify({
    timestamp: micros,
    metadata: { project_ref: REF, function_id: 'f1', execution_time_ms: ms, response: { status_code: status } },
  });

async function newKey(name: string, body: object): Promise<void> {
  const reply = await send(service.address, '/api/keys', {
    method: 'POST',
    headers: { ...key, 'content-type': 'application/json' },
    body: JSON.stringify({ name, ...body }),
  });
  expect(reply.status).toBe(201);
  keys[name] = JSON.parse(reply.text) as { id: string; key: string };
}

interface Case {
  readonly name: string;
  readonly path: string;
  readonly method?: string;
  /** the name of the key that calls; without it */
  readonly as?: string;
  /** the admin key unless said otherwise */
  readonly headers?: Record<string, string>;
  readonly body?: string;
  readonly status: number;
  readonly code?: string;
  /** the wrong parameters, in order */
  readonly wrong?: string[];
  readonly check?: (reply: Reply) => void;
}

const stats = (query: string): string => `/api/endpoints/functions.invocation-stats?${query}`;
const logs = (query: string): string => `/api/endpoints/logs.all?${query}`;
const counts = (query: string): string => `/api/endpoints/usage.api-counts?${query}`;
const ok = (name: string, path: string, check?: (reply: Reply) => void, headers?: Record<string, string>): Case => ({
  name,
  path,
  status: 200,
  ...(check && { check }),
  ...(headers && { headers }),
});
const bad = (name: string, path: string, ...wrong: string[]): Case => ({
  name,
  path,
  status: 400,
  code: 'invalid_parameter',
  wrong,
});
const enc = encodeURIComponent;
const count =
  (n: number) =>
  (reply: Reply): void =>
    expect(reply.rows).toHaveLength(n);
const has =
  (header: string, value: string | RegExp | undefined) =>
  (reply: Reply): void => {
    if (value instanceof RegExp) expect(reply.headers[header]).toMatch(value);
    else expect(reply.headers[header]).toBe(value);
  };
const columns =
  (...names: string[]) =>
  (reply: Reply): void => {
    expect(Object.keys(reply.rows[0] ?? {})).toEqual(names);
  };
const statsColumns = [
  'timestamp',
  'min_execution_time',
  'max_execution_time',
  'avg_execution_time',
  'p95_execution_time',
  'p99_execution_time',
  'count',
  'error_count',
];

const addresses: Case[] = [
  ...Object.entries({
    'functions.invocation-stats': [ids.stats, `project=${REF}`],
    'logs.all': [ids.logs, `project=${REF}`],
    'usage.api-counts': [ids.counts, `project=${REF}&interval=daily`],
  }).flatMap(([name, [id, query]]) =>
    [
      `/api/endpoints/query/${id}`,
      `/api/endpoints/${name}`,
      `/api/endpoints/query/${name}`,
      `/api/endpoints/query/name/${name}`,
      `/endpoints/query/${id}`,
      `/endpoints/query/${name}`,
    ].map((path) =>
      ok(path, `${path}?${query}`, (reply) => {
        expect(reply.rows.length).toBeGreaterThan(0);
      }),
    ),
  ),
  ok('an id in upper case', `/api/endpoints/query/${ids.stats.toUpperCase()}?project=${REF}`),
  ok('a trailing slash', `/api/endpoints/logs.all/?project=${REF}`),
  ok('a name percent-encoded', `/api/endpoints/logs%2Eall?project=${REF}`),
  ...[
    '/api/endpoints/nothing',
    '/api/endpoints/query/nothing',
    `/api/endpoints/query/${ids.stats.replace('3', '4')}`,
    '/endpoints/query/LOGS.ALL',
    '/endpoints/logs.all',
    '/api',
    '/api/',
    '/api/endpoints',
    '/api/endpoints/query',
    '/api/endpoints/query/',
    '/api/endpoints/logs.all/x',
    '/endpoints',
    '/api/%zz',
    '/api/endpoints/query/%00',
    `/api/endpoints/${'x'.repeat(300)}`,
  ].map((path): Case => ({ name: `nothing at ${path.slice(0, 60)}`, path, status: 404, code: 'not_found' })),
  {
    name: 'nothing outside of the guarded paths, without a key',
    path: '/nothing',
    headers: {},
    status: 404,
    code: 'not_found',
  },
];

const authentication: Case[] = [
  ok('X-API-KEY', logs(`project=${REF}`), undefined, key),
  ok('Bearer', logs(`project=${REF}`), undefined, { authorization: `Bearer ${API_KEY}` }),
  ok('bearer in small letters', logs(`project=${REF}`), undefined, { authorization: `bearer ${API_KEY}` }),
  ok('?api_key=', logs(`project=${REF}&api_key=${API_KEY}`), undefined, {}),
  ok('an empty X-API-KEY, then Bearer', logs(`project=${REF}`), undefined, {
    'x-api-key': '',
    authorization: `Bearer ${API_KEY}`,
  }),
  ok('another scheme of Authorization is no key', logs(`project=${REF}&api_key=${API_KEY}`), undefined, {
    authorization: 'Basic eDp5',
  }),
  ok('X-API-KEY decides before Bearer', logs(`project=${REF}`), undefined, {
    'x-api-key': API_KEY,
    authorization: 'Bearer wrong',
  }),
  ...(
    [
      ['no key', logs(`project=${REF}`), {}],
      ['a wrong key', logs(`project=${REF}`), { 'x-api-key': 'wrong' }],
      [
        'a wrong X-API-KEY decides before a right Bearer',
        logs(`project=${REF}`),
        { 'x-api-key': 'wrong', authorization: `Bearer ${API_KEY}` },
      ],
      [
        'a wrong Bearer decides before a right api_key',
        logs(`project=${REF}&api_key=${API_KEY}`),
        { authorization: 'Bearer wrong' },
      ],
      ['Basic alone', logs(`project=${REF}`), { authorization: `Basic ${API_KEY}` }],
      ['a key with other case', logs(`project=${REF}`), { 'x-api-key': API_KEY.toUpperCase() }],
      ['before 404 of an endpoint', '/api/endpoints/nothing', {}],
      ['before 404 of a path', '/api/nothing', {}],
      ['before 404 of a path under /endpoints', '/endpoints/nothing', {}],
      ['before a path that cannot be decoded', '/api/%zz', {}],
      ['before 400', logs(''), {}],
      ['/api itself', '/api', {}],
      ['a path in other letters', '/API/endpoints/logs.all', {}],
      ['two slashes', '//api/endpoints/logs.all', {}],
      ['an encoded letter in the path', `/%61pi/endpoints/logs.all?project=${REF}`, {}],
      ['an encoded letter in the path of nothing', '/%61pi/nothing', {}],
      ['the absolute form', `http://127.0.0.1/api/endpoints/logs.all?project=${REF}`, {}],
      ['the absolute form of nothing', 'http://127.0.0.1/api/nothing', {}],
      ['keys', '/api/keys', {}],
    ] as [string, string, Record<string, string>][]
  ).map(([name, path, headers]): Case => ({
    name: `401: ${name}`,
    path,
    headers,
    status: 401,
    code: 'unauthorized',
    check: has('www-authenticate', 'Bearer'),
  })),
  { name: '401 before 405', path: logs(''), method: 'POST', headers: {}, status: 401, code: 'unauthorized' },
  {
    name: '401 before 415',
    path: logs(''),
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: '{',
    status: 401,
    code: 'unauthorized',
  },
  {
    name: '401 of HEAD has no body',
    path: logs(''),
    method: 'HEAD',
    headers: {},
    status: 401,
    check: (reply) => expect(reply.body).toHaveLength(0),
  },
];

const methods: Case[] = [
  ...['POST', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'PROPFIND', 'SEARCH'].map((method): Case => ({
    name: method,
    method,
    path: logs(`project=${REF}`),
    status: 405,
    code: 'method_not_allowed',
    check: has('allow', 'GET, HEAD, OPTIONS'),
  })),
  {
    name: 'POST with a broken body',
    method: 'POST',
    path: logs(`project=${REF}`),
    headers: { ...key, 'content-type': 'application/json' },
    body: '{',
    status: 405,
    code: 'method_not_allowed',
  },
  { name: 'QUERY to no path', method: 'QUERY', path: '/nope', headers: key, status: 404, code: 'not_found' },
  { name: 'POST to /health', method: 'POST', path: '/health', status: 405, code: 'method_not_allowed' },
  {
    name: 'HEAD',
    method: 'HEAD',
    path: stats(`project=${REF}`),
    status: 200,
    check: (reply) => {
      expect(reply.body).toHaveLength(0);
      expect(Number(reply.headers['content-length'])).toBeGreaterThan(100);
      expect(reply.headers['etag']).toMatch(/^W\//);
    },
  },
  {
    name: 'HEAD of a wrong call',
    method: 'HEAD',
    path: stats(''),
    status: 400,
    check: (reply) => expect(reply.body).toHaveLength(0),
  },
  {
    name: 'OPTIONS without a key',
    method: 'OPTIONS',
    path: logs(''),
    headers: {
      origin: 'https://app.example',
      'access-control-request-method': 'GET',
      'access-control-request-headers': 'x-api-key',
    },
    status: 204,
    check: (reply) => {
      expect(reply.headers['access-control-allow-origin']).toBe('*');
      expect(reply.headers['access-control-allow-headers']).toMatch(/x-api-key/i);
      expect(reply.headers['access-control-allow-methods']).toMatch(/GET/);
    },
  },
  { name: 'OPTIONS of nothing', method: 'OPTIONS', path: '/api/nothing', headers: {}, status: 204 },
  ok('a content type without a body', logs(`project=${REF}`), undefined, {
    ...key,
    'content-type': 'application/json; charset=utf-8',
  }),
  ok('a content type that is none', logs(`project=${REF}`), undefined, { ...key, 'content-type': 'nonsense' }),
  {
    name: 'GET with a body',
    path: logs(`project=${REF}`),
    headers: { ...key, 'content-type': 'application/json' },
    body: '{"a":',
    status: 200,
  },
  ...(
    [
      ['200', logs(`project=${REF}`), key, 200],
      ['400', logs(''), key, 400],
      ['401', logs(''), {}, 401],
      ['404', '/api/nothing', key, 404],
    ] as [string, string, Record<string, string>, number][]
  ).map(([name, path, headers, status]): Case => ({
    name: `CORS on ${name}`,
    path,
    headers: { ...headers, origin: 'https://app.example' },
    status,
    check: (reply) => {
      expect(reply.headers['access-control-allow-origin']).toBe('*');
      expect(reply.headers['access-control-expose-headers']).toMatch(/x-cache/);
    },
  })),
];

const parameters: Case[] = [
  bad('no project', stats(''), 'project'),
  bad('an empty project', stats('project='), 'project'),
  bad('a project twice', stats(`project=${REF}&project=${REF}`), 'project'),
  bad('NUL in project', stats('project=a%00b'), 'project'),
  bad('a long project', stats(`project=${'p'.repeat(8193)}`), 'project'),
  bad('a long interval, though anything goes', stats(`project=${REF}&interval=${'i'.repeat(8193)}`), 'interval'),
  bad('interval twice', stats(`project=${REF}&interval=5min&interval=5min`), 'interval'),
  bad('NUL in function_id', stats(`project=${REF}&function_id=%00`), 'function_id'),
  ok('a parameter named like a method', stats(`project=${REF}&constructor=x&__proto__=y&toString=z`)),
  ok('values that are no UTF-8, and half a surrogate pair', stats('project=%ff%fe%ed%a0%80%f0%9f'), count(25)),
  ok(
    'a value with quotes, braces and percent signs',
    stats(`project=${enc(`"{{%s}}\\'`)}&function_id=${enc('{a:String}')}`),
    count(25),
  ),
  bad('a parameter name percent-encoded counts as given twice', stats(`project=${REF}&%70roject=${REF}`), 'project'),
  ok('unknown parameters, twice and with NUL', stats(`project=${REF}&x=%00&x=1&sql=drop`)),
  ok('broken percent-encoding in a value', stats('project=%zz%')),
  ok('the largest project', stats(`project=${'p'.repeat(8192)}`), count(25)),
  ok(
    'a project of other characters',
    stats(`project=${enc(`'; DROP TABLE x; -- \\ {a:String} @now é 😀 `)}`),
    count(25),
  ),
  ok('a tab and a newline in a value', stats(`project=${enc('a\tb\nc\\N')}`), count(25)),
  ...(
    [
      ['5min', 301],
      ['15min', 16],
      ['1hr', 61],
      ['1day', 25],
      ['7day', 8],
      ['', 25],
      ['5MIN', 25],
      ['nonsense', 25],
      ['minutely', 25],
    ] as const
  ).map(([interval, n]) =>
    ok(`interval ${interval} has ${n} rows`, stats(`project=${REF}&interval=${interval}`), count(n)),
  ),
  ok('columns of functions.invocation-stats', stats(`project=${REF}`), columns(...statsColumns)),
  ok('the last bucket of 5min', stats(`project=${REF}&interval=5min`), (reply) =>
    expect(reply.rows.at(-1)?.['timestamp']).toBe(Math.floor(NOW / 1000) * 1e6),
  ),
  ok('statistics of a bucket', stats(`project=${REF}&interval=5min`), (reply) => {
    expect(reply.rows.at(-2)).toEqual({
      timestamp: (Math.floor(NOW / 1000) - 1) * 1e6,
      min_execution_time: 100,
      max_execution_time: 300,
      avg_execution_time: 200,
      p95_execution_time: 300,
      p99_execution_time: 300,
      count: 2,
      error_count: 1,
    });
  }),
  ok('an invocation without a time counts and has no statistics', stats(`project=${REF}&interval=15min`), (reply) => {
    expect(reply.rows.at(-2)).toEqual({
      timestamp: Date.UTC(2026, 2, 1, 9, 29) * 1000,
      min_execution_time: null,
      max_execution_time: null,
      avg_execution_time: null,
      p95_execution_time: null,
      p99_execution_time: null,
      count: 1,
      error_count: 0,
    });
  }),
  ok('a function that never ran', stats(`project=${REF}&function_id=none&interval=15min`), (reply) =>
    expect(
      reply.rows.every((r) => r['count'] === 0 && r['error_count'] === 0 && r['avg_execution_time'] === null),
    ).toBe(true),
  ),
  ok('an empty function_id is all', stats(`project=${REF}&function_id=`), (reply) =>
    expect(reply.rows.at(-1)).toMatchObject({ count: 3, error_count: 1 }),
  ),

  bad('counts without anything', counts(''), 'project', 'interval'),
  bad('counts without interval', counts(`project=${REF}`), 'interval'),
  bad('counts with an empty interval', counts(`project=${REF}&interval=`), 'interval'),
  ...['5min', 'weekly', 'DAILY', 'daily ', 'day', '1', 'constructor'].map((interval) =>
    bad(`counts with the interval ${interval}`, counts(`project=${REF}&interval=${enc(interval)}`), 'interval'),
  ),
  ...['minutely', 'hourly', 'daily', '15min', '30min', '1hr', '3hr', '1day', '3day', '7day'].map((interval) =>
    ok(`counts with the interval ${interval}`, counts(`project=${REF}&interval=${interval}`), (reply) => {
      expect(reply.rows.at(-1)).toEqual({
        timestamp: {
          minutely: '2026-03-01T09:30:00',
          '15min': '2026-03-01T09:30:00',
          '30min': '2026-03-01T09:30:00',
          '1hr': '2026-03-01T09:30:00',
          '3hr': '2026-03-01T09:30:00',
          hourly: '2026-03-01T09:00:00',
          '1day': '2026-03-01T09:00:00',
          '3day': '2026-03-01T09:00:00',
          daily: '2026-03-01T00:00:00',
          '7day': '2026-03-01T00:00:00',
        }[interval],
        total_rest_requests: 1,
        total_storage_requests: 0,
        total_auth_requests: 0,
        total_realtime_requests: 0,
      });
    }),
  ),
  ...['(', '[a', 'a**', '*a', '(?=a)', 'x{1001}', '\\', '(?P<n', '\\p{Nope}', '((a{100}){100}){100}'].map((pattern) =>
    bad(`the pattern ${pattern}`, counts(`interval=daily&project=${enc(pattern)}`), 'project'),
  ),
  bad('a pattern over 1 KiB', counts(`interval=daily&project=${'a'.repeat(1025)}`), 'project'),
  ok('a pattern of 1 KiB', counts(`interval=daily&project=${'a'.repeat(1024)}`), count(0)),
  ok('a pattern that matches', counts(`interval=daily&project=${enc('^https://[a-z]{20}\\.supabase')}`), count(1)),
  ok('the dot does not match a newline', counts(`interval=daily&project=${enc('supabase.co/rest/v1/t\n')}`), count(0)),
  ok('letters in upper case are another pattern', counts(`interval=daily&project=${REF.toUpperCase()}`), count(0)),
  ok('a part of a reference', counts(`interval=daily&project=${REF.slice(0, 19)}`), count(1)),
  ok('a reference and a newline is no reference', counts(`interval=daily&project=${enc(`${REF}\n`)}`), count(0)),

  bad('logs without a project', logs('iso_timestamp_start=2026-03-01'), 'project'),
  bad(
    'every mistake at once',
    logs('iso_timestamp_start=x&iso_timestamp_end=y'),
    'project',
    'iso_timestamp_start',
    'iso_timestamp_end',
  ),
  ...[
    'yesterday',
    '10:00',
    '1772355600',
    '1772355600000',
    '2026-13-01',
    '2026-02-30',
    '2026-03-01T25:00',
    '2026-03-01T09:00:00.1234567890',
    '2026-03-01T09:00:00+25:00',
    '2026-03-01t09:00:00z',
    ' 2026-03-01',
    '２０２６-03-01',
  ].map((t) => bad(`the timestamp ${t}`, logs(`project=${REF}&iso_timestamp_start=${enc(t)}`), 'iso_timestamp_start')),
  ...[
    '2026-03-01',
    '2026-03-01T09:30',
    '2026-03-01 09:30:14',
    '2026-03-01T09:30:14.249999Z',
    '2026-03-01T10:30:14.249999+01:00',
    '2026-03-01T10:30:14.249999 01:00',
    '2026-03-01T04:30:14-0500',
    '2026-03-01T09:30:14.2499999',
  ].map((t) =>
    ok(`from the timestamp ${t}`, logs(`project=${REF}&iso_timestamp_start=${t.replaceAll(' ', '%20')}`), (reply) => {
      expect(reply.rows[0]?.['timestamp']).toBe(NOW * 1000 - 1_000_000);
    }),
  ),
  ok('start is exclusive', logs(`project=${REF}&iso_timestamp_start=2026-03-01T09:30:14.250Z`), count(0)),
  ok('end is inclusive', logs(`project=${REF}&iso_timestamp_end=2026-03-01T09:30:13.250Z`), (reply) =>
    expect(reply.rows[0]?.['event_message']).toBe('the message'),
  ),
  ok(
    'an end before the start',
    logs(`project=${REF}&iso_timestamp_start=2026-03-02&iso_timestamp_end=2026-03-01`),
    count(0),
  ),
  ok(
    'bounds beyond all time',
    logs(`project=${REF}&iso_timestamp_start=0000-01-01&iso_timestamp_end=9999-12-31`),
    count(3),
  ),
  ok('empty bounds are open', logs(`project=${REF}&iso_timestamp_start=&iso_timestamp_end=`), count(3)),
  ...[
    '-1',
    '1e9',
    '2026-03-01T09:30:14.-5',
    '-2026-03-01',
    '+002026-03-01T00:00:00Z',
    '2026-03-01T09:30:14.5.5',
    '9'.repeat(400),
    '2026-03-01T09:30:14Z%00',
    '٢٠٢٦-03-01',
  ].map((t) =>
    bad(
      `the timestamp ${t.slice(0, 40)}`,
      logs(`project=${REF}&iso_timestamp_end=${t.includes('%') ? t : enc(t)}`),
      'iso_timestamp_end',
    ),
  ),
  ok('before 1970', logs(`project=${REF}&iso_timestamp_start=1969-12-31T23:59:59.999999Z`), count(3)),
  bad(
    'a bound twice',
    logs(`project=${REF}&iso_timestamp_start=2026-03-01&iso_timestamp_start=2026-03-01`),
    'iso_timestamp_start',
  ),
  ok('at most 100 rows, newest first, and that is no cut', logs('project=many'), (reply) => {
    expect(reply.rows).toHaveLength(100);
    expect(reply.rows[0]?.['timestamp']).toBe(NOW * 1000 - 10_000_000);
    expect(reply.headers['x-result-truncated']).toBeUndefined();
  }),
  ok('columns of logs.all', logs(`project=${REF}`), columns('id', 'timestamp', 'event_message', 'metadata')),
  ok('nested lists', logs(`project=${REF}`), (reply) =>
    expect(reply.rows[0]?.['metadata']).toEqual([
      {
        request: [{ url: `https://${REF}.supabase.co/rest/v1/t`, path: '/rest/v1/t', method: 'GET' }],
        response: [{ status_code: 200 }],
      },
    ]),
  ),
  ok('digits, duplicates and escapes are as they were sent', logs(`project=${REF}`), (reply) =>
    expect(reply.text).toContain(
      String.raw`"event_message":"other key","metadata":[{"n":12345678901234567,"f":1.10,"e":[{}],"l":[{"a":[{"b":1}]},[{"c":[{}]}],null,2],"dup":1,"u":"\u0000\ud83d\ude00"}]`,
    ),
  ),
  ok('metadata of every shape', logs('project=shapes'), (reply) =>
    expect(reply.rows.map((r) => [r['id'], r['event_message'], r['metadata']])).toEqual([
      ['absent', '', []],
      ['null', '', []],
      ['scalar', '', [5]],
      ['text', '', ['x']],
      ['empty', '', [{}]],
      ['list', '', [{ a: [{ b: 1 }] }, 3]],
    ]),
  ),
];

const headers: Case[] = [
  ok('content type', stats(`project=${REF}`), has('content-type', 'application/json; charset=utf-8')),
  ok('cache-control of a cached endpoint', stats(`project=${REF}`), has('cache-control', 'private, max-age=900')),
  ok('cache-control of logs.all', logs(`project=${REF}`), has('cache-control', 'private, no-store')),
  ok('x-cache of logs.all', logs(`project=${REF}`), has('x-cache', 'none')),
  ok('no age of logs.all', logs(`project=${REF}`), has('age', undefined)),
  ok('no etag of logs.all', logs(`project=${REF}`), has('etag', undefined)),
  ok('vary', stats(`project=${REF}`), has('vary', 'X-API-KEY, Authorization, Accept-Encoding, Origin')),
  ok('age', stats(`project=${REF}`), has('age', '0')),
  ok('a weak etag', stats(`project=${REF}`), has('etag', /^W\/"[A-Za-z0-9_-]+"$/)),
  ok('a request id of ours', stats(`project=${REF}`), has('x-request-id', /^[0-9a-f-]{36}$/)),
  ok('a request id of the caller', stats(`project=${REF}`), has('x-request-id', 'abc.1-2'), {
    ...key,
    'x-request-id': 'abc.1-2',
  }),
  ...['x'.repeat(65), 'a\u00e9b', '<b>', 'a;b', '${jndi}'].map((id) =>
    ok(`not the request id ${id.slice(0, 10)}`, stats(`project=${REF}`), has('x-request-id', /^[0-9a-f-]{36}$/), {
      ...key,
      'x-request-id': id,
    }),
  ),
  ok('no request id of the caller that is none', stats(`project=${REF}`), has('x-request-id', /^[0-9a-f-]{36}$/), {
    ...key,
    'x-request-id': 'a b',
  }),
  ...[400, 401, 404].map((status): Case => ({
    name: `${status} is not stored`,
    path: status === 404 ? '/api/nothing' : logs(''),
    ...(status === 401 && { headers: {} }),
    status,
    check: (reply) => {
      expect(reply.headers['cache-control']).toBe('private, no-store');
      expect(reply.headers['content-type']).toBe('application/json; charset=utf-8');
      expect(reply.headers['x-request-id']).toBe(reply.error.request_id);
      expect(Object.keys(reply.error)).toEqual(
        status === 400
          ? ['code', 'message', 'status', 'errors', 'request_id']
          : ['code', 'message', 'status', 'request_id'],
      );
    },
  })),
];

const allowed: Case[] = [
  ...[
    ['query', stats],
    ['query', logs],
    ['logs', logs],
  ].map(([name, path]): Case => ({
    name: `${String(name)} may`,
    path: (path as typeof stats)(`project=${REF}`),
    as: String(name),
    status: 200,
  })),
  {
    name: 'a key of one endpoint may not call another',
    path: stats(`project=${REF}`),
    as: 'logs',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key of one endpoint learns nothing of others',
    path: '/api/endpoints/nothing',
    as: 'logs',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key without query learns nothing',
    path: '/api/endpoints/nothing',
    as: 'ingest',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key without query may not call',
    path: logs(`project=${REF}`),
    as: 'ingest',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key with query learns of 404',
    path: '/api/endpoints/nothing',
    as: 'query',
    status: 404,
    code: 'not_found',
  },
  { name: 'a key of projects sees its own', path: logs(`project=${REF}`), as: 'project', status: 200, check: count(3) },
  { name: 'a key of projects sees its other own', path: stats('project=own-project_1'), as: 'project', status: 200 },
  {
    name: 'a key of projects counts its own',
    path: counts(`project=${REF}&interval=daily`),
    as: 'project',
    status: 200,
    check: count(1),
  },
  ...[
    OTHER,
    `${REF}x`,
    REF.slice(1),
    REF.toUpperCase(),
    '.',
    `${REF}|${OTHER}`,
    `(${REF})`,
    `${REF} `,
    ` ${REF}`,
    `${REF}\0`,
    'many',
  ].map((project): Case => ({
    name: `a key of projects does not see ${JSON.stringify(project)}`,
    path: counts(`interval=daily&project=${enc(project)}`),
    as: 'project',
    status: 403,
    code: 'forbidden',
  })),
  {
    name: 'a key of projects: the project before other mistakes',
    path: counts(`project=${OTHER}&interval=x`),
    as: 'project',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key of projects: its own and another',
    path: logs(`project=${REF}&project=${OTHER}`),
    as: 'project',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'a key of projects: its own twice',
    path: logs(`project=${REF}&project=${REF}`),
    as: 'project',
    status: 400,
    code: 'invalid_parameter',
    wrong: ['project'],
  },
  {
    name: 'a key of projects without a project',
    path: logs(''),
    as: 'project',
    status: 400,
    code: 'invalid_parameter',
    wrong: ['project'],
  },
  { name: 'only admins see keys', path: '/api/keys', as: 'query', status: 403, code: 'forbidden' },
  {
    name: 'only admins make keys',
    path: '/api/keys',
    method: 'POST',
    as: 'project',
    body: '{}',
    status: 403,
    code: 'forbidden',
  },
  {
    name: 'only admins revoke keys',
    path: '/api/keys/x',
    method: 'DELETE',
    as: 'logs',
    status: 403,
    code: 'forbidden',
  },
];

const keyRoutes: Case[] = [
  ...(
    [
      ['no JSON', '{', 'invalid_request', undefined],
      ['no body', '', 'invalid_request', undefined],
      ['nothing in it', '{}', 'invalid_parameter', ['name', 'scopes']],
      ['a list', '[]', 'invalid_parameter', ['name', 'scopes']],
      ['an unknown field', '{"name":"n","scopes":["query"],"project":"x"}', 'invalid_parameter', ['project']],
      ['an unknown scope', '{"name":"n","scopes":["root"]}', 'invalid_parameter', ['scopes']],
      [
        'a project of other letters',
        '{"name":"n","scopes":["query"],"projects":["a.b"]}',
        'invalid_parameter',
        ['projects'],
      ],
      [
        'a long project',
        `{"name":"n","scopes":["query"],"projects":["${'a'.repeat(65)}"]}`,
        'invalid_parameter',
        ['projects'],
      ],
      [
        'an expiry in the past',
        '{"name":"n","scopes":["query"],"expires_at":"2026-03-01T09:00:00Z"}',
        'invalid_parameter',
        ['expires_at'],
      ],
      [
        'an expiry that is none',
        '{"name":"n","scopes":["query"],"expires_at":"soon"}',
        'invalid_parameter',
        ['expires_at'],
      ],
      ['an admin of projects', '{"name":"n","scopes":["admin"],"projects":["a"]}', 'invalid_parameter', ['projects']],
    ] as [string, string, string, string[] | undefined][]
  ).map(([name, body, code, wrong]): Case => ({
    name: `a new key with ${name}`,
    method: 'POST',
    path: '/api/keys',
    body,
    status: 400,
    code,
    ...(wrong && { wrong }),
  })),
  {
    name: 'a body of more than 64 KiB',
    method: 'POST',
    path: '/api/keys',
    body: 'x'.repeat(65 * 1024),
    status: 413,
    code: 'payload_too_large',
  },
  {
    name: 'DELETE with a content type and no body',
    method: 'DELETE',
    path: '/api/keys/none',
    headers: { ...key, 'content-type': 'application/json' },
    status: 404,
    code: 'not_found',
  },
  {
    name: 'PUT',
    method: 'PUT',
    path: '/api/keys',
    status: 405,
    code: 'method_not_allowed',
    check: has('allow', 'POST, GET, HEAD, OPTIONS'),
  },
  ok('the list has no keys in it', '/api/keys', (reply) => {
    const listed = (JSON.parse(reply.text) as { keys: { name: string; projects: string[] }[] }).keys;
    expect(listed.map((k) => k.name)).toEqual(expect.arrayContaining(['query', 'logs', 'ingest', 'project']));
    expect(listed.find((k) => k.name === 'project')?.projects).toEqual([REF, 'own-project_1'].toSorted());
    for (const made of Object.values(keys)) expect(reply.text).not.toContain(made.key);
    expect(reply.text).not.toContain('hash');
  }),
];

const open: Case[] = [
  ...['/health', '/livez'].flatMap((path): Case[] => [
    {
      name: `GET ${path}`,
      path,
      headers: {},
      status: 200,
      check: (reply) => expect(reply.text).toBe('{"status":"ok"}'),
    },
    { name: `HEAD ${path}`, path, method: 'HEAD', headers: {}, status: 200 },
  ]),
  {
    name: '/readyz',
    path: '/readyz',
    headers: {},
    status: 200,
    check: (reply) =>
      expect(JSON.parse(reply.text)).toEqual({
        status: 'ready',
        checks: { clickhouse: 'ok', endpoints: 'ok', keys: 'ok' },
      }),
  },
  {
    name: '/metrics',
    path: '/metrics',
    headers: {},
    status: 200,
    check: (reply) => {
      expect(reply.headers['content-type']).toMatch(/^text\/plain/);
      expect(reply.text).toMatch(
        /^sluice_query_requests_total\{endpoint="logs\.all",status="200",cache="none"\} \d+$/m,
      );
      expect(reply.text).toMatch(
        /^sluice_query_requests_total\{endpoint="usage\.api-counts",status="400",cache=""\} \d+$/m,
      );
      for (const cache of ['hit', 'miss'])
        expect(reply.text).toMatch(
          new RegExp(
            `^sluice_query_requests_total\\{endpoint="functions\\.invocation-stats",status="200",cache="${cache}"\\} \\d+$`,
            'm',
          ),
        );
      expect(reply.text).toMatch(
        /^sluice_query_duration_seconds_count\{endpoint="logs\.all",cache="none"\} [1-9]\d*$/m,
      );
      for (const what of ['rows', 'bytes'])
        expect(reply.text).toMatch(
          new RegExp(`^sluice_query_read_${what}_total\\{endpoint="logs\\.all"\\} [1-9]\\d*$`, 'm'),
        );
      expect(reply.text).not.toContain(API_KEY);
      expect(reply.text).not.toContain(REF);
    },
  },
  {
    name: '/openapi.json',
    path: '/openapi.json',
    headers: {},
    status: 200,
    check: (reply) =>
      expect(Object.keys((JSON.parse(reply.text) as { paths: object }).paths)).toEqual([
        '/api/endpoints/functions.invocation-stats',
        '/api/endpoints/logs.all',
        '/api/endpoints/usage.api-counts',
      ]),
  },
  {
    name: '/docs has nothing from elsewhere',
    path: '/docs',
    headers: {},
    status: 200,
    check: (reply) => {
      expect(reply.headers['content-type']).toBe('text/html; charset=utf-8');
      expect(reply.text).toContain('usage.api-counts');
      expect(reply.text).not.toMatch(/(src|href)="?(https?:)?\/\//);
    },
  },
];

it('has at least 150 cases', () => {
  expect(
    [addresses, authentication, methods, parameters, headers, allowed, keyRoutes, open].flat().length,
  ).toBeGreaterThanOrEqual(150);
});

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
    const us = NOW * 1000;
    await store(
      engine.clickhouse,
      'edge_logs',
      [
        edge(us - 1_000_000),
        edge(us - 2_000_000, {
          event_message: 'the message',
          message: 'not this',
          metadata: { n: 12345678901234567890n.toString(), request: { headers: { host: 'h' } } },
        }),
        `{"id":"big","timestamp":${us - 3_000_000},"project":"${REF}","message":"other key","metadata":{"n":12345678901234567,"f":1.10,"e":{},"l":[{"a":{"b":1}},[{"c":{}}],null,2],"dup":1,"dup":2,"u":"\\u0000\\ud83d\\ude00"}}`,
        ...[
          ['absent', ''],
          ['null', ',"metadata":null'],
          ['scalar', ',"metadata":5'],
          ['text', ',"metadata":"x"'],
          ['empty', ',"metadata":{}'],
          ['list', ',"metadata":[{"a":{"b":1}},3]'],
        ].map(([id, metadata], i) => `{"id":"${id}","timestamp":${us - 4_000_000 - i},"project":"shapes"${metadata}}`),
        ...Array.from({ length: 150 }, (_, i) => edge(us - 10_000_000 - i, {}, 'many')),
      ],
      { now: NOW },
    );
    await store(
      engine.clickhouse,
      'function_edge_logs',
      [
        invocation(us - 1_000_000, 200, 100),
        invocation(us - 1_000_001, 500, 300),
        invocation(us - 60_000_000, 204, null),
      ],
      { now: NOW },
    );
    service = await startService(engine.clickhouse, engine.dataDir, {}, { clock: () => NOW });
    await service.ready;
    await newKey('query', { scopes: ['query'] });
    await newKey('logs', { scopes: ['query:logs.all'] });
    await newKey('ingest', { scopes: ['ingest'] });
    await newKey('project', { scopes: ['query'], projects: [REF, 'own-project_1'] });
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  describe.each(
    Object.entries({
      addresses,
      authentication,
      methods,
      parameters,
      headers,
      allowed,
      'keys over HTTP': keyRoutes,
      'without a key': open,
    }),
  )('%s', (_, cases) => {
    it.each(cases.map((c): [string, Case] => [c.name, c]))(
      '%s',
      async (__, { path, method = 'GET', headers: given = key, as, body, status, code, wrong, check }) => {
        const reply = await send(service.address, path, {
          method,
          headers: as === undefined ? given : { 'x-api-key': keys[as]?.key ?? '' },
          ...(body !== undefined && { body }),
        });
        expect([reply.status, reply.status === status ? '' : reply.text]).toEqual([status, '']);
        if (code !== undefined) expect([reply.error.code, reply.error.status]).toEqual([code, status]);
        if (wrong !== undefined) expect(reply.error.errors?.map((e) => e.parameter)).toEqual(wrong);
        if (status >= 400)
          expect(reply.text).not.toMatch(/select|clickhouse|code: \d+|exception|re2: |\.sql|\.ts\b|at \w+ \(/i);
        check?.(reply);
      },
    );
  });

  describe('one cache entry', () => {
    it('serves every form of address and every spelling of the parameters', async () => {
      const query = 'project=one-entry&interval=15min';
      const first = await send(service.address, stats(query), { headers: key });
      expect(first.headers['x-cache']).toBe('miss');
      for (const path of [
        `/api/endpoints/query/${ids.stats}?${query}`,
        `/endpoints/query/functions.invocation-stats?${query}`,
        `/api/endpoints/query/name/functions.invocation-stats?interval=15min&project=one-entry`,
        stats(`${query}&function_id=`),
        stats(`${query}&unknown=1&api_key=ignored`),
        stats(`${query}&sql=select+1`),
      ]) {
        const reply = await send(service.address, path, { headers: key });
        expect([path, reply.headers['x-cache'], reply.text === first.text, reply.headers['etag']]).toEqual([
          path,
          'hit',
          true,
          first.headers['etag'],
        ]);
      }
    });

    it('stands for every value that means the same', async () => {
      const ask = async (path: string): Promise<unknown> =>
        (await send(service.address, path, { headers: key })).headers['x-cache'];
      expect(await ask(stats('project=same-1day'))).toBe('miss');
      for (const interval of ['', '1day', 'nonsense', '2day'])
        expect(await ask(stats(`project=same-1day&interval=${interval}`))).toBe('hit');
      expect(await ask(stats('project=same-1day&interval=7day'))).toBe('miss');
      expect(await ask(counts('project=same-daily&interval=daily'))).toBe('miss');
      expect(await ask(counts('project=same-daily&interval=7day'))).toBe('hit');
      expect(await ask(counts('project=same-daily&interval=minutely'))).toBe('miss');
      expect(await ask(counts('project=same-daily&interval=1hr'))).toBe('hit');
    });

    it('never belongs to a key', async () => {
      await send(service.address, stats('project=own-project_1&interval=7day'), { headers: key });
      const reply = await send(service.address, stats('project=own-project_1&interval=7day'), {
        headers: { 'x-api-key': keys['project']?.key ?? '' },
      });
      expect(reply.headers['x-cache']).toBe('hit');
      await send(service.address, stats('project=hidden'), { headers: key });
      expect(
        (await send(service.address, stats('project=hidden'), { headers: { 'x-api-key': keys['project']?.key ?? '' } }))
          .status,
      ).toBe(403);
    });
  });

  it('a key of projects is refused alike whether the project is there, is cached or is none, before anything is looked up', async () => {
    const limited = { 'x-api-key': keys['project']?.key ?? '', 'accept-encoding': 'gzip' };
    const made = async (): Promise<string[]> =>
      (await send(service.address, '/metrics')).text.match(
        /^sluice_query_(queue_seconds_count|cache_entries|cache_bytes|read_rows_total\S*) .*$/gm,
      ) ?? [];
    for (const path of [
      (p: string) => stats(`project=${p}`),
      (p: string) => logs(`project=${p}`),
      (p: string) => counts(`interval=daily&project=${p}`),
    ]) {
      // cached, or there
      for (const project of ['hidden', 'many', OTHER]) await send(service.address, path(project), { headers: key });
      const before = await made();
      const told = new Set<string>();
      for (const project of ['hidden', 'many', OTHER, 'is-none', '%00', '%ff', '(', 'x'.repeat(9000)]) {
        for (const more of [{}, { 'if-none-match': '*' }]) {
          const {
            status,
            headers: { date: _, 'x-request-id': id, ...others },
            text,
          } = await send(service.address, path(project), { headers: { ...limited, ...more } });
          told.add(JSON.stringify([status, others, text.replace(String(id), '')]));
        }
      }
      expect([...told].map((t) => (JSON.parse(t) as unknown[])[0])).toEqual([403]);
      expect(await made()).toEqual(before);
    }
  });

  describe('conditional requests', () => {
    it('answer 304 where the tag is the one, after the key', async () => {
      const path = stats('project=conditional');
      const first = await send(service.address, path, { headers: key });
      const etag = first.headers['etag'] ?? '';
      for (const tag of [etag, etag.slice(2), `"x", ${etag}`, '*']) {
        const reply = await send(service.address, path, { headers: { ...key, 'if-none-match': tag } });
        expect([
          reply.status,
          reply.text,
          reply.headers['etag'],
          reply.headers['cache-control'],
          reply.headers['age'],
          reply.headers['x-cache'],
        ]).toEqual([304, '', etag, 'private, max-age=900', '0', 'hit']);
      }
      expect((await send(service.address, path, { headers: { ...key, 'if-none-match': 'W/"other"' } })).status).toBe(
        200,
      );
      expect((await send(service.address, path, { headers: { 'if-none-match': etag } })).status).toBe(401);
      expect(
        (await send(service.address, path, { method: 'HEAD', headers: { ...key, 'if-none-match': etag } })).status,
      ).toBe(304);
    });

    it('answer with the rows where the endpoint has no tags', async () => {
      const path = '/api/endpoints/logs.all?project=conditional';
      const { status, text, headers } = await send(service.address, path, {
        headers: { ...key, 'if-none-match': '*' },
      });
      expect([status, JSON.parse(text), headers['etag'], headers['age'], headers['x-cache']]).toEqual([
        200,
        { result: [] },
        undefined,
        undefined,
        'none',
      ]);
    });
  });

  describe('compression', () => {
    it.each([
      ['gzip', 'gzip'],
      ['gzip, deflate, br', 'br'],
      ['br;q=0.5, gzip', 'gzip'],
      ['br;q=0, gzip;q=0', undefined],
      ['identity', undefined],
      ['*', 'br'],
      ['deflate', undefined],
      ['', undefined],
      ['GZIP;q=1.0', 'gzip'],
    ])('accept-encoding %j gives %s', async (accepted, encoding) => {
      const plain = await send(service.address, stats(`project=${REF}&interval=5min`), { headers: key });
      for (const path of [stats(`project=${REF}&interval=5min`), logs('project=many')]) {
        const reply = await send(service.address, path, { headers: { ...key, 'accept-encoding': accepted } });
        expect(reply.headers['content-encoding']).toBe(encoding);
        const body =
          encoding === 'br'
            ? brotliDecompressSync(reply.body)
            : encoding === 'gzip'
              ? gunzipSync(reply.body)
              : reply.body;
        expect(JSON.parse(body.toString()).result.length).toBeGreaterThan(0);
        if (path.includes('stats'))
          expect([body.equals(plain.body), reply.headers['etag']]).toEqual([true, plain.headers['etag']]);
      }
    });

    it.each(['/openapi.json', '/docs', '/metrics'])('%s is compressed too', async (path) => {
      const reply = await send(service.address, path, { headers: { 'accept-encoding': 'gzip' } });
      expect(reply.headers['content-encoding']).toBe('gzip');
      expect(gunzipSync(reply.body).length).toBeGreaterThan(1024);
    });

    it('leaves small bodies alone', async () => {
      expect(
        (
          await send(service.address, counts(`project=none-of-it&interval=daily`), {
            headers: { ...key, 'accept-encoding': 'gzip' },
          })
        ).headers['content-encoding'],
      ).toBeUndefined();
    });
  });

  describe('sizes', () => {
    it('takes a request line of 16 KiB', async () => {
      const path = stats(`project=${REF}&`);
      const line = (bytes: number): string =>
        path + 'x'.repeat(bytes - 'GET '.length - ' HTTP/1.1'.length - path.length);
      expect((await send(service.address, line(16 * 1024), { headers: key })).status).toBe(200);
      expect(
        (await send(service.address, line(16 * 1024), { headers: { ...key, cookie: 'c'.repeat(8 * 1024) } })).status,
      ).toBe(200);
      const longer = await send(service.address, line(17 * 1024), { headers: key });
      expect([longer.status, longer.error.code, longer.error.status]).toEqual([414, 'too_large', 414]);
      const longest = await send(service.address, line(64 * 1024), { headers: key });
      expect([longest.status, longest.error.code, longest.error.status]).toEqual([431, 'too_large', 431]);
    });

    it.each([
      ['letters', 'a'.repeat(20_000)],
      ['escapes', '%61'.repeat(10_000)],
      ['percent signs', '%'.repeat(30_000)],
    ])('refuses a path segment of too many %s like any other long address', async (_, segment) => {
      const path = `/api/endpoints/${segment}`;
      const longer = await send(service.address, path, { headers: key });
      expect([longer.status, longer.error.code]).toEqual([414, 'too_large']);
      expect([longer.headers['access-control-allow-origin'], longer.text.includes('%')]).toEqual(['*', false]);
      const withoutKey = await send(service.address, path);
      expect([withoutKey.status, withoutKey.error.code]).toEqual([401, 'unauthorized']);
    });

    it('answers what is no HTTP with an envelope', async () => {
      const { hostname, port } = new URL(service.address);
      const answer = await new Promise<string>((resolve, reject) => {
        const socket = connect(Number(port), hostname, () => socket.end('this is not http\r\n\r\n'));
        let text = '';
        socket.on('data', (chunk) => {
          text += chunk.toString();
        });
        socket.on('close', () => resolve(text));
        socket.on('error', reject);
      });
      expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
      expect(answer).toContain('"code":"invalid_request"');
    });
  });
});
