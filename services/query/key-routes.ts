import type { Clock } from '../../common/clock.ts';
import type { Route } from './app.ts';
import { ApiError, invalidParameters } from './errors.ts';
import { readNewKey, type KeyStore } from './key-store.ts';
import { apiErrorOf } from './clickhouse-errors.ts';

const BODY_LIMIT = 64 * 1024;

/** Keys over HTTP, for admin keys. */
export function keyRoutes(store: KeyStore, clock: Clock): Route[] {
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
        return { status: 201, json: await told(store.create(read.key)) };
      },
    },
    { ...admin, method: 'GET', path: '/api/keys', handle: async () => ({ status: 200, json: { keys: await told(store.list()) } }) },
    {
      ...admin,
      method: 'DELETE',
      path: '/api/keys/:id',
      async handle({ params }) {
        if (!(await told(store.revoke(params['id'] ?? '')))) throw new ApiError('not_found', 'there is no such key');
        return { status: 204 };
      },
    },
  ];
}
