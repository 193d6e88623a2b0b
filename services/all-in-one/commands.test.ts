import { expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { readSettings } from '../../common/config/settings.ts';
import type { RouteRequest } from '../../common/http/route.ts';
import { createLogger } from '../../common/logger.ts';
import { commandRoutes } from './commands.ts';

const underWay = '{"topic":"edge_logs","incarnation":0,"partition":2,"rows":7,"first":1,"last":7}\n';

/** The route of backup, beside an engine that answers every read with this. */
function backup(read: () => Promise<string>): (body: object | string) => Promise<{ status: number; json?: unknown }> {
  const clickhouse = { where: 'embedded', read: async () => ({ body: Buffer.from(await read()), readRows: undefined, readBytes: undefined }) } as unknown as ClickHouse;
  const route = commandRoutes({ clickhouse, settings: readSettings({}), logger: createLogger('silent') }).find((r) => r.path === '/api/commands/backup')!;
  return async (body) => await route.handle({ body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)) } as unknown as RouteRequest);
}

test('what a command refuses is told to the operator; what goes wrong is not', async () => {
  await expect(backup(() => Promise.resolve(underWay))({ do: 'create', place: 'x' })).rejects.toMatchObject({ code: 'conflict', status: 409, message: expect.stringContaining('7 rows of edge_logs partition 2 belong to a batch that is under way') as string });
  await expect(backup(() => Promise.reject(new Error('secret')))({ do: 'create', place: 'x' })).rejects.toThrow('secret');
});

test('a body that is no JSON is the mistake of who sent it, and an engine that is away is no mistake of ours', async () => {
  await expect(backup(() => Promise.resolve(''))('{')).rejects.toMatchObject({ code: 'invalid_request', status: 400 });
  const away = backup(() => Promise.reject(new ClickHouseError('connection refused', { code: undefined, codeName: 'ECONNREFUSED', kind: 'retry', outcome: 'unknown' })));
  await expect(away({ do: 'create', place: 'x' })).rejects.toMatchObject({ code: 'unavailable', status: 503 });
});
