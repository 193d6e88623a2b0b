import { Writable } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { commandRoutes } from '../../../common/command/command-routes.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { keysCommand } from '../../../services/query/commands/keys.ts';
import { createKey } from '../../../services/query/keys/key-table.ts';
import type { QueryService } from '../../../services/query/service.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { API_KEY, modes, openEngine, send, startService, type Engine, type Reply } from '../query/service.ts';

/** Who guesses keys, and who has one that is limited. */
let engine: Engine;
let service: QueryService;
let lines: string[] = [];

async function start(settings: Record<string, string> = {}): Promise<void> {
  lines = [];
  const logger = pino(
    { level: 'info' },
    new Writable({
      write: (chunk: Buffer, _, done) => {
        lines.push(chunk.toString());
        done();
      },
    }),
  );
  const context = { clickhouse: engine.clickhouse, settings: readSettings({}), logger };
  const routes = commandRoutes(context, [keysCommand]);
  service = await startService(engine.clickhouse, engine.dataDir, settings, { logger, routes });
  await service.ready;
}
const ask = (key: string, path = '/api/endpoints/logs.all?project=p', from = ''): Promise<Reply> =>
  send(service.address, path, {
    headers: { ...(key !== '' && { 'x-api-key': key }), ...(from !== '' && { 'x-forwarded-for': from }) },
  });
const ten = <T>(from: number, make: (guess: string) => T): T[] =>
  Array.from({ length: 10 }, (_, i) => make(`guess${from + i}`));
const metric = async (name: string): Promise<number> =>
  Number(new RegExp(`^${name} (\\d+)$`, 'm').exec((await send(service.address, '/metrics')).text)?.[1]);
