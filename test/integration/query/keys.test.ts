import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../common/clock.ts';
import type { CommandContext } from '../../../common/command/command.ts';
import { UsageError } from '../../../common/errors.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { keysCommand } from '../../../services/query/commands/keys.ts';
import type { CreatedKey } from '../../../common/listed-key.ts';
import { readKeys, rotateKey } from '../../../services/query/keys/key-table.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { argsOf } from '../../harness/command.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, logger, openEngine, send, startService, type Engine } from './service.ts';

/** Keys from their making to their end, over two processes that share nothing but ClickHouse. */
let engine: Engine;
let services: [QueryService, QueryService];
let context: CommandContext;
let later = 0;
const clock = (): number => systemClock() + later;

beforeAll(async () => {
  engine = await openEngine('server');
  services = [
    await startService(engine.clickhouse, engine.dataDir, {}, { clock }),
    await startService(engine.clickhouse, engine.dataDir, {}, { clock }),
  ];
  await Promise.all(services.map((s) => s.ready));
  context = { clickhouse: engine.clickhouse, settings: readSettings({ API_KEY }), logger };
});
afterAll(async () => {
  await Promise.all(services?.map((s) => s.stop()) ?? []);
  await engine?.close();
});

const status = async (service: QueryService, key: string): Promise<number> =>
  (await send(service.address, '/api/endpoints/logs.all?project=p', { headers: { 'x-api-key': key } })).status;
async function create(body: object): Promise<CreatedKey> {
  const reply = await send(services[0].address, '/api/keys', {
    method: 'POST',
    headers: { 'x-api-key': API_KEY },
    body: JSON.stringify(body),
  });
  expect(reply.status).toBe(201);
  return JSON.parse(reply.text) as CreatedKey;
}
const revoke = (id: string): Promise<{ status: number }> =>
  send(services[0].address, `/api/keys/${id}`, { method: 'DELETE', headers: { 'x-api-key': API_KEY } });
async function list(): Promise<Record<string, unknown>[]> {
  const reply = await send(services[1].address, '/api/keys', { headers: { 'x-api-key': API_KEY } });
  return (JSON.parse(reply.text) as { keys: Record<string, unknown>[] }).keys;
}

