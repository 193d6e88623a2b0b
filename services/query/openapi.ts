import type { Operation, Route } from '../../common/http/route.ts';
import { RESERVED, type Column, type Definition, type Parameter } from './definition.ts';
import { parametersOf } from './params.ts';

/** Columns as JSON Schema. Whether a number is an integer is up to the statement. */
const columnSchemas: Readonly<Record<Column['render'], object>> = {
  string: { type: ['string', 'null'] },
  number: { type: ['number', 'null'] },
  boolean: { type: ['boolean', 'null'] },
  json: {},
  unix_microseconds: { type: ['integer', 'null'] },
  utc: { type: ['string', 'null'], examples: ['2026-03-01T09:00:00'] },
  text: { type: 'string' },
  nested_list: { type: 'array', items: {} },
};

function parameterObject(p: Parameter): object {
  return {
    name: p.name,
    in: 'query',
    required: p.required,
    description: p.description,
    schema: {
      type: 'string',
      // where anything else stands for a value, the list is what is worth sending, not what is accepted
      ...(p.values !== undefined && (p.otherwise === undefined ? { enum: [...p.values, ...Object.keys(p.aliases)] } : { examples: p.values })),
      ...(p.values === undefined && p.examples.length > 0 && { examples: p.examples }),
      ...(p.format !== 'string' && { format: p.format }),
      ...(p.default !== undefined && { default: p.default }),
      ...(p.pattern !== undefined && { pattern: p.pattern }),
      ...(p.minLength !== undefined && { minLength: p.minLength }),
    },
  };
}

const errors = {
  400: 'A parameter is wrong; `errors` names every one',
  401: 'No key, or one that is not valid',
  403: 'The key may not do this',
  404: 'No such endpoint',
  405: 'The path takes other methods',
  429: 'Too many requests; see retry-after',
  503: 'The store is away or overloaded, or large answers that nobody reads take all the room there is; see retry-after',
  504: 'The query took more time, rows or memory than it may',
} as const;

function operation(d: Definition): object {
  const row = {
    type: 'object',
    required: d.columns.map((c) => c.name),
    properties: Object.fromEntries(d.columns.map((c) => [c.name, { ...columnSchemas[c.render], description: c.description }])),
  };
  return {
    operationId: d.name,
    summary: d.name,
    description: `${d.description}\n\nAt most ${d.maxRows} rows. ${d.cacheSeconds > 0 ? `Answers are up to ${d.cacheSeconds} s old.` : 'Never cached.'} Also at /api/endpoints/query/${d.id}.`,
    parameters: parametersOf(d).map(parameterObject),
    responses: {
      200: {
        description: 'The rows',
        headers: {
          'x-request-id': { schema: { type: 'string' } },
          'x-cache': { schema: { enum: ['hit', 'miss', 'stale', 'none'] } },
          'x-result-truncated': { description: '`true` where max rows cut the result', schema: { type: 'string' } },
        },
        content: { 'application/json': { schema: { type: 'object', required: ['result'], properties: { result: { type: 'array', maxItems: d.maxRows, items: d.sandboxed ? { type: 'object' } : row } } } } },
      },
      ...(d.cacheSeconds > 0 && { 304: { description: 'If-None-Match names what would be sent' } }),
      ...Object.fromEntries(Object.keys(errors).map((status) => [status, { $ref: `#/components/responses/${status}` }])),
    },
  };
}

/** Routes that are shown, each path once. */
export function documentedRoutes(routes: readonly Route[]): { readonly path: string; readonly method: string; readonly operation: Operation }[] {
  return routes.flatMap(({ path, method, documented }) => (documented === undefined ? [] : [{ path: path.replaceAll(/:(\w+)/g, '{$1}'), method, operation: documented }]));
}

/** OpenAPI 3.1 of the endpoints and routes that are served. */
export function openapi(definitions: readonly Definition[], routes: readonly Route[] = []): object {
  return {
    openapi: '3.1.0',
    info: { title: 'sluice', version: '1.0.0', description: 'Saved queries over platform logs. Every parameter is a string; unknown ones are ignored.', license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    security: [{ key: [] }, { bearer: [] }, { query: [] }],
    paths: {
      ...Object.fromEntries(definitions.map((d) => [`/api/endpoints/${d.name}`, { get: operation(d) }])),
      ...Object.fromEntries([...Map.groupBy(documentedRoutes(routes), (r) => r.path)].map(([path, of]) => [path, Object.fromEntries(of.map((r) => [r.method.toLowerCase(), r.operation]))])),
    },
    components: {
      securitySchemes: {
        key: { type: 'apiKey', in: 'header', name: 'X-API-KEY' },
        bearer: { type: 'http', scheme: 'bearer' },
        query: { type: 'apiKey', in: 'query', name: RESERVED.apiKey },
      },
      responses: Object.fromEntries(
        Object.entries(errors).map(([status, description]) => [status, { description, content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } }]),
      ),
      schemas: {
        Error: {
          type: 'object',
          required: ['error'],
          properties: {
            error: {
              type: 'object',
              required: ['code', 'message', 'status', 'request_id'],
              properties: {
                code: { type: 'string' },
                message: { type: 'string' },
                status: { type: 'integer' },
                errors: {
                  description: 'of a wrong parameter its name, of an event that is not taken its place in the body, from 0',
                  type: 'array',
                  items: { type: 'object', required: ['message'], properties: { parameter: { type: 'string' }, index: { type: 'integer' }, message: { type: 'string' } } },
                },
                request_id: { type: 'string' },
              },
            },
          },
        },
      },
    },
  };
}
