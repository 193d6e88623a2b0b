import { once } from 'node:events';
import { mkdtempSync, readFileSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Logger } from '../../../common/logger.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { makeCertificate } from '../../harness/certificates.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { waitFor } from '../../harness/wait-for.ts';
import {
  API_KEY,
  ENDLESS,
  call,
  logger,
  openEngine,
  send,
  startService,
  writeEndpoint,
  type Engine,
  type Reply,
  type TestSettings,
} from './service.ts';

/** What a query, a caller or a crowd may take. */
/** rows that even an endless query does not read in its time */
const ENOUGH = '1000000000000';

let engine: Engine;
const folder = temporaryFolder();
let started: QueryService[] = [];

beforeAll(async () => {
  engine = await openEngine();
  writeEndpoint(folder.path, 'endless', ENDLESS, 'max_seconds: 20\n');
  writeEndpoint(folder.path, 'brief', ENDLESS, 'max_seconds: 1\n');
  writeEndpoint(
    folder.path,
    'large',
    "SELECT groupArray(number) AS n FROM (SELECT number FROM system.numbers LIMIT 10000000) WHERE @project != ''",
  );
  writeEndpoint(folder.path, 'three', 'SELECT arrayJoin(range(toUInt32(materialize(@project)))) AS n', 'max_rows: 3\n');
  writeEndpoint(folder.path, 'broken', "SELECT throwIf(materialize(@project) != '', 'the secret of the engine') AS n");
  writeEndpoint(folder.path, 'division', 'SELECT intDiv(1, length(materialize(@project)) - 1) AS n');
});
afterEach(async () => {
  await Promise.all(started.map((s) => s.stop()));
  started = [];
});
afterAll(async () => {
  await engine?.close();
  folder.remove();
});

async function service(settings: TestSettings = {}, log: Logger = logger): Promise<QueryService> {
  const s = await startService(
    engine.clickhouse,
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path, QUERY_MAX_ROWS_READ: ENOUGH, ...settings },
    { logger: log },
  );
  started.push(s);
  await s.ready;
  return s;
}

describe('a query', () => {
  it('that takes too long, reads too much or needs too much memory is a 504, whole or not at all', async () => {
    const s = await service({ QUERY_MAX_MEMORY_BYTES: '20000000' });
    for (const endpoint of ['brief', 'large']) {
      const reply = await call(s, endpoint, { project: 'p' });
      expect([endpoint, reply.status, reply.error.code, reply.headers['cache-control']]).toEqual([
        endpoint,
        504,
        'timeout',
        'private, no-store',
      ]);
    }
    const few = await service({ QUERY_MAX_ROWS_READ: '1000' });
    expect((await call(few, 'endless', { project: 'p' })).error.code).toBe('timeout');
  });

  it('that is cut at max rows says so', async () => {
    const s = await service();
    const truncated = async (n: string): Promise<[unknown[], unknown]> => {
      const reply = await call(s, 'three', { project: n });
      return [reply.rows.map((r) => r['n']), reply.headers['x-result-truncated']];
    };
    expect(await truncated('0')).toEqual([[], undefined]);
    expect(await truncated('3')).toEqual([[0, 1, 2], undefined]);
    expect(await truncated('4')).toEqual([[0, 1, 2], 'true']);
    expect(await truncated('1000')).toEqual([[0, 1, 2], 'true']);
  });

  it('that fails tells the caller nothing of the engine', async () => {
    const s = await service();
    for (const [endpoint, project] of [
      ['broken', 'p'],
      ['three', 'x'],
      ['division', 'p'],
    ] as const) {
      const reply = await call(s, endpoint, { project });
      expect([endpoint, reply.status, reply.error.code, reply.error.message]).toEqual([
        endpoint,
        500,
        'internal',
        'something went wrong on our side',
      ]);
      expect(reply.text).not.toMatch(/secret|throw|SELECT|Code/);
    }
  });

  it('ends when its caller goes away, which is no error of anybody', async () => {
    const lines: string[] = [];
    const s = await service(
      {},
      pino(
        { level: 'debug' },
        new Writable({
          write: (chunk: Buffer, _, done) => {
            lines.push(chunk.toString());
            done();
          },
        }),
      ),
    );
    const running = async (): Promise<string | undefined> =>
      /^sluice_query_running (\d+)$/m.exec((await send(s.address, '/metrics')).text)?.[1];
    const caller = new AbortController();
    const left = send(s.address, '/api/endpoints/endless?project=p', {
      headers: { 'x-api-key': API_KEY },
      signal: caller.signal,
    }).catch(() => 'left');
    await waitFor(async () => (await running()) === '1', 5_000, 'the query runs');
    caller.abort();
    expect(await left).toBe('left');
    await waitFor(async () => (await running()) === '0', 5_000, 'the query has ended');
    await waitFor(() => lines.some((line) => line.includes('"msg":"caller_left"')), 5_000, 'it is noted');
    expect(lines.filter((line) => /"level":[4-6]0/.test(line))).toEqual([]);
    expect((await send(s.address, '/metrics')).text).toContain(
      'sluice_query_requests_total{endpoint="endless",status="499",cache=""} 1',
    );
  });

  it('waits its turn for two seconds in a short queue, else 503', async () => {
    const s = await service({ QUERY_CONCURRENCY: '1', QUERY_QUEUE: '1' });
    const callers = new AbortController();
    const endless = (project: string): Promise<Reply | string> =>
      send(s.address, `/api/endpoints/endless?project=${project}`, {
        headers: { 'x-api-key': API_KEY },
        signal: callers.signal,
      }).catch(() => 'left');
    const gauge = async (name: string): Promise<string | undefined> =>
      new RegExp(`^sluice_query_${name} (\\d+)$`, 'm').exec((await send(s.address, '/metrics')).text)?.[1];
    const first = endless('a');
    await waitFor(async () => (await gauge('running')) === '1', 5_000, 'the first runs');
    const second = endless('b');
    await waitFor(async () => (await gauge('waiting')) === '1', 5_000, 'the second waits');
    const third = await call(s, 'endless', { project: 'c' });
    expect([third.status, third.error.code, third.headers['retry-after']]).toEqual([503, 'unavailable', '1']);
    const waited = await second;
    expect(typeof waited === 'string' ? waited : [waited.status, waited.error.code]).toEqual([503, 'unavailable']);
    callers.abort();
    expect(await first).toBe('left');
    await waitFor(async () => (await gauge('running')) === '0', 5_000, 'the first has ended');
    expect((await call(s, 'three', { project: '1' })).status).toBe(200);
  });
});