describe('a key', () => {
  it('is shown once, works everywhere at once, and ends everywhere within 10 s', async () => {
    const made = await create({ name: 'a caller', scopes: ['query'] });
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
      key: expect.stringMatching(/^sluice_[A-Za-z0-9_-]{43}$/) as string,
      name: 'a caller',
      scopes: ['query'],
      projects: [],
      expires_at: null,
    });
    expect([await status(services[0], made.key), await status(services[1], made.key)]).toEqual([200, 200]);
    expect((await revoke(made.id)).status).toBe(204);
    expect(await status(services[0], made.key)).toBe(401);
    await waitFor(async () => (await status(services[1], made.key)) === 401, 10_000, 'the other process refuses it');
    expect((await revoke(made.id)).status).toBe(404);
    expect((await list()).some((k) => k['id'] === made.id)).toBe(false);
  });

  it('that a process has not loaded yet does not block its address, however many calls bring it at once', async () => {
    const made = await create({ name: 'a crowd', scopes: ['query'] });
    // 404 is for those who are let in, and takes no slot of a query
    const headers = { 'x-api-key': made.key };
    const ask = async () => (await send(services[1].address, '/api/nothing', { headers })).status;
    expect(new Set(await Promise.all(Array.from({ length: 80 }, ask)))).toEqual(new Set([404]));
    expect(await ask()).toBe(404);
    const { text } = await send(services[1].address, '/metrics');
    expect(/^sluice_query_addresses_blocked_total (\d+)$/m.exec(text)?.[1]).toBe('0');
  });

  it('is in the table as a hash only', async () => {
    const made = await create({ name: 'hashed', scopes: ['query'] });
    const rows = (
      await engine.clickhouse.read({ sql: 'SELECT * FROM api_keys', format: 'JSONEachRow' })
    ).body.toString();
    expect(rows).toContain('hashed');
    expect(rows).not.toContain(made.key);
    expect(rows).not.toContain(made.key.slice(7, 30));
  });

  it('expires', async () => {
    const made = await create({
      name: 'brief',
      scopes: ['query'],
      expires_at: new Date(clock() + 60_000).toISOString(),
    });
    expect(await status(services[1], made.key)).toBe(200);
    later += 61_000;
    expect([await status(services[0], made.key), await status(services[1], made.key)]).toEqual([401, 401]);
  });

  it('may expire as late as a timestamp can say', async () => {
    const made = await create({ name: 'for good', scopes: ['query'], expires_at: '9999-12-31T23:59:59.999Z' });
    expect(made.expires_at).toBe('9999-12-31T23:59:59.999Z');
    expect((await list()).find((k) => k['id'] === made.id)?.['expires_at']).toBe(made.expires_at);
    expect([await status(services[0], made.key), await status(services[1], made.key)]).toEqual([200, 200]);
  });

  it('tells when it was used last', async () => {
    const made = await create({ name: 'used', scopes: ['query'] });
    expect((await list()).find((k) => k['id'] === made.id)?.['last_used_at']).toBeNull();
    let notes = 0;
    const third = await startService(
      {
        ...engine.clickhouse,
        execute: async (statement) => {
          if (statement.sql.includes('last_used_at')) notes++;
          await engine.clickhouse.execute(statement);
        },
      },
      engine.dataDir,
      {},
      { clock },
    );
    await third.ready;
    for (let i = 0; i < 20; i++) expect(await status(third, made.key)).toBe(200);
    await third.stop();
    // of many uses one, when the minute is over or the service stops
    expect(notes).toBe(1);
    expect(Date.parse(String((await list()).find((k) => k['id'] === made.id)?.['last_used_at']))).toBeGreaterThan(
      clock() - 60_000,
    );
  });

  it('that was used after it was revoked stays revoked', async () => {
    const made = await create({ name: 'late', scopes: ['query'] });
    const third = await startService(engine.clickhouse, engine.dataDir, {}, { clock });
    await third.ready;
    await status(third, made.key);
    await revoke(made.id);
    await third.stop();
    expect((await list()).some((k) => k['id'] === made.id)).toBe(false);
    expect(await status(services[0], made.key)).toBe(401);
  });

  it('that was revoked stays revoked for a clock that is behind', async () => {
    const made = await create({ name: 'behind', scopes: ['query'] });
    await revoke(made.id);
    const behind = await readKeys(engine.clickhouse, clock() - 3_600_000);
    expect(behind.some(({ id }) => id === made.id)).toBe(false);
  });

  it('that was replaced can be revoked by a process whose clock is past its end', async () => {
    const old = await create({ name: 'replaced', scopes: ['query'] });
    await rotateKey(engine.clickhouse, old.id, 60, clock());
    later += 61_000;
    expect((await revoke(old.id)).status).toBe(204);
    const behind = await readKeys(engine.clickhouse, clock() - 61_000);
    expect(behind.some(({ id }) => id === old.id)).toBe(false);
  });

  it('gives its place to another, and both are valid everywhere for the time that was asked for', async () => {
    const old = await create({ name: 'rotated', scopes: ['query', 'ingest'], projects: ['p'] });
    const rotate = (id: string, overlap: number) => rotateKey(engine.clickhouse, id, overlap, clock());
    const made = (await rotate(old.id, 3_600))!;
    const endsAt = made.replaces.expires_at!;
    expect(Math.abs(Date.parse(endsAt) - clock() - 3_600_000)).toBeLessThan(30_000);
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
      key: expect.stringMatching(/^sluice_/) as string,
      name: 'rotated',
      scopes: ['ingest', 'query'],
      projects: ['p'],
      expires_at: null,
      replaces: { id: old.id, expires_at: endsAt },
    });
    expect(made.key).not.toBe(old.key);
    for (const service of services)
      expect([await status(service, old.key), await status(service, made.key)]).toEqual([200, 200]);
    expect((await list()).find((k) => k['id'] === old.id)?.['expires_at']).toBe(endsAt);
    // the same call again, because its answer was lost: what replaces the key does not end with it
    const again = await rotate(old.id, 7_200);
    expect([again?.expires_at, again?.replaces]).toEqual([null, { id: old.id, expires_at: endsAt }]);
    later += 3_500_000;
    expect(await status(services[0], old.key)).toBe(200);
    later += 101_000;
    for (const service of services)
      expect([await status(service, old.key), await status(service, made.key)]).toEqual([401, 200]);
    expect((await list()).some((k) => k['id'] === old.id)).toBe(false);
    expect([await rotate(old.id, 1), await rotate('first', 1)]).toEqual([undefined, undefined]);

    // at once, and not beyond its own expiry
    const brief = await create({
      name: 'brief',
      scopes: ['query'],
      expires_at: new Date(clock() + 600_000).toISOString(),
    });
    const replaced = await rotate(brief.id, 3_600);
    expect([replaced?.expires_at, replaced?.replaces.expires_at]).toEqual([brief.expires_at, brief.expires_at]);
    const last = (await rotate(made.id, 0))!;
    await waitFor(async () => (await status(services[0], made.key)) === 401, 10_000, 'the end of the old key');
    expect(await status(services[0], last.key)).toBe(200);
  });

  it('is rotated by command', async () => {
    const old = await create({ name: 'by command', scopes: ['query'] });
    const result = await keysCommand.run(context, argsOf(keysCommand, 'rotate', old.id, '--overlap', '0'));
    const made = result as CreatedKey;
    expect([
      made.name,
      keysCommand.print(result).toString().startsWith(`${made.key}\n`),
      keysCommand.exitCode?.(result),
    ]).toEqual(['by command', true, 0]);
    expect(await status(services[1], made.key)).toBe(200);
    await waitFor(async () => (await status(services[1], old.key)) === 401, 10_000, 'the old one has ended');
    expect(keysCommand.exitCode?.(await keysCommand.run(context, argsOf(keysCommand, 'rotate', old.id)))).toBe(1);
    for (const words of ['rotate', 'rotate a --overlap x', 'rotate a --overlap=-1', 'rotate a b'])
      expect(() => argsOf(keysCommand, ...words.split(' '))).toThrow(UsageError);
  });

  it('is made, listed and revoked by command too', async () => {
    const args = argsOf(
      keysCommand,
      ...'create --name command --scope query:logs.all --scope ingest,query --project p'.split(' '),
    );
    const result = await keysCommand.run(context, args);
    const made = result as CreatedKey;
    expect(made).toMatchObject({
      name: 'command',
      scopes: ['query:logs.all', 'ingest', 'query'],
      projects: ['p'],
      expires_at: null,
    });
    expect(await status(services[1], made.key)).toBe(200);
    const listed = await keysCommand.run(context, argsOf(keysCommand, 'list'));
    expect(keysCommand.print(listed)).toContain('command');
    expect(keysCommand.print(listed)).not.toContain(made.key);
    expect(keysCommand.exitCode?.(await keysCommand.run(context, argsOf(keysCommand, 'revoke', made.id)))).toBe(0);
    expect(keysCommand.exitCode?.(await keysCommand.run(context, argsOf(keysCommand, 'revoke', made.id)))).toBe(1);
    await waitFor(async () => (await status(services[1], made.key)) === 401, 10_000, 'it has ended');
    for (const words of [
      '',
      'list x',
      'list --name n',
      'revoke',
      'create --name n',
      'create --name n --scope root',
      'create --name n --scope query --expires soon',
    ])
      expect(() => argsOf(keysCommand, ...words.split(' '))).toThrow(UsageError);
  });
});

