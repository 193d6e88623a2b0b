import { createClient } from '@redis/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { startRedis, type TestRedis } from '../../harness/redis.ts';
import { call, openEngine, startService, type Engine, type Reply } from '../query/service.ts';

/** Whoever writes into the Redis of the answers, without the secret, makes no answer of ours. */
const NOW = Date.UTC(2026, 2, 1, 12, 0, 0);
const FORGED = '{"result":[{"timestamp":1,"forged":true}]}';
let engine: Engine;
let redis: TestRedis;
let client: ReturnType<typeof createClient>;
let writer: QueryService;
let reader: QueryService;

beforeAll(async () => {
  engine = await openEngine();
  redis = await startRedis();
  client = createClient({ url: redis.url });
  await client.connect();
  [writer, reader] = [await start('the secret of both'), await start('the secret of both')];
});
afterAll(async () => {
  await Promise.all([writer?.stop(), reader?.stop()]);
  client?.destroy();
  await redis?.stop();
  await engine?.close();
});

async function start(secret: string): Promise<QueryService> {
  const service = await startService(
    engine.clickhouse,
    engine.dataDir,
    { REDIS_URL: redis.url, REDIS_SECRET: secret },
    { clock: () => NOW },
  );
  await service.ready;
  return service;
}

const ask = (service: QueryService, project: string): Promise<Reply> =>
  call(service, 'functions.invocation-stats', { project });

/** What the writer stores of a project, and under which name. */
async function stored(project: string): Promise<{ name: string; text: string; reply: Reply }> {
  await client.flushAll();
  const reply = await ask(writer, project);
  const [name = ''] = await client.keys('sluice:answer:*');
  return { name, text: (await client.get(name)) ?? '', reply };
}

describe('an answer in Redis', () => {
  it('is taken as the other process stored it', async () => {
    const { text, reply } = await stored('own');
    expect(text.endsWith(reply.text)).toBe(true);
    expect((await ask(reader, 'own')).headers['x-cache']).toBe('hit');
  });

  it.each<[string, (text: string) => string]>([
    ['has another body', (text) => `${text.slice(0, text.indexOf('\n') + 1)}${FORGED}`],
    ['has another time', (text) => text.replace(` ${NOW} `, ` ${NOW - 1} `)],
    ['is said to be whole where it is cut', (text) => text.replace(` ${NOW} 0\n`, ` ${NOW} 1\n`)],
    ['has no MAC', (text) => text.slice(text.indexOf(' ') + 1)],
    ['has an empty MAC', (text) => text.slice(text.indexOf(' '))],
    ['has a MAC of other characters', (text) => `${'é'.repeat(43)}${text.slice(43)}`],
    ['is cut in its MAC', (text) => text.slice(0, 20)],
    ['is empty', () => ''],
  ])('that %s is refused, and asked of ClickHouse', async (what, forge) => {
    const project = what.replaceAll(' ', '-');
    const { name, text, reply } = await stored(project);
    expect(forge(text)).not.toBe(text);
    await client.set(name, forge(text));
    const answer = await ask(reader, project);
    expect([answer.status, answer.headers['x-cache'], answer.text]).toEqual([200, 'miss', reply.text]);
  });

  it('of one key is refused under another', async () => {
    const victim = await stored('victim');
    const { text } = await stored('attacker');
    await client.set(victim.name, text);
    expect((await ask(reader, 'victim')).headers['x-cache']).toBe('miss');
  });

  it('of a service with another secret is refused', async () => {
    const other = await start('another secret');
    await client.flushAll();
    await ask(other, 'foreign');
    expect(await client.keys('sluice:answer:*')).toHaveLength(1);
    expect((await ask(reader, 'foreign')).headers['x-cache']).toBe('miss');
    await other.stop();
  });
});
