import { pino } from 'pino';
import { expect, test } from 'vitest';
import { commands } from '../../cli.ts';
import type { ClickHouse, Read } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { commandRoutes } from '../../common/command/command-routes.ts';
import { COMMAND_TIMEOUT_MS, type CommandContext } from '../../common/command/command.ts';
import { readSettings } from '../../common/config/settings.ts';
import type { Route, RouteRequest } from '../../common/http/route.ts';
import { createLogger } from '../../common/logger.ts';
import { UsageError } from '../../common/errors.ts';
import { ApiError } from '../../common/http/errors.ts';
import { statements } from '../ingest/store/statements.ts';

const routesOf = (context: CommandContext): Route[] => commandRoutes(context, commands);
const inFlight = '{"topic":"edge_logs","incarnation":0,"partition":2,"rows":7,"first":1,"last":7}\n';

/** The route of backup, beside an engine that answers every read with this. */
function backup(read: () => Promise<string>): (body: object | string) => Promise<{ status: number; json?: unknown }> {
  const clickhouse = {
    where: 'embedded',
    read: async () => ({ body: Buffer.from(await read()), readRows: undefined, readBytes: undefined }),
  } as unknown as ClickHouse;
  const route = routesOf({
    clickhouse,
    settings: readSettings({ BACKUP_PLACES: 'local=/nowhere' }),
    logger: createLogger('silent'),
  }).find((r) => r.path === '/api/commands/backup')!;
  return async (body) =>
    await route.handle({
      body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
      key: { id: 'k', projects: [] },
      address: '192.0.2.7',
    } as unknown as RouteRequest);
}

test('the operator sees why a command refuses, but not the text of an unexpected error', async () => {
  await expect(backup(() => Promise.resolve(inFlight))({ action: 'create', place: 'local/x' })).rejects.toMatchObject({
    code: 'conflict',
    status: 409,
    message: expect.stringContaining('7 rows of edge_logs partition 2 belong to a batch in flight') as string,
  });
  await expect(
    backup(() => Promise.reject(new Error('secret')))({ action: 'create', place: 'local/x' }),
  ).rejects.toThrow('secret');
});

test('a body that is no JSON is a 400; the error handler answers for an error of the engine', async () => {
  await expect(backup(() => Promise.resolve(''))('{')).rejects.toMatchObject({ code: 'invalid_request', status: 400 });
  const away = backup(() =>
    Promise.reject(
      new ClickHouseError('connection refused', {
        code: undefined,
        codeName: 'ECONNREFUSED',
        kind: 'retry',
        outcome: 'unknown',
      }),
    ),
  );
  await expect(away({ action: 'create', place: 'local/x' })).rejects.toMatchObject({
    name: 'ClickHouseError',
    kind: 'retry',
  });
});

const routes = routesOf({
  clickhouse: { where: 'embedded' } as unknown as ClickHouse,
  settings: readSettings({}),
  logger: createLogger('silent'),
});
const call = async (name: string, body: unknown): Promise<unknown> => {
  const route = routes.find((r) => r.path === `/api/commands/${name}`)!;
  return await route.handle({
    body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
    key: { id: 'k', projects: [] },
    address: '192.0.2.7',
  } as unknown as RouteRequest);
};
const shapes = [
  null,
  7,
  'x',
  true,
  [],
  [{}],
  { unknown: 1 },
  { action: 'nothing' },
  { do: 'list' },
  { action: null },
  { action: ['create'] },
  '{"__proto__":{"action":"create"}}',
  '[[[[[[[[',
];

test('the connection of a caller stays open for as long as a command line waits for its result', () => {
  expect(new Set(routes.map((r) => r.timeoutMs))).toEqual(new Set([COMMAND_TIMEOUT_MS]));
});

test('once the caller of a replay has left, no further letter begins', async () => {
  const caller = new AbortController();
  const begun: unknown[] = [];
  const read = async ({ sql, params = {} }: Read): Promise<object> => {
    const letters = [1, 2, 3].map((offset) => ({ topic: 't', incarnation: 0, partition: 0, offset: String(offset) }));
    if (sql === statements.deadLetters) return { body: Buffer.from(letters.map((l) => JSON.stringify(l)).join('\n')) };
    begun.push(params['offset']);
    if (begun.length === 2) caller.abort();
    return { body: Buffer.from('') };
  };
  const route = routesOf({
    clickhouse: { where: 'embedded', read } as unknown as ClickHouse,
    settings: readSettings({}),
    logger: createLogger('silent'),
  }).find((r) => r.path === '/api/commands/dead-letters')!;
  await route.handle({
    body: Buffer.from('{"action":"replay_all","filter":{"topic":"t"}}'),
    key: { id: 'k' },
    signal: caller.signal,
  } as unknown as RouteRequest);
  expect(begun).toEqual(['1', '2']);
});

test('every route refuses arguments of a wrong shape before it asks the engine', async () => {
  for (const { path } of routes) {
    const name = path.split('/').at(-1)!;
    for (const shape of [...shapes, ...(name === 'reconcile' ? [] : [{}])]) {
      await expect(call(name, shape), `${name} ${JSON.stringify(shape)}`).rejects.toSatisfy(
        (error) => error instanceof UsageError || (error instanceof ApiError && error.status === 400),
      );
    }
  }
});