describe('with ClickHouse away', () => {
  it('keys go on for an hour, API_KEY always; before the first list it is 503', async () => {
    const made = await create({ name: 'on', scopes: ['query'] });
    expect(await status(services[1], made.key)).toBe(200);
    await engine.face?.down();
    const cached = async (service: QueryService, key: string): Promise<number> =>
      (await send(service.address, '/api/endpoints/nothing', { headers: { 'x-api-key': key } })).status;
    expect([
      await cached(services[0], made.key),
      await cached(services[1], made.key),
      await cached(services[1], 'unknown'),
    ]).toEqual([404, 404, 401]);
    const fresh = await startService(engine.clickhouse, engine.dataDir, {}, { clock, schema: Promise.resolve() });
    expect([await cached(fresh, made.key), await cached(fresh, 'unknown'), await cached(fresh, API_KEY)]).toEqual([
      503, 503, 404,
    ]);
    expect((await send(fresh.address, '/api/endpoints/nothing')).status).toBe(401);
    expect(JSON.parse((await send(fresh.address, '/readyz')).text)).toMatchObject({
      checks: { keys: 'are not loaded yet', endpoints: expect.stringMatching(/^are not checked yet( \(\w+\))?$/) },
    });
    later += 3_590_000;
    expect(await cached(services[0], made.key)).toBe(404);
    later += 20_000;
    expect([await cached(services[0], made.key), await cached(services[0], API_KEY)]).toEqual([503, 404]);
    expect((await send(services[0].address, '/api/keys', { headers: { 'x-api-key': API_KEY } })).status).toBe(503);
    await engine.face?.up();
    await waitFor(async () => (await cached(services[0], made.key)) === 404, 10_000, 'the list is loaded again');
    await fresh.ready;
    await waitFor(async () => (await cached(fresh, made.key)) === 404, 10_000, 'the list is loaded');
    await fresh.stop();
  });
});

