import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { ApiError, invalidParameters, readJson } from '../../../common/http/errors.ts';
import { sharedAnswers } from '../../../common/http/operation.ts';
import type { Route } from '../../../common/http/route.ts';
import type { KeyLoader } from './key-loader.ts';
import {
  createKey,
  DEFAULT_OVERLAP_SECONDS,
  listKeys,
  readNewKey,
  readOverlap,
  revokeKey,
  rotateKey,
} from './key-table.ts';

const BODY_LIMIT = 64 * 1024;
const ID = [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }];

/** Returns the documented answers of an operation: its success and these errors. */
const answers = (success: object, ...errors: readonly number[]): object => ({
  ...success,
  ...sharedAnswers(...errors, 401, 403, 429, 500, 503),
});

const DOCUMENTED = {
  create: {
    operationId: 'createKey',
    summary: 'Creates a key',
    description:
      'The answer shows the key, only this once. The body is `{"name", "scopes", "projects", "expires_at"}`; scopes are admin, query, query:<endpoint> and ingest.',
    responses: answers({ 201: { description: 'The key' } }, 400),
  },
  list: {
    operationId: 'listKeys',
    summary: 'Lists the keys',
    description: 'Without the keys themselves.',
    responses: answers({ 200: { description: 'The keys' } }),
  },
  revoke: {
    operationId: 'revokeKey',
    summary: 'Revokes a key',
    description: 'Permanently. It stops working within 10 s.',
    parameters: ID,
    responses: answers({ 204: { description: 'Revoked' } }, 404),
  },
  rotate: {
    operationId: 'rotateKey',
    summary: 'Replaces a key',
    parameters: ID,
    responses: answers({ 201: { description: 'The new key' } }, 400, 404),
    description: `The new key has the scopes and projects of the old one. Both are valid for \`overlap_seconds\`. The body is \`{"overlap_seconds": ${DEFAULT_OVERLAP_SECONDS}}\`, which is also the default.`,
  },
} as const;

export function keyRoutes(clickhouse: ClickHouse, loader: KeyLoader, clock: Clock): Route[] {
  const admin = { scope: 'admin', bodyLimit: BODY_LIMIT } as const;
  return [
    {
      ...admin,
      method: 'POST',
      path: '/api/keys',
      documented: DOCUMENTED.create,
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
      documented: DOCUMENTED.list,
      handle: async () => ({ status: 200, json: { keys: await listKeys(clickhouse, clock()) } }),
    },
    {
      ...admin,
      method: 'DELETE',
      path: '/api/keys/:id',
      documented: DOCUMENTED.revoke,
      async handle({ params }) {
        if (!(await revokeKey(clickhouse, params['id'] ?? '', clock())))
          throw new ApiError('not_found', 'there is no such key');
        await loader.refresh();
        return { status: 204, audit: { action: 'key_revoked', revoked_id: params['id'] } };
      },
    },
    {
      ...admin,
      method: 'POST',
      path: '/api/keys/:id/rotate',
      documented: DOCUMENTED.rotate,
      async handle({ params, body }) {
        const read = readOverlap(body.length === 0 ? {} : readJson(body, 'the body must be JSON: {"overlap_seconds"}'));
        if ('mistakes' in read) throw invalidParameters(read.mistakes);
        const id = params['id'] ?? '';
        const rotated = await rotateKey(clickhouse, id, read.seconds, clock());
        if (rotated === undefined) throw new ApiError('not_found', 'there is no such key');
        await loader.refresh();
        return {
          status: 201,
          json: rotated,
          audit: { action: 'key_rotated', rotated_id: id, created_id: rotated.id, overlap_seconds: read.seconds },
        };
      },
    },
  ];
}
