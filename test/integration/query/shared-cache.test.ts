import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createClient } from '@redis/client';
import { openRedisCache } from '../../../services/query/answer/redis-cache.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { startRedis, type TestRedis } from '../../harness/redis.ts';
import { waitFor } from '../../harness/wait-for.ts';
import {
  call,
  counting,
  logger,
  openEngine,
  startService,
  writeEndpoint,
  type Counted,
  type Engine,
  type Reply,
} from './service.ts';

/**
 * Two processes of the query service that share answers in a real Redis, here as two services with nothing else in
 * common.
 */
const START = Date.UTC(2026, 2, 1, 12, 0, 0);
const STATS = 'functions.invocation-stats';

const folder = temporaryFolder();
let engine: Engine;
let redis: TestRedis;
let clickhouse: Counted;
let services: QueryService[] = [];
let now = START;

beforeAll(async () => {
  engine = await openEngine('server');
  redis = await startRedis();
  writeEndpoint(folder.path, 'slow', 'SELECT @project AS n', 'cache_seconds: 900\nmax_seconds: 40\n');
});
afterAll(async () => {
  await redis?.stop();
  folder.remove();
  await engine?.close();
});
beforeEach(async () => {
  now = START;
  clickhouse = counting(engine.clickhouse);
  const client = createClient({ url: redis.url });
  await client.connect();
  await client.flushAll();
  client.destroy();
  services = await Promise.all(
    [1, 2].map(() =>
      startService(
        clickhouse,
        engine.dataDir,
        { REDIS_URL: redis.url, QUERY_TIMEOUT_SECONDS: '2', ENDPOINTS_DIR: folder.path },
        { clock: () => now },
      ),
    ),
  );
  await Promise.all(services.map((s) => s.ready));
});
afterEach(() => Promise.all(services.map((s) => s.stop())));

const ask = (service: number, project: string): Promise<Reply> =>
  call(services[service] as QueryService, STATS, { project });
const told = (reply: Reply): unknown[] => [reply.status, reply.headers['x-cache'], reply.headers['age']];

describe('two processes', () => {
  it('have what one of them has fetched', async () => {
    const first = await ask(0, 'p');
    expect(told(first)).toEqual([200, 'miss', '0']);
    now = START + 10_000;
    const second = await ask(1, 'p');
    expect(told(second)).toEqual([200, 'hit', '10']);
    expect([second.text, second.headers['etag']]).toEqual([first.text, first.headers['etag']]);
    expect(clickhouse.queries()).toBe(1);
    now = START + 900_000;
    expect(told(await ask(1, 'p'))).toEqual([200, 'miss', '0']);
  });

  it('make one query of 400 misses', async () => {
    const replies = await Promise.all(Array.from({ length: 400 }, (_, i) => ask(i % 2, 'crowd')));
    expect(new Set(replies.map((r) => r.status))).toEqual(new Set([200]));
    expect(new Set(replies.map((r) => r.text)).size).toBe(1);
    expect(clickhouse.queries()).toBe(1);
  });

  it('fetch anew once for both', async () => {
    await ask(0, 'p');
    await ask(1, 'p');
    now = START + 300_000;
    await waitFor(
      async () => (await ask(0, 'p')).headers['age'] === '0' && (await ask(1, 'p')).headers['age'] === '0',
      8_000,
      'both have the new answer',
    );
    expect(clickhouse.queries()).toBe(2);
  });

  it('go on where one of them died in the middle of a query', async () => {
    const client = createClient({ url: redis.url });
    await client.connect();
    await ask(0, 'dead');
    const [answer] = await client.keys('sluice:answer:*');
    await client.flushAll();
    await client.set((answer ?? '').replace('answer', 'lock'), 'of a process that is no more', {
      expiration: { type: 'PX', value: 700 },
    });
    client.destroy();
    const from = performance.now();
    expect(told(await ask(1, 'dead'))).toEqual([200, 'miss', '0']);
    expect(performance.now() - from).toBeGreaterThan(500);
  });

  it('read only the head of an old answer while one of them queries', async () => {
    const client = createClient({ url: redis.url });
    await client.connect();
    await ask(0, 'old');
    const [answer = ''] = await client.keys('sluice:answer:*');
    now = START + 1_000_000;
    await client.set(answer.replace('answer', 'lock'), 'of another process', {
      expiration: { type: 'PX', value: 700 },
    });
    await client.configResetStat();
    expect(told(await ask(1, 'old'))).toEqual([200, 'miss', '0']);
    const stats = await client.info('commandstats');
    const calls = (command: string): number =>
      Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
    expect(calls('getrange')).toBeGreaterThan(5);
    // one is that of the script that releases the lock
    expect(calls('get')).toBeLessThan(2);
    client.destroy();
  });

  it('leave the lock of a query as long as its endpoint lets it run', async () => {
    const client = createClient({ url: redis.url });
    await client.connect();
    const letGo = clickhouse.hold();
    const asked = call(services[0] as QueryService, 'slow', { project: 'p' });
    const held = async (): Promise<number> => {
      const [lock] = await client.keys('sluice:lock:*');
      return lock === undefined ? 0 : await client.pTTL(lock);
    };
    await waitFor(async () => (await held()) > 0, 5_000, 'the lock');
    expect(await held()).toBeGreaterThan(30_000);
    letGo();
    expect((await asked).status).toBe(200);
    expect(await held()).toBe(0);
    client.destroy();
  });

  it('take no answer of a process whose clock is ahead', async () => {
    now = START + 3_600_000;
    await ask(0, 'ahead');
    now = START;
    expect(told(await ask(1, 'ahead'))).toEqual([200, 'miss', '0']);
    now = START + 10_000;
    expect(told(await ask(1, 'ahead'))).toEqual([200, 'hit', '10']);
  });

  it('serve what the other had while ClickHouse is away', async () => {
    await ask(0, 'p');
    await engine.face?.down();
    now = START + 1_000_000;
    expect(told(await ask(1, 'p'))).toEqual([200, 'stale', '1000']);
    expect((await ask(1, 'other')).status).toBe(503);
    await engine.face?.up();
  });
});

