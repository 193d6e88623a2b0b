import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../common/clock.ts';
import { ApiError, invalidParameters } from '../../common/http/errors.ts';
import type { Route } from '../../common/http/route.ts';
import type { KeyLoader } from './key-loader.ts';
import { createKey, listKeys, readNewKey, revokeKey } from './key-table.ts';
import { apiErrorOf } from './clickhouse-errors.ts';

const BODY_LIMIT = 64 * 1024;

/** Keys over HTTP, for admin keys. */
export function keyRoutes({ clickhouse, loader, clock }: { clickhouse: ClickHouse; loader: KeyLoader; clock: Clock }): Route[] {
  const admin = { scope: 'admin', bodyLimit: BODY_LIMIT } as const;
  const told = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw apiErrorOf(error, { parameters: [] });
    }
  };
  return [
    {
      ...admin,
      method: 'POST',
      path: '/api/keys',
      async handle({ body }) {
        let given: unknown;
        try {
          given = JSON.parse(body.toString('utf8'));
        } catch {
          throw new ApiError('invalid_request', 'the body must be JSON: {"name", "scopes", "projects", "expires_at"}');
        }
        const read = readNewKey(given, clock());
        if ('mistakes' in read) throw invalidParameters(read.mistakes);
        const created = await told(createKey(clickhouse, read.key, clock()));
        await loader.refresh();
        return { status: 201, json: created };
      },
    },
    { ...admin, method: 'GET', path: '/api/keys', handle: async () => ({ status: 200, json: { keys: await told(listKeys(clickhouse)) } }) },
    {
      ...admin,
      method: 'DELETE',
      path: '/api/keys/:id',
      async handle({ params }) {
        if (!(await told(revokeKey(clickhouse, params['id'] ?? '', clock())))) throw new ApiError('not_found', 'there is no such key');
        await loader.refresh();
        return { status: 204 };
      },
    },
  ];
}