it('no key is ever logged', async () => {
  let lines = '';
  const log = pino(
    { level: 'trace' },
    new Writable({
      write: (chunk: Buffer, _, done) => {
        lines += chunk.toString();
        done();
      },
    }),
  );
  const made = await create({ name: 'secret', scopes: ['query'] });
  const service = await startService(engine.clickhouse, engine.dataDir, { LOG_LEVEL: 'trace' }, { clock, logger: log });
  await service.ready;
  for (const key of [made.key, API_KEY, 'a-wrong-key-of-somebody']) {
    await send(service.address, `/api/endpoints/logs.all?project=hidden-project&api_key=${key}`);
    await send(service.address, `/api/endpoints/usage.api-counts?project=(hidden-pattern&interval=daily`, {
      headers: { authorization: `Bearer ${key}` },
    });
    await send(service.address, '/api/endpoints/nothing', { headers: { 'x-api-key': key } });
  }
  await engine.face?.inject({ action: 'error', code: 999, match: 'execution_quantiles' });
  const failed = await send(service.address, '/api/endpoints/functions.invocation-stats?project=hidden-project', {
    headers: { 'x-api-key': API_KEY },
  });
  await engine.face?.inject({ action: 'error', code: 1, match: 'execution_quantiles' });
  expect(
    (
      await send(
        service.address,
        `/api/endpoints/functions.invocation-stats?project=hidden-project&api_key=${made.key}`,
      )
    ).status,
  ).toBe(500);
  const refused = await send(service.address, '/api/endpoints/logs.all?project=hidden-project', {
    headers: { 'x-request-id': 'of-the-caller' },
  });
  await service.stop();
  const logged = lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  expect([failed.headers['x-request-id'], failed.error.code]).toEqual([failed.error.request_id, 'unavailable']);
  expect(logged.filter((l) => l['request_id'] === failed.error.request_id)).toEqual([
    expect.objectContaining({
      msg: 'request_failed',
      code: 'unavailable',
      clickhouse_code: 999,
      endpoint: 'functions.invocation-stats',
      key_id: 'first',
    }),
    expect.objectContaining({ msg: 'request_answered', status: 503 }),
  ]);
  expect(
    logged.filter((l) => l['request_id'] === refused.error.request_id).map((l) => [l['request_id'], l['msg']]),
  ).toEqual([
    ['of-the-caller', 'request_refused'],
    ['of-the-caller', 'request_answered'],
  ]);
  for (const secret of [made.key, API_KEY, 'a-wrong-key-of-somebody', 'hidden-project', 'hidden-pattern'])
    expect(lines).not.toContain(secret);
});