describe('rates', () => {
  it('are not limited by default', async () => {
    const s = await service();
    const statuses = await Promise.all(
      Array.from({ length: 300 }, () => call(s, 'functions.invocation-stats', { project: 'p' }).then((r) => r.status)),
    );
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect((await call(s, 'functions.invocation-stats', { project: 'p' })).headers['ratelimit-limit']).toBeUndefined();
  });

  it('of a key', async () => {
    const s = await service({ RATE_LIMIT_PER_KEY: '3' });
    const replies: Reply[] = [];
    for (let i = 0; i < 5; i++) replies.push(await call(s, 'functions.invocation-stats', { project: 'p' }));
    expect(replies.map((r) => [r.status, r.headers['ratelimit-limit'], r.headers['ratelimit-remaining']])).toEqual([
      [200, '3', '2'],
      [200, '3', '1'],
      [200, '3', '0'],
      [429, '3', '0'],
      [429, '3', '0'],
    ]);
    expect([replies[4]?.error.code, Number(replies[4]?.headers['retry-after']) > 0]).toEqual(['rate_limited', true]);
    expect((await send(s.address, '/health')).status).toBe(200);
  });

  it.each(['RATE_LIMIT_PER_KEY', 'RATE_LIMIT_PER_ADDRESS'])('%s counts paths that cannot be decoded', async (name) => {
    const s = await service({ [name]: '2' });
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++)
      statuses.push((await send(s.address, '/api/%zz', { headers: { 'x-api-key': API_KEY } })).status);
    expect(statuses).toEqual([404, 404, 429]);
  });

  it('of an address counts paths that cannot be decoded for the caller behind a proxy', async () => {
    const s = await service({ RATE_LIMIT_PER_ADDRESS: '1', TRUST_PROXY: '1' });
    const statuses: number[] = [];
    for (const path of ['/%zz', '/%ff'])
      for (const forwarded of ['192.0.2.1', '192.0.2.2'])
        statuses.push((await send(s.address, path, { headers: { 'x-forwarded-for': forwarded } })).status);
    expect(statuses).toEqual([404, 404, 429, 429]);
  });

  it('of an address, which is what trusted proxies say, however much a caller writes before them', async () => {
    const from = (s: QueryService, forwarded: string): Promise<number> =>
      send(s.address, '/api/endpoints/logs.all?project=p', {
        headers: { 'x-api-key': API_KEY, 'x-forwarded-for': forwarded },
      }).then((r) => r.status);
    for (const TRUST_PROXY of ['1', '127.0.0.1', '10.0.0.0/8,127.0.0.0/8']) {
      const trusting = await service({ RATE_LIMIT_PER_ADDRESS: '1', TRUST_PROXY });
      const statuses = [];
      for (const forwarded of [
        '192.0.2.1',
        '192.0.2.2',
        '198.51.100.7, 192.0.2.1',
        '192.0.2.3, 198.51.100.8, 192.0.2.2',
        '192.0.2.1',
      ])
        statuses.push(await from(trusting, forwarded));
      expect([TRUST_PROXY, statuses]).toEqual([TRUST_PROXY, [200, 200, 429, 429, 429]]);
    }
    const byNetwork = await service({ RATE_LIMIT_PER_ADDRESS: '1', TRUST_PROXY: '1' });
    expect([
      await from(byNetwork, '2001:db8::1'),
      await from(byNetwork, '2001:db8::2'),
      await from(byNetwork, '2001:db8:0:1::1'),
    ]).toEqual([200, 429, 200]);
    const behindTwo = await service({ RATE_LIMIT_PER_ADDRESS: '1', TRUST_PROXY: '2' });
    expect([
      await from(behindTwo, '192.0.2.1, 10.0.0.1'),
      await from(behindTwo, '192.0.2.2, 10.0.0.1'),
      await from(behindTwo, '198.51.100.7, 192.0.2.1, 10.0.0.1'),
    ]).toEqual([200, 200, 429]);
    for (const settings of [{}, { TRUST_PROXY: '192.0.2.0/24' }]) {
      const suspicious = await service({ RATE_LIMIT_PER_ADDRESS: '1', ...settings });
      expect([await from(suspicious, '192.0.2.1'), await from(suspicious, '192.0.2.2')]).toEqual([200, 429]);
    }
  });
});

