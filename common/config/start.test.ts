import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { readSettings, settingsTable } from './settings.ts';
import { describeSettings } from './start.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SECRET = 'hunter2';

/** A service as its script calls it. */
function check(
  service: string,
  env: Record<string, string>,
  args: readonly string[] = ['--check-config'],
): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [`services/${service}/main.ts`, ...args],
      { cwd: ROOT, env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', ...env } },
      (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
      },
    );
  });
}

describe('--check-config', () => {
  test.each(['all-in-one', 'ingest', 'rollup', 'query'])(
    '%s says how it understands every setting, no secret among them, and starts nothing',
    async (service) => {
      const { code, stdout } = await check(service, {
        KAFKA_BROKERS: 'kafka:9092, other:9093',
        CLICKHOUSE_URL: `http://sluice:${SECRET}@clickhouse.invalid:8123/logs`,
        API_KEY: SECRET,
        REDIS_URL: `redis://:${SECRET}@redis.invalid:6379/0`,
        // an address, if one only looks at its form
        REDIS_SECRET: `of:${SECRET}`,
        RAW_RETENTION_DAYS: '30',
      });
      expect(code).toBe(0);
      const lines = stdout.trimEnd().split('\n');
      expect(lines.map((line) => line.split(' = ')[0])).toEqual(Object.keys(settingsTable));
      for (const line of [
        'KAFKA_BROKERS = kafka:9092,other:9093',
        'CLICKHOUSE_URL = http://***@clickhouse.invalid:8123/logs',
        'API_KEY = ***',
        'REDIS_URL = redis://***@redis.invalid:6379/0',
        'REDIS_SECRET = ***',
        'RAW_RETENTION_DAYS = 30 days',
        'PORT = 4000 (default)',
        'BACKUP_PLACES = none (default)',
      ])
        expect(lines).toContain(line);
      expect(stdout).not.toContain(SECRET);
    },
  );

  test(
    'a mistake, or a setting that the service cannot do without: 78, and every mistake is named',
    { timeout: 60_000 },
    async () => {
      const wrong = await check('ingest', { KAFKA_BROKERS: 'nonsense', CLICKHOUSE_URL: `ftp://u:${SECRET}@x` });
      expect(wrong.code).toBe(78);
      for (const name of ['KAFKA_BROKERS', 'CLICKHOUSE_URL']) expect(wrong.stderr).toContain(name);
      const bare = await check('ingest', { KAFKA_BROKERS: 'k:9092', CLICKHOUSE_URL: 'localhost:8123' });
      expect(bare.stderr).toContain('CLICKHOUSE_URL is not a URL; use for instance http://localhost');
      expect(wrong.stderr + wrong.stdout).not.toContain(SECRET);
      const lacking = await check('rollup', {});
      expect(lacking.code).toBe(78);
      expect(lacking.stderr).toContain('npm run rollup needs CLICKHOUSE_URL');
      const both = await check('ingest', {
        CLICKHOUSE_URL: 'http://clickhouse.invalid:8123',
        PORT: 'x',
        HTTPS_CERT: '/nothing',
        AVRO_SCHEMAS_DIR: '/nothing',
      });
      expect(both.code).toBe(78);
      for (const said of [
        '\n  PORT ',
        '\n  HTTPS_CERT ',
        '\n  AVRO_SCHEMAS_DIR ',
        '\n  npm run ingest needs KAFKA_BROKERS and CLICKHOUSE_URL',
      ])
        expect(both.stderr).toContain(said);
    },
  );
});

test('METRICS_PORT must not be PORT, unless the service does not listen on PORT', { timeout: 60_000 }, async () => {
  const env = { KAFKA_BROKERS: 'kafka.invalid:9092', CLICKHOUSE_URL: 'http://clickhouse.invalid:8123' };
  const codes = (more: Record<string, string>) =>
    Promise.all(['all-in-one', 'query', 'ingest'].map(async (name) => (await check(name, { ...env, ...more })).code));
  expect(await codes({ METRICS_PORT: '4000' })).toEqual([78, 78, 0]);
  expect(await codes({ METRICS_PORT: '0', PORT: '0' })).toEqual([0, 0, 0]);
});

