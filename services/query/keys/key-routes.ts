import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { ApiError, invalidParameters, readJson } from '../../../common/http/errors.ts';
import { sharedAnswers } from '../../../common/http/operation.ts';
import type { Route } from '../../../common/http/route.ts';
import type { KeyLoader } from './key-loader.ts';
import { createKey, listKeys, readNewKey, revokeKey } from './key-table.ts';

const BODY_LIMIT = 64 * 1024;

/** Returns the documented answers of an operation: its success and these errors. */
const answers = (success: object, ...errors: readonly number[]): object => ({
  ...success,
  ...sharedAnswers(...errors, 401, 403, 429, 500, 503),
});

/** Keys over HTTP. One is rotated by the command `keys` alone, which a service runs too (command-routes.ts). */
export function keyRoutes(clickhouse: ClickHouse, loader: KeyLoader, clock: Clock): Route[] {
  const admin = { scope: 'admin', bodyLimit: BODY_LIMIT } as const;
  return [
    {
      ...admin,
      method: 'POST',
      path: '/api/keys',
      documented: {
        operationId: 'createKey',
        summary: 'Creates a key',
        description:
          'The answer shows the key, only this once. The body is `{"name", "scopes", "projects", "expires_at"}`; scopes are admin, query, query:<endpoint> and ingest.',
        responses: answers({ 201: { description: 'The key' } }, 400),
      },
      async handle({ body }) {
        const read = readNewKey(
          readJson(body, 'the body must be JSON: {"name", "scopes", "projects", "expires_at"}'),
          clock(),
        );
        if ('mistakes' in read) throw invalidParameters(read.mistakes);
        const created = await createKey(clickhouse, read.key, clock());
        await loader.refresh();
        return {
          status: 201,
          json: created,
          audit: { action: 'key_created', created_id: created.id, scopes: created.scopes, projects: created.projects },
        };
      },
    },
    {
      ...admin,
      method: 'GET',
      path: '/api/keys',
      documented: {
        operationId: 'listKeys',
        summary: 'Lists the keys',
        description: 'Without the keys themselves.',
        responses: answers({ 200: { description: 'The keys' } }),
      },
      handle: async () => ({ status: 200, json: { keys: await listKeys(clickhouse, clock()) } }),
    },
    {
      ...admin,
      method: 'DELETE',
      path: '/api/keys/:id',
      documented: {
        operationId: 'revokeKey',
        summary: 'Revokes a key',
        description: 'Permanently. It stops working within 10 s.',
        parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
        responses: answers({ 204: { description: 'Revoked' } }, 404),
      },
      async handle({ params }) {
        if (!(await revokeKey(clickhouse, params['id'] ?? ''))) throw new ApiError('not_found', 'there is no such key');
        await loader.refresh();
        return { status: 204, audit: { action: 'key_revoked', revoked_id: params['id'] } };
      },
    },
  ];
}
