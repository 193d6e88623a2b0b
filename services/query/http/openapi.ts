import { ERROR, jsonAnswer, objectSchema, sharedAnswers } from '../../../common/http/operation.ts';
import type { AnyRoute, Operation } from '../../../common/http/route.ts';
import { RESERVED, isOfJson, type Column, type Definition, type Parameter } from '../definition/definition.ts';
import { MEDIA_TYPES, hasCsv } from '../render/formats.ts';
import { rangeOf } from '../definition/params.ts';

/** Columns as JSON Schema, as they are rendered. */
const columnSchemas: Readonly<Record<Column['render'], { readonly type?: string; readonly [more: string]: unknown }>> =
  {
    string: { type: 'string' },
    number: { type: 'number' },
    integer: { type: 'integer' },
    boolean: { type: 'boolean' },
    json: {},
    unix_microseconds: { type: 'integer' },
    utc: { type: 'string', examples: ['2026-03-01T09:00:00'] },
    text: { type: 'string' },
    nested_list: { type: 'array', items: {} },
  };

function columnSchema({ render, nullable, description }: Column): object {
  const { type, ...more } = columnSchemas[render];
  const mayBeNull = nullable && type !== undefined && !isOfJson({ render });
  return { ...(type !== undefined && { type: mayBeNull ? [type, 'null'] : type }), ...more, description };
}

function parameterObject(p: Parameter): object {
  return {
    name: p.name,
    in: 'query',
    required: p.required,
    description: [p.description, rangeOf(p) ?? []].flat().join('; '),
    schema: {
      type: 'string',
      // if any other text stands for a value, the list shows what is worth sending, not what is accepted
      ...(p.values !== undefined &&
        (p.otherwise === undefined ? { enum: [...p.values, ...Object.keys(p.aliases)] } : { examples: p.values })),
      ...(p.values === undefined && p.examples.length > 0 && { examples: p.examples }),
      ...(p.format !== 'string' && { format: p.format }),
      ...(p.default !== undefined && { default: p.default }),
      ...(p.pattern !== undefined && { pattern: p.pattern }),
      maxLength: p.maxLength,
    },
  };
}

const errors = {
  400: 'A parameter is wrong; `errors` lists all of them',
  401: 'No key, or an invalid one',
  403: 'The key may not do this',
  404: 'No such endpoint',
  405: 'The path does not accept this method',
  414: 'The address of the request is longer than 16 KiB',
  429: 'Too many requests; see retry-after',
  431: 'The request line and headers are too large',
  500: 'Something went wrong on our side',
  503: 'ClickHouse is unavailable or overloaded, or large unread answers take all the memory; see retry-after',
  504: 'The query exceeded a limit; the message names it: time, rows read, memory, size of the answer',
} as const;

export const TRUNCATED =
  '`true` if the statement had more rows than the endpoint returns and the rest was cut. A LIMIT of the statement or of the caller is no cut';

/** Returns how many rows a caller can get: a parameter `limit` may allow fewer than the endpoint. */
function mostRows({ maxRows, sandboxed, parameters }: Definition): number {
  // a statement of the caller's own may ignore the parameter
  if (sandboxed) return maxRows;
  return Math.min(maxRows, parameters.find((p) => p.name === 'limit')?.maximum ?? maxRows);
}

/** Returns how many rows an answer has and how old it is, for people. */
export function sizeAndAge(d: Definition): string {
  return `At most ${mostRows(d)} rows. ${d.cacheSeconds > 0 ? `Answers are up to ${d.cacheSeconds} s old.` : 'Never cached.'}`;
}