test.each([
  ['all-in-one', 'npm start'],
  ['query', 'npm run query'],
  ['ingest', 'npm run ingest'],
  ['rollup', 'npm run rollup'],
])('%s says what it takes, and does not start with other words', { timeout: 60_000 }, async (service, called) => {
  const env = { KAFKA_BROKERS: 'kafka.invalid:9092', CLICKHOUSE_URL: 'http://clickhouse.invalid:8123' };
  const help = await check(service, env, ['--help']);
  expect([help.code, help.stderr]).toEqual([0, '']);
  expect(help.stdout).toContain(called);
  const wrong = await check(service, env, ['--chek-config']);
  expect([wrong.code, wrong.stdout]).toEqual([64, '']);
  expect(wrong.stderr.trim().split('\n')).toHaveLength(1);
});

test('folders that other processes get are absolute; an empty XDG_CACHE_HOME is none', async () => {
  const { stdout } = await check('ingest', {
    CLICKHOUSE_URL: 'http://clickhouse.invalid:8123',
    KAFKA_BROKERS: 'kafka:9092',
    HOME: '/home/of-somebody',
    XDG_CACHE_HOME: '',
  });
  expect(stdout).toContain('CACHE_DIR = /home/of-somebody/.cache/sluice (default)\n');
  expect(readSettings({ CACHE_DIR: 'cache', JAVA_HOME: './java' })).toMatchObject({
    CACHE_DIR: join(process.cwd(), 'cache'),
    JAVA_HOME: join(process.cwd(), 'java'),
  });
});

test('a HOST in brackets, as URLs have it, is the address within', () => {
  expect(readSettings({ HOST: '[::1]' }).HOST).toBe('::1');
});

test('every mistake is said at once, also those between settings, and none twice', () => {
  const said = (env: Record<string, string>): string[] => {
    try {
      readSettings(env);
    } catch (error) {
      return (error as Error).message
        .split('\n')
        .slice(1)
        .map((line) => line.trim());
    }
    return [];
  };
  expect(said({ PORT: 'x', KAFKA_SASL_USERNAME: 'u', KAFKA_RAW_AVRO_TOPICS: 'none' })).toEqual([
    expect.stringMatching(/^PORT is "x"/),
    expect.stringMatching(/^KAFKA_RAW_AVRO_TOPICS has "none"/),
    'KAFKA_SASL_USERNAME needs KAFKA_SASL_MECHANISM and KAFKA_SASL_PASSWORD too',
  ]);
  expect(said({ KAFKA_TOPICS: 'edge_logs=a,edge_logs=b' })).toEqual(['KAFKA_TOPICS names edge_logs twice']);
  // what would follow from a setting that is wrong already is not said
  expect(said({ KAFKA_TOPICS: 'nonsense', KAFKA_RAW_AVRO_TOPICS: 'other' })).toEqual([
    expect.stringMatching(/^KAFKA_TOPICS /),
  ]);
  expect(
    said({
      KAFKA_BROKERS: 'nonsense',
      KAFKA_SSL: 'true',
      KAFKA_SASL_MECHANISM: 'x',
      KAFKA_SASL_USERNAME: 'u',
      KAFKA_SASL_PASSWORD: 'p',
    }).map((m) => m.split(' ')[0]),
  ).toEqual(['KAFKA_BROKERS', 'KAFKA_SASL_MECHANISM']);
  expect(
    said({ CLICKHOUSE_URL: 'nonsense', HTTPS_CERT: '/nothing', HTTPS_KEY: '/nothing' }).map((m) => m.split(' ')[0]),
  ).toEqual(['CLICKHOUSE_URL', 'HTTPS_CERT', 'HTTPS_KEY']);
  expect(said({ ENDPOINTS_DIR: '/nothing', AVRO_SCHEMAS_DIR: ROOT })).toEqual([
    'ENDPOINTS_DIR is "/nothing", which is not a folder',
  ]);
});