describe('the process', () => {
  it('has /metrics on a port of its own where it is asked to', async () => {
    const s = await service({ METRICS_PORT: '0' });
    expect((await send(s.address, '/metrics')).status).toBe(404);
    const own = new URL(s.metricsAddress ?? '');
    expect((await send(own.origin, '/metrics')).text).toContain('sluice_query_requests_total');
    expect((await send(own.origin, '/api/endpoints/logs.all')).status).toBe(404);
  });

  it('says in one line that a port is taken', async () => {
    const s = await service();
    const port = new URL(s.address).port;
    await expect(service({ PORT: port })).rejects.toThrow(
      `port ${port} on 127.0.0.1 is in use; stop the program that listens there, or set PORT`,
    );
    await expect(service({ METRICS_PORT: port })).rejects.toThrow(`port ${port} on 127.0.0.1 is in use`);
  });

  it('makes its first key once, keeps it for itself, and says so', async () => {
    const dataDir = mkdtempSync(`${folder.path}/first-`);
    const first = await startService(engine.clickhouse, dataDir, { API_KEY: '' });
    const made = first.createdKey ?? '';
    expect(made).toMatch(/^sluice_[A-Za-z0-9_-]{43}$/);
    await first.ready;
    expect((await send(first.address, '/api/keys', { headers: { 'x-api-key': made } })).status).toBe(200);
    await first.stop();
    expect(statSync(`${dataDir}/api-key`).mode & 0o777).toBe(0o600);
    expect(readFileSync(`${dataDir}/api-key`, 'utf8').trim()).toBe(made);
    const second = await startService(engine.clickhouse, dataDir, { API_KEY: '' });
    expect(second.createdKey).toBeUndefined();
    expect(
      (await send(second.address, '/api/endpoints/logs.all?project=p', { headers: { 'x-api-key': made } })).status,
    ).toBe(200);
    await second.stop();
    const other = await startService(engine.clickhouse, dataDir, { API_KEY: 'another' });
    await other.ready;
    expect(
      (await send(other.address, '/api/endpoints/logs.all?project=p', { headers: { 'x-api-key': made } })).status,
    ).toBe(401);
    await other.stop();
  });

  it('answers what is under way when it stops, and ends what takes too long', async () => {
    const s = await startService(engine.clickhouse, engine.dataDir, {
      ENDPOINTS_DIR: folder.path,
      QUERY_MAX_ROWS_READ: ENOUGH,
    });
    await s.ready;
    const idle = connect(Number(new URL(s.address).port), '127.0.0.1');
    const slow = call(s, 'endless', { project: 'p' });
    const quick = call(s, 'brief', { project: 'p' });
    await waitFor(
      async () => /^sluice_query_running 2$/m.test((await send(s.address, '/metrics')).text),
      5_000,
      'both run',
    );
    const from = performance.now();
    await s.stop();
    expect(performance.now() - from).toBeLessThan(9_000);
    expect([(await quick).status, (await slow).status]).toEqual([504, 503]);
    idle.destroy();
  });

  it('stops at once with HTTPS while connections have not begun their handshake', async () => {
    const { cert, key } = makeCertificate(folder.path, 'server');
    const s = await startService(engine.clickhouse, engine.dataDir, { HTTPS_CERT: cert, HTTPS_KEY: key });
    await s.ready;
    // two for each of the sockets that accept
    const idle = Array.from({ length: 16 }, () => connect(Number(new URL(s.address).port), '127.0.0.1'));
    await Promise.all(
      idle.map((socket) =>
        once(
          socket.on('error', () => undefined),
          'connect',
        ),
      ),
    );
    const from = performance.now();
    const stopped = s.stop().then(() => performance.now() - from);
    const deadline = new Promise<number>((resolve) => {
      setTimeout(resolve, 5_000, Number.POSITIVE_INFINITY).unref();
    });
    expect(await Promise.race([stopped, deadline])).toBeLessThan(2_000);
    for (const socket of idle) socket.destroy();
    await stopped;
  });
});