function operation(d: Definition): object {
  const row = objectSchema(Object.fromEntries(d.columns.map((c) => [c.name, columnSchema(c)])));
  const count = (description: string): object => ({ description, schema: { type: 'integer' } });
  return {
    operationId: d.name.replaceAll(/[^A-Za-z0-9_]/g, '_'),
    summary: d.name,
    description: `${d.description}\n\n${sizeAndAge(d)} Also at /api/endpoints/query/${d.id}.`,
    parameters: d.parameters.map(parameterObject),
    responses: {
      200: {
        description: 'The rows',
        headers: {
          'x-request-id': { schema: { type: 'string' } },
          'x-cache': { schema: { enum: ['hit', 'miss', 'stale', 'none'] } },
          'x-result-truncated': { description: TRUNCATED, schema: { const: 'true' } },
          'x-ignored-parameters': {
            description: 'Undeclared parameters of the call, separated by commas, percent-encoded',
            schema: { type: 'string' },
          },
          ...(d.cacheSeconds > 0 && {
            age: { description: 'Seconds since the answer was true', schema: { type: 'integer', minimum: 0 } },
            etag: { description: 'Weak, for If-None-Match', schema: { type: 'string' } },
          }),
          'ratelimit-limit': count('Requests a minute, if there is a limit'),
          'ratelimit-remaining': count('Requests left in this minute'),
          'ratelimit-reset': count('Seconds until the minute is over'),
        },
        content: {
          'application/json': {
            schema: objectSchema({
              result: { type: 'array', maxItems: mostRows(d), items: d.sandboxed ? { type: 'object' } : row },
            }),
          },
          [MEDIA_TYPES.ndjson]: { schema: { type: 'string', description: 'One row per line, as in `result`' } },
          ...(hasCsv(d) && {
            [MEDIA_TYPES.csv]: {
              schema: {
                type: 'string',
                description: 'RFC 4180: a line with the column names, then one line per row; null is empty',
              },
            },
          }),
        },
      },
      ...(d.cacheSeconds > 0 && { 304: { description: 'The answer equals the one that If-None-Match names' } }),
      ...sharedAnswers(...Object.keys(errors).map(Number)),
    },
  };
}

export function documentedRoutes(
  routes: readonly AnyRoute[],
): { readonly path: string; readonly method: string; readonly operation: Operation }[] {
  return routes.flatMap(({ path, method, documented }) =>
    documented === undefined ? [] : [{ path: path.replaceAll(/:(\w+)/g, '{$1}'), method, operation: documented }],
  );
}

/** Returns OpenAPI 3.1 of the endpoints and routes that are served. */
export function openapi(definitions: readonly Definition[], routes: readonly AnyRoute[] = []): object {
  return {
    openapi: '3.1.0',
    info: {
      title: 'sluice',
      version: '1.0.0',
      description: 'Saved queries over platform logs. Every parameter is a string; unknown ones are ignored.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ key: [] }, { bearer: [] }, { query: [] }],
    paths: {
      ...Object.fromEntries(definitions.map((d) => [`/api/endpoints/${d.name}`, { get: operation(d) }])),
      ...Object.fromEntries(
        [...Map.groupBy(documentedRoutes(routes), (r) => r.path)].map(([path, of]) => [
          path,
          Object.fromEntries(of.map((r) => [r.method.toLowerCase(), r.operation])),
        ]),
      ),
    },
    components: {
      securitySchemes: {
        key: { type: 'apiKey', in: 'header', name: 'X-API-KEY' },
        bearer: { type: 'http', scheme: 'bearer' },
        query: { type: 'apiKey', in: 'query', name: RESERVED.apiKey },
      },
      responses: Object.fromEntries(
        Object.entries(errors).map(([status, description]) => [status, jsonAnswer(description, ERROR)]),
      ),
      schemas: {
        Error: objectSchema({
          error: objectSchema(
            {
              code: { type: 'string' },
              message: { type: 'string' },
              status: { type: 'integer' },
              errors: {
                description: 'the name of a wrong parameter, or the position of a refused event in the body, from 0',
                type: 'array',
                items: objectSchema(
                  { parameter: { type: 'string' }, index: { type: 'integer' }, message: { type: 'string' } },
                  ['message'],
                ),
              },
              request_id: { type: 'string' },
            },
            ['code', 'message', 'status', 'request_id'],
          ),
        }),
      },
    },
  };
}