test('settings that do not fit together are a mistake each', () => {
  const kafka = { KAFKA_BROKERS: 'kafka:9092' };
  for (const [env, mistake] of [
    [{ KAFKA_SSL: 'true' }, 'KAFKA_SSL needs KAFKA_BROKERS: the local broker has neither TLS nor users'],
    [
      { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'u', KAFKA_SASL_PASSWORD: 'p' },
      'KAFKA_SASL_MECHANISM needs KAFKA_BROKERS: the local broker has neither TLS nor users',
    ],
    [
      { CLICKHOUSE_CLUSTER: 'c' },
      'CLICKHOUSE_CLUSTER needs CLICKHOUSE_URL: the embedded engine is no node of a cluster',
    ],
    [
      { CLICKHOUSE_URL: 'http://a:8123,http://b:8123' },
      'CLICKHOUSE_URL names several servers, but CLICKHOUSE_CLUSTER is not given',
    ],
  ] as const)
    expect(() => readSettings(env)).toThrow(mistake);
  expect(readSettings({ ...kafka, KAFKA_SSL: 'true' }).KAFKA_SSL).toBe(true);
  const nodes = 'http://a:8123,http://b:8123';
  expect(readSettings({ CLICKHOUSE_URL: nodes, CLICKHOUSE_CLUSTER: 'c' }).CLICKHOUSE_URL).toBe(nodes);
});

test('each node of a cluster is shown, without its password', () => {
  const CLICKHOUSE_URL = `http://u:${SECRET}@a:8123/logs,HTTP://u:${SECRET}@b:8123/logs`;
  const shown = describeSettings(readSettings({ CLICKHOUSE_URL, CLICKHOUSE_CLUSTER: 'c' }));
  expect(shown).toContain('CLICKHOUSE_URL = http://***@a:8123/logs,http://***@b:8123/logs\n');
  expect(shown).not.toContain(SECRET);
});

test('an address whose password cannot be decoded is a mistake, and is not shown', () => {
  for (const [name, scheme] of [
    ['CLICKHOUSE_URL', 'http'],
    ['CLICKHOUSE_SANDBOX_URL', 'https'],
    ['MOVE_FROM_URL', 'http'],
    ['SCHEMA_REGISTRY_URL', 'http'],
    ['REDIS_URL', 'redis'],
  ] as const) {
    expect(() => readSettings({ [name]: `${scheme}://user:100%${SECRET}@host:1/x` })).toThrow(
      `${name} has a % that begins no escape`,
    );
    expect(() => readSettings({ [name]: `${scheme}://user:100%${SECRET}@host:1/x` })).not.toThrow(SECRET);
    expect(readSettings({ [name]: `${scheme}://user:100%25@host:1/1` })[name]).toBe(`${scheme}://user:100%25@host:1/1`);
  }
});

test('an address has neither a query nor a fragment', () => {
  for (const [name, scheme] of [
    ['CLICKHOUSE_URL', 'http'],
    ['CLICKHOUSE_SANDBOX_URL', 'https'],
    ['MOVE_FROM_URL', 'http'],
    ['SCHEMA_REGISTRY_URL', 'http'],
    ['REDIS_URL', 'redis'],
  ] as const)
    for (const wrong of [`/?x=${SECRET}`, `?${SECRET}`, '/?', '/a?database=b', `/a#${SECRET}`, '#']) {
      expect(() => readSettings({ [name]: `${scheme}://host:1${wrong}` }), name + wrong).toThrow(
        `${name} has a query or a fragment; in a password ? and # are written %3F and %23`,
      );
      expect(() => readSettings({ [name]: `${scheme}://host:1${wrong}` })).not.toThrow(SECRET);
    }
  expect(readSettings({ SCHEMA_REGISTRY_URL: 'http://u:%3F%23@host:1/a/' }).SCHEMA_REGISTRY_URL).toBe(
    'http://u:%3F%23@host:1/a/',
  );
});