test.each<[string, unknown]>([
  ['backup', { action: 'create' }],
  ['backup', { action: 'create', place: '/tmp/x' }],
  ['backup', { action: 'create', place: "S3('http://169.254.169.254/','a','b')" }],
  ['backup', { action: 'create', place: { engine: 'File' } }],
  ['backup', { action: 'create', place: 'local/x', base: 7 }],
  ['backup', { action: 'create', place: 'local/x', database: 'y' }],
  ['backup', { action: 'restore', place: 'local/../../etc' }],
  ['backup', { action: 'restore', place: 'local/x', database: 'a b' }],
  ['backup', { action: 'create', place: 'local/x\n' }],
  ['rollup', { action: 'rebuild', from: -1e300, to: 1e300, rollup: null, acceptLoss: false }],
  ['rollup', { action: 'rebuild', from: 0.5, to: 7, rollup: null, acceptLoss: false }],
  ['rollup', { action: 'rebuild', from: 0, to: 1 }],
  ['rollup', { action: 'rebuild', from: '0', to: 1, rollup: null, acceptLoss: false }],
  ['rollup', { action: 'rebuild', from: 0, to: 4_291_747_201, rollup: null, acceptLoss: false }],
  ['rollup', { action: 'rebuild', from: 5, to: 5, rollup: null, acceptLoss: false }],
  ['rollup', { action: 'rebuild', from: 0, to: 1, rollup: null, acceptLoss: ["x'"] }],
  ['dead-letters', { action: 'list' }],
  ['dead-letters', { action: 'list', filter: null, limit: 1 }],
  ['dead-letters', { action: 'list', filter: {}, limit: 1e300 }],
  ['dead-letters', { action: 'list', filter: { topic: ['a'] }, limit: 1 }],
  ['dead-letters', { action: 'list', filter: { reason: 'x' }, limit: 1 }],
  ['dead-letters', { action: 'show', at: { topic: 't', partition: 0, offset: 7 } }],
  ['dead-letters', { action: 'show', at: { topic: 't', partition: -1, offset: '7' } }],
  ['dead-letters', { action: 'replay_all', filter: {} }],
  ['ingest', { action: 'resume' }],
  ['ingest', { action: 'resume', topic: 't', partition: '0' }],
  ['ingest', { action: 'resume', topic: 't', partition: 1e300 }],
  ['ingest', { action: 'resume', topic: 't\u0000', partition: 0 }],
  ['keys', { action: 'create' }],
  ['keys', { action: 'create', name: 'x', scopes: 'admin', projects: [], expires_at: null }],
  ['keys', { action: 'create', name: 7, scopes: [], projects: [], expires_at: null }],
  ['keys', { action: 'revoke', id: { a: 1 } }],
  ['keys', { action: 'revoke', id: 'x\u0000' }],
  ['endpoints', { action: 'run' }],
  ['endpoints', { action: 'run', endpoint: 'logs.all' }],
  ['endpoints', { action: 'run', endpoint: ['logs.all'], parameters: {} }],
  ['endpoints', { action: 'run', endpoint: 'logs.all', parameters: { project: 7 } }],
  ['endpoints', { action: 'run', endpoint: 'logs.all', parameters: [] }],
  ['reconcile', { more: true }],
])('%s refuses the wrong values %j', async (name, args) => {
  const error: unknown = await call(name, args).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(UsageError);
  expect((error as Error).message).not.toMatch(/169\.254|etc|1e\+?300/);
});

test('a call names its action and object for the audit line, and a failed call logs a line with key and address', async () => {
  const lines: string[] = [];
  const read = (): Promise<object> =>
    Promise.resolve({ body: Buffer.from(''), readRows: undefined, readBytes: undefined });
  const logger = pino(
    { level: 'info' },
    {
      write: (line: string) => {
        lines.push(line);
      },
    },
  );
  const of = routesOf({
    clickhouse: { where: 'embedded', read } as unknown as ClickHouse,
    settings: readSettings({ BACKUP_PLACES: 'local=/nowhere' }),
    logger,
  });
  const request = (args: object): RouteRequest =>
    ({
      body: Buffer.from(JSON.stringify(args)),
      key: { id: 'k', projects: [] },
      address: '192.0.2.7',
    }) as unknown as RouteRequest;
  const paused = await of.find((r) => r.path.endsWith('/ingest'))!.handle(request({ action: 'paused' }));
  expect(paused).toEqual({
    status: 200,
    json: { result: { paused: [] } },
    audit: { command: 'ingest', action: 'paused' },
  });
  expect(lines).toEqual([]);
  await expect(
    of.find((r) => r.path.endsWith('/backup'))!.handle(request({ action: 'create', place: 'other/x' })),
  ).rejects.toMatchObject({ status: 409 });
  expect(lines.map((line) => JSON.parse(line) as object)).toEqual([
    expect.objectContaining({
      msg: 'command_failed',
      command: 'backup',
      action: 'create',
      place: 'other/x',
      key_id: 'k',
      address: '192.0.2.7',
    }),
  ]);
});