describe('with Redis away', () => {
  it('each process looks after itself, and they share again when it is back', async () => {
    await ask(0, 'p');
    redis.freeze();
    const from = performance.now();
    expect(told(await ask(1, 'p'))).toEqual([200, 'miss', '0']);
    expect(performance.now() - from).toBeLessThan(5_000);
    expect(told(await ask(1, 'p'))).toEqual([200, 'hit', '0']);
    const silent = performance.now();
    expect(told(await ask(1, 'another'))).toEqual([200, 'miss', '0']);
    expect(performance.now() - silent, 'Redis is not waited for again').toBeLessThan(500);
    redis.thaw();
    await waitFor(
      async () => {
        const project = `again-${performance.now()}`;
        await ask(0, project);
        return (await ask(1, project)).headers['x-cache'] === 'hit';
      },
      10_000,
      'they share again',
    );
  });

  it('a lock that Redis grants too late is released', async () => {
    const cache = openRedisCache({ url: redis.url, secret: randomBytes(32), lockMarginMs: 60_000, logger });
    const answers = async (): Promise<boolean> => {
      await cache.put('any', { body: '[]', truncated: false, fetchedAt: now });
      return (await cache.get('any')) !== undefined;
    };
    await waitFor(answers, 5_000, 'Redis answers');
    redis.freeze();
    await (await cache.lock('late', 60_000))!();
    redis.thaw();
    // commands of one connection run in order, so the lock was granted before this
    await waitFor(answers, 10_000, 'Redis answers again');
    const client = createClient({ url: redis.url });
    await client.connect();
    expect(await client.keys('sluice:lock:*')).toEqual([]);
    client.destroy();
    cache.close();
  });

  it('a service starts all the same', async () => {
    const alone = await startService(
      clickhouse,
      engine.dataDir,
      { REDIS_URL: 'redis://127.0.0.1:1' },
      { clock: () => now },
    );
    await alone.ready;
    expect(told(await call(alone, STATS, { project: 'p' }))).toEqual([200, 'miss', '0']);
    await alone.stop();
  });
});