const logged = (event: string): Record<string, unknown>[] =>
  lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ msg }) => msg === event);

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
  });
  afterEach(() => service?.stop());
  afterAll(() => engine?.close());

  describe('an address that guesses', () => {
    it('gets one and the same answer once it is blocked, for a right key too, on every guarded path', async () => {
      await start({ TRUST_PROXY: '1' });
      const statuses: number[] = [];
      // each waits for the newest keys, so one after the other takes 15 s
      for (let i = 0; i < 60; i += 10)
        for (const { status } of await Promise.all(ten(i, (guess) => ask(guess, undefined, '192.0.2.1'))))
          statuses.push(status);
      expect(new Set(statuses)).toEqual(new Set([401]));
      const told = async (key: string, path?: string): Promise<unknown[]> => {
        const { status, error, headers } = await ask(key, path, '192.0.2.1');
        return [
          status,
          error.code,
          error.message,
          Number(headers['retry-after']) > 0 && Number(headers['retry-after']) <= 60,
        ];
      };
      const blocked = [429, 'rate_limited', 'too many requests without a valid key came from this address', true];
      for (const path of [
        undefined,
        '/api/nothing',
        '/api/keys',
        '/endpoints/query/logs.all',
        '/%61pi/endpoints/logs.all',
      ])
        expect([path, await told('wrong', path), await told(API_KEY, path), await told('', path)]).toEqual([
          path,
          blocked,
          blocked,
          blocked,
        ]);
      // others are not
      expect((await ask(API_KEY, undefined, '192.0.2.2')).status).toBe(200);
      // and what needs no key still needs none; a key does not show there either
      const docs = await Promise.all(
        [API_KEY, 'wrong', ''].map(async (key) => (await ask(key, '/docs', '192.0.2.1')).text),
      );
      expect(new Set(docs).size).toBe(1);
      expect([
        await metric('sluice_query_addresses_blocked_total'),
        (await metric('sluice_query_blocked_requests_total')) >= 15,
      ]).toEqual([1, true]);
      expect(logged('address_blocked').map(({ address }) => address)).toEqual(['192.0.2.1']);
      expect(
        logged('request_refused')
          .filter(({ code }) => code === 'unauthorized')
          .every(({ address }) => address === '192.0.2.1'),
      ).toBe(true);
    });

    it('counts guesses that come at once, and those on pages that need no key', async () => {
      await start({ TRUST_PROXY: '1' });
      const replies = await Promise.all(
        Array.from({ length: 200 }, (_, i) => ask(`guess${i}`, undefined, '192.0.2.3')),
      );
      expect(replies.filter(({ status }) => status === 401).length).toBeLessThanOrEqual(60);
      expect(replies.every(({ status }) => status === 401 || status === 429)).toBe(true);
      for (let i = 0; i < 60; i += 10) await Promise.all(ten(i, (guess) => ask(guess, '/docs', '192.0.2.4')));
      expect((await ask(API_KEY, undefined, '192.0.2.4')).status).toBe(429);
    });
  });

  describe('a key that is limited to projects', () => {
    it('counts as a pattern only what is a literal reference, however short its entry is', async () => {
      await start();
      const reference = 'abcdefghijklmnopqrst';
      const projects = [
        'e',
        '_',
        '0',
        'supabase',
        reference.slice(1),
        `${reference}x`,
        reference.toUpperCase(),
        'abcdefghijklmnopqrs0',
        reference,
      ];
      const { key } = await createKey(
        engine.clickhouse,
        { name: 'limited', scopes: ['query'], projects, expiresAt: undefined },
        Date.now(),
      );
      for (const project of projects) {
        const counts = await ask(key, `/api/endpoints/usage.api-counts?interval=daily&project=${project}`);
        expect([project, counts.status]).toEqual([project, project === reference ? 200 : 403]);
        // exact elsewhere
        expect((await ask(key, `/api/endpoints/functions.invocation-stats?project=${project}`)).status).toBe(200);
      }
    });
  });

  it('keys that are made, rotated and revoked leave a line with the key that did it and its address, and no key', async () => {
    await start();
    const post = (path: string, body: string, method = 'POST', key = API_KEY): Promise<Reply> =>
      send(service.address, path, { method, headers: { 'x-api-key': key }, body });
    const made = JSON.parse((await post('/api/keys', '{"name":"audited","scopes":["query"]}')).text) as {
      id: string;
      key: string;
    };
    const rotation = JSON.stringify({ action: 'rotate', id: made.id, overlapSeconds: 60 });
    expect((await post('/api/commands/keys', rotation, 'POST', made.key)).status).toBe(403);
    const { result: rotated } = JSON.parse((await post('/api/commands/keys', rotation)).text) as {
      result: { id: string; key: string };
    };
    await post(`/api/keys/${rotated.id}`, '', 'DELETE');
    await waitFor(() => logged('admin_action').length === 3, 5_000, 'three lines');
    const by = { key_id: 'first', address: '127.0.0.1' };
    expect(logged('admin_action')).toMatchObject([
      {
        ...by,
        method: 'POST',
        path: '/api/keys',
        outcome: 'done',
        status: 201,
        action: 'key_created',
        created_id: made.id,
        scopes: ['query'],
      },
      { ...by, path: '/api/commands/keys', action: 'rotate', id: made.id, created_id: rotated.id },
      { ...by, method: 'DELETE', action: 'key_revoked', revoked_id: rotated.id, status: 204 },
    ]);
    for (const secret of [API_KEY, made.key, rotated.key]) expect(lines.join('')).not.toContain(secret);
  });

  it('a POST or DELETE with an admin key that fails leaves a line too', async () => {
    await start();
    const headers = { 'x-api-key': API_KEY };
    expect((await send(service.address, '/api/keys', { method: 'POST', headers, body: '{}' })).status).toBe(400);
    expect((await send(service.address, '/api/keys/none', { method: 'DELETE', headers })).status).toBe(404);
    await waitFor(() => logged('admin_action').length === 2, 5_000, 'two lines');
    expect(logged('admin_action')).toMatchObject([
      { key_id: 'first', method: 'POST', path: '/api/keys', outcome: 'failed', status: 400 },
      { key_id: 'first', method: 'DELETE', path: '/api/keys/:id', outcome: 'failed', status: 404, code: 'not_found' },
    ]);
  });

  it('a short API_KEY is warned of where only this machine reaches it', async () => {
    await start({ API_KEY: 'short' });
    expect(logged('api_key_short')).toMatchObject([{ characters: 5, wanted: 16 }]);
  });
});
