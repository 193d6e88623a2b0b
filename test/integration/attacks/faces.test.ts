import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueryService } from '../../../services/query/service.ts';
import { API_KEY, modes, openEngine, send, startService, type Engine } from '../query/service.ts';

/** What an answer lets browsers and strangers do. */
let engine: Engine;
let service: QueryService;
const admin = { 'x-api-key': API_KEY };

/** Everything that comes back for these bytes until the other side ends the connection. */
const raw = (text: string): Promise<string> =>
  new Promise((resolve) => {
    const socket = connect(Number(new URL(service.address).port), '127.0.0.1', () => socket.write(text));
    let answer = '';
    socket.on('data', (chunk: Buffer) => {
      answer += chunk.toString();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(answer));
  });

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode);
    const page = { method: 'GET', path: '/page/:file', bodyLimit: 1, handle: async () => ({ status: 200 }) } as const;
    service = await startService(engine.clickhouse, engine.dataDir, {}, { routes: [page] });
    await service.ready;
  });
  afterAll(async () => {
    await service?.stop();
    await engine?.close();
  });

  it.each([
    ['/livez', 200],
    ['/metrics', 200],
    ['/docs', 200],
    ['/openapi.json', 200],
    ['/nothing', 404],
    ['/api/keys', 401],
    ['/api/endpoints/logs.all?project=p', 401],
  ])('%s is not sniffed and not framed', async (path, status) => {
    const { status: got, headers } = await send(service.address, path);
    expect([got, headers['x-content-type-options']]).toEqual([status, 'nosniff']);
    expect(headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(headers['content-security-policy']).toContain("default-src 'none'");
  });

  it.each([
    ['/api/endpoints/logs.all?project=p', '*'],
    ['/endpoints/query/logs.all?project=p', '*'],
    ['/openapi.json', '*'],
    ['/metrics', undefined],
    ['/api/keys', undefined],
    ['/api/keys/x', undefined],
    ['/api/%6beys', undefined],
    ['/readyz', undefined],
    ['/docs', undefined],
    ['/page/of-the-service', undefined],
  ])('a page elsewhere reads %s: %s', async (path, origin) => {
    for (const [method, headers] of [
      ['GET', admin],
      ['GET', {}],
      ['OPTIONS', { 'access-control-request-method': 'GET' }],
    ] as const) {
      const reply = await send(service.address, path, {
        method,
        headers: { ...headers, origin: 'https://app.example' },
      });
      expect([method, reply.headers['access-control-allow-origin']]).toEqual([method, origin]);
      if (method === 'OPTIONS')
        expect([reply.status, reply.headers['access-control-allow-methods'] !== undefined]).toEqual([
          204,
          origin !== undefined,
        ]);
    }
  });

  describe('an error has the envelope', () => {
    it.each([
      [
        'without Host',
        `GET /api/endpoints/logs.all?project=p HTTP/1.1\r\nX-API-KEY: ${API_KEY}\r\nConnection: close\r\n\r\n`,
        400,
        'invalid_request',
      ],
      [
        'without Host and key',
        'GET /api/endpoints/logs.all HTTP/1.1\r\nConnection: close\r\n\r\n',
        401,
        'unauthorized',
      ],
      [
        'with an expectation and without a key',
        'GET /api/endpoints/logs.all HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\nConnection: close\r\n\r\n',
        401,
        'unauthorized',
      ],
      ['of a line that is no HTTP', 'nonsense\r\n\r\n', 400, 'invalid_request'],
      ['of bytes that are no HTTP', '\u0016\u0003\u0001 TLS HTTP/1', 400, 'invalid_request'],
      ['of an unknown method', 'BREW /api/keys HTTP/1.1\r\nHost: x\r\n\r\n', 405, 'method_not_allowed'],
      ['of CONNECT', 'CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n', 405, 'method_not_allowed'],
      [
        'of headers that are too large',
        `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(50_000)}\r\n\r\n`,
        431,
        'too_large',
      ],
    ])('%s', async (_, request, status, code) => {
      const answer = await raw(request);
      expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
      const { error } = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as { error: Record<string, unknown> };
      expect(error).toMatchObject({
        code,
        status,
        request_id: expect.stringMatching(/./) as string,
        message: expect.stringMatching(/./) as string,
      });
    });

    it('a method that no path takes is answered with those that some path takes', async () => {
      for (const request of ['BREW / HTTP/1.1\r\n\r\n', 'CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n'])
        expect(await raw(request)).toContain('\r\nallow: GET, HEAD, POST, DELETE, OPTIONS\r\n');
    });

    it('an address that is not percent-encoded is refused with the reason', async () => {
      for (const path of ['/api/keys?name=é', '/é'])
        expect(await raw(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`)).toContain(
          '"message":"the address is not valid: characters beyond ASCII must be percent-encoded"',
        );
    });

    it('a caller that resets its CONNECT stops nobody', async () => {
      for (let i = 0; i < 20; i++)
        await new Promise((resolve) => {
          const socket = connect(Number(new URL(service.address).port), '127.0.0.1', () => {
            socket.write('CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n', () => socket.resetAndDestroy());
          });
          socket.on('error', () => undefined).once('close', resolve);
        });
      expect((await send(service.address, '/livez')).status).toBe(200);
    });

    it('HTTP/1.0 needs no Host', async () => {
      expect(await raw(`GET /api/endpoints/logs.all?project=p HTTP/1.0\r\nX-API-KEY: ${API_KEY}\r\n\r\n`)).toMatch(
        /^HTTP\/1\.1 200 /,
      );
    });
  });

  it('operators alone are told of their own paths', async () => {
    const { key } = JSON.parse(
      (
        await send(service.address, '/api/keys', {
          method: 'POST',
          headers: admin,
          body: '{"name":"q","scopes":["query"]}',
        })
      ).text,
    ) as { key: string };
    for (const [headers, shown] of [
      [{}, false],
      [{ 'x-api-key': key }, false],
      [{ 'x-api-key': 'wrong' }, false],
      [admin, true],
    ] as const) {
      const { paths } = JSON.parse((await send(service.address, '/openapi.json', { headers })).text) as {
        paths: Record<string, object>;
      };
      expect([Object.keys(paths['/api/keys'] ?? {}), Object.keys(paths['/api/keys/{id}'] ?? {})]).toEqual(
        shown ? [['post', 'get'], ['delete']] : [[], []],
      );
      expect((await send(service.address, '/docs', { headers })).text.includes('/api/keys')).toBe(shown);
    }
  });

  it('every operation has a name of its own that is an identifier, and says that it may refuse a key', async () => {
    const { paths } = JSON.parse((await send(service.address, '/openapi.json', { headers: admin })).text) as {
      paths: Record<string, Record<string, { operationId?: string; responses: Record<string, unknown> }>>;
    };
    const operations = Object.values(paths).flatMap((of) => Object.values(of));
    const names = operations.map(({ operationId = '' }) => operationId);
    expect(names.filter((name) => !/^[A-Za-z_]\w*$/.test(name))).toEqual([]);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain('revokeKey');
    for (const { responses } of operations)
      expect(Object.keys(responses)).toEqual(expect.arrayContaining(['401', '429']));
  });

  describe('a call', () => {
    const logs = (query: string, headers: Record<string, string> = {}): ReturnType<typeof send> =>
      send(service.address, `/api/endpoints/functions.invocation-stats?${query}`, {
        headers: { ...admin, ...headers },
      });

    it('is told which of its parameters were ignored, on errors too', async () => {
      expect((await logs('project=p&limit=1&x%0d%0ay=1&x%0d%0ay=2&api_key=k')).headers['x-ignored-parameters']).toBe(
        'limit, x%0D%0Ay',
      );
      const refused = await logs('projekt=p');
      expect([refused.status, refused.headers['x-ignored-parameters']]).toEqual([400, 'projekt']);
      expect((await logs('project=p')).headers['x-ignored-parameters']).toBeUndefined();
      const many = Array.from({ length: 500 }, (_, i) => `parameter${i}=`).join('&');
      const { length } = (await logs(`project=p&${many}`)).headers['x-ignored-parameters']!;
      expect([length > 900, length <= 1_000]).toEqual([true, true]);
    });

    it('gets CSV or lines where it prefers them and there are such', async () => {
      const json = await logs('project=p&interval=7day');
      const lines = await logs('project=p&interval=7day', { accept: 'application/x-ndjson' });
      const csv = await logs('project=p&interval=7day', { accept: 'text/csv, application/json;q=0.9' });
      expect(
        lines.text
          .trimEnd()
          .split('\n')
          .map((line) => JSON.parse(line) as unknown),
      ).toEqual(json.rows);
      expect([lines.headers['content-type'], csv.headers['content-type']]).toEqual([
        'application/x-ndjson; charset=utf-8',
        'text/csv; charset=utf-8; header=present',
      ]);
      const [head, ...rows] = csv.text.split('\r\n');
      expect([head, rows.length, rows[0]]).toEqual([
        Object.keys(json.rows[0] ?? {}).join(','),
        9,
        `${String(json.rows[0]?.['timestamp'])},,,,,,0,0`,
      ]);
      expect(new Set([json, lines, csv].map(({ headers }) => headers['etag'])).size).toBe(3);
      expect([json.headers['vary'], csv.headers['vary']]).toEqual([
        'X-API-KEY, Authorization, Accept-Encoding, Origin',
        'X-API-KEY, Authorization, Accept-Encoding, Origin, Accept',
      ]);
      expect(
        (await logs('project=p&interval=7day', { accept: 'text/csv', 'if-none-match': csv.headers['etag'] ?? '' }))
          .status,
      ).toBe(304);
      for (const accept of [
        '*/*',
        'application/json',
        'text/html,*/*;q=0.8',
        'text/csv;q=0',
        'application/json, text/csv',
      ])
        expect((await logs('project=p', { accept })).headers['content-type']).toBe('application/json; charset=utf-8');
      // nested columns are no CSV
      const nested = await send(service.address, '/api/endpoints/logs.all?project=p', {
        headers: { ...admin, accept: 'text/csv' },
      });
      expect(nested.headers['content-type']).toBe('application/json; charset=utf-8');
    });
  });
});