test('an address of Redis has nothing but the number of a database behind the host', () => {
  for (const wrong of ['/name', '/0/1', '/-1'])
    expect(() => readSettings({ REDIS_URL: `redis://host:6379${wrong}` }), wrong).toThrow(
      'REDIS_URL has more than the number of a database behind the host; use redis://host:6379/0',
    );
  for (const right of ['', '/', '/0', '/15'])
    expect(readSettings({ REDIS_URL: `redis://host:6379${right}` }).REDIS_URL).toBe(`redis://host:6379${right}`);
});

test('an address of ClickHouse has nothing but a database behind the host', () => {
  for (const name of ['CLICKHOUSE_URL', 'CLICKHOUSE_SANDBOX_URL', 'MOVE_FROM_URL'] as const) {
    for (const wrong of ['/a/b', '/a/'])
      expect(() => readSettings({ [name]: `http://host:8123${wrong}` }), name + wrong).toThrow(
        `${name} has more than a database behind the host; use http://user:password@host:8123/database`,
      );
    for (const right of ['', '/', '/a', '/a%2Fb'])
      expect(readSettings({ [name]: `http://host:8123${right}` })[name]).toBe(`http://host:8123${right}`);
  }
});

test('a key that no header carries is a mistake, and is not shown', () => {
  expect(() => readSettings({ API_KEY: `${SECRET}é` })).toThrow(/API_KEY has a non-ASCII character/);
  expect(() => readSettings({ API_KEY: `${SECRET}é` })).not.toThrow(SECRET);
  expect(readSettings({ API_KEY: 'a key, of {any} other sort' }).API_KEY).toBe('a key, of {any} other sort');
});

test('no value of a secret setting is shown, whatever it looks like', () => {
  for (const [name, s] of Object.entries(settingsTable)) {
    if (!('secret' in s)) continue;
    for (const value of [
      SECRET,
      `http://${SECRET}@host:1/path`,
      `http://user:${SECRET}@host/?key=${SECRET}#${SECRET}`,
    ]) {
      const settings = { ...readSettings({}), [name]: value };
      expect(describeSettings(settings), name).not.toContain(SECRET);
    }
  }
});

test('TRUST_PROXY says which proxies are trusted; "true" would trust every caller', () => {
  const of = (TRUST_PROXY: string): unknown => readSettings({ TRUST_PROXY }).TRUST_PROXY;
  expect([of(''), of('false'), of('0'), of('1'), of('2'), of('10.0.0.0/8, ::1,192.0.2.7')]).toEqual([
    false,
    false,
    false,
    1,
    2,
    ['10.0.0.0/8', '::1', '192.0.2.7'],
  ]);
  expect(() => of('true')).toThrow(
    /TRUST_PROXY is "true", which would let every caller choose its own address; use how many proxies/,
  );
  for (const wrong of ['yes', '-1', '10.0.0.0/33', '10.0.0.0/0', '10.0.0.0/8/8', 'proxy.internal', ',', '1.5'])
    expect(() => of(wrong)).toThrow(/TRUST_PROXY .* use how many proxies stand in front/);
});

test('an API_KEY that can be guessed is a mistake where others than this machine are let in', () => {
  for (const HOST of ['0.0.0.0', '::', '192.0.2.1', 'sluice.internal', '127.0.0.1.example']) {
    expect(() => readSettings({ HOST, API_KEY: 'fifteen-letters' })).toThrow(/API_KEY has fewer than 16 characters/);
    expect(readSettings({ HOST, API_KEY: 'sixteen-letters!' }).API_KEY).toBe('sixteen-letters!');
  }
  for (const HOST of ['127.0.0.1', '127.9.9.9', 'localhost', 'LOCALHOST', '[::1]', '::1', ''])
    expect(readSettings({ HOST, API_KEY: 'short' }).API_KEY).toBe('short');
});
