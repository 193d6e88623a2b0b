import { readFileSync } from 'node:fs';
import { keyFile } from '../../common/config/data-folder.ts';
import type { Settings } from '../../common/config/settings.ts';
import { isLoopback } from '../../common/http/address.ts';
import { ApiError, invalidParameters, readJson } from '../../common/http/errors.ts';
import { jsonAnswer, optionalParameter, sharedAnswers } from '../../common/http/operation.ts';
import type { AnyRoute, OpenRoute, Operation, RouteResponse } from '../../common/http/route.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import { buildAssets, type Asset, type Assets } from './assets.ts';
import { createOneTimeToken } from './sign-in.ts';
import { startStatus, type StatusOptions } from './status.ts';

interface ConsoleOptions extends StatusOptions {
  readonly settings: Pick<Settings, 'API_KEY' | 'DATA_DIR' | 'HOST'>;
}

export interface Console extends Component {
  readonly routes: readonly AnyRoute[];
  /**
   * Returns a token that signs in once, as `<address>/#token=<it>`, within ten minutes. Undefined if the operator chose
   * the first key, or other machines can reach the service.
   */
  issueSignInToken(): string | undefined;
}

const NO_BODY = 1;
const TOKEN_BODY = 1024;
const CONTENT_SECURITY_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Serves the page at `/`: its files, the state of the system, and the sign-in of a newcomer. */
export function startConsole({ settings, ...options }: ConsoleOptions): Console {
  const { clock } = options;
  const source = startStatus(options);
  const token = settings.API_KEY === undefined && isLoopback(settings.HOST) ? createOneTimeToken() : undefined;
  let built: Assets | undefined;
  const assets = (): Assets => (built ??= buildAssets());

  const get = { method: 'GET', bodyLimit: NO_BODY } as const;
  const file: OpenRoute['handle'] = async ({ params }) => {
    const { version, files } = assets();
    const found =
      params['version'] === version
        ? files.get([params['folder'], params['file']].filter((part) => part !== undefined).join('/'))
        : undefined;
    if (found === undefined) throw new ApiError('not_found', 'there is nothing at this path');
    return answer(found, { 'cache-control': 'public, max-age=31536000, immutable' });
  };

  return {
    name: 'console',
    issueSignInToken: () => token?.issue(clock()),
    stop: async () => source.stop(),
    routes: [
      {
        ...get,
        path: '/api/status',
        scope: 'any',
        documented: STATUS,
        handle: async ({ query, key }) => ({
          status: 200,
          json: { result: await source.status(key, readSince(query)) },
        }),
      },
      {
        ...get,
        path: '/',
        handle: async ({ headers }) => {
          const { index, version } = assets();
          const etag = `W/"${version}"`;
          const common = {
            'cache-control': 'no-cache',
            etag,
            'content-security-policy': CONTENT_SECURITY_POLICY,
            'cross-origin-opener-policy': 'same-origin',
          };
          return headers['if-none-match'] === etag ? { status: 304, headers: common } : answer(index, common);
        },
      },
      { ...get, path: '/console/:version/:file', handle: file },
      { ...get, path: '/console/:version/:folder/:file', handle: file },
      {
        method: 'POST',
        path: '/console/sign-in',
        bodyLimit: TOKEN_BODY,
        handle: async ({ body }) => {
          if (token === undefined)
            throw new ApiError('not_found', 'this service has no sign-in link; sign in with a key');
          token.use(readToken(body), clock());
          return {
            status: 200,
            headers: { 'cache-control': 'no-store' },
            json: { result: { key: readFileSync(keyFile(settings.DATA_DIR), 'utf8').trim() } },
          };
        },
      },
    ],
  };
}

function answer(asset: Asset, headers: Readonly<Record<string, string>>): RouteResponse {
  return {
    status: 200,
    headers: { 'referrer-policy': 'no-referrer', 'content-type': asset.type, ...headers },
    body: asset,
  };
}

function readToken(body: Buffer): string {
  const given = readJson(body, 'the body must be JSON: {"token"}') as { token?: unknown } | null;
  if (typeof given?.token === 'string') return given.token;
  throw new ApiError('invalid_request', 'the body must be JSON: {"token"}');
}

/** Throws ApiError. */
function readSince(query: URLSearchParams): number | undefined {
  const wrong = (message: string): ApiError => invalidParameters([{ parameter: 'since', message }]);
  const [given = '', ...more] = query.getAll('since');
  if (more.length > 0) throw wrong('is given more than once');
  if (given === '') return undefined;
  if (!/^\d{1,12}$/.test(given)) throw wrong('must be whole unix seconds');
  return Number(given);
}

const STATUS: Operation = {
  operationId: 'status',
  summary: 'The state of the system over the last hour; every valid key may call it',
  description:
    'Series have one value per step of `step_seconds`, from `from` (unix seconds) on; null = not known. A key sees itself and the endpoints that it may call, but none if it is limited to projects, because requests are counted for all together; `system` (traffic, freshness, lag, dead letters, pauses, rollups, alerts) is null without the scope admin. Traffic, dead letters, pauses and rollups are what ClickHouse says, whichever process ingests. Requests, and the lag where ingest runs in this process, are those of the process that answers. At most a second old.',
  parameters: [
    optionalParameter(
      'since',
      'query',
      'only steps from this instant on, unix seconds; absent or empty = the last hour',
      { pattern: String.raw`^\d{1,12}$` },
    ),
  ],
  responses: {
    200: jsonAnswer('The state', {
      type: 'object',
      required: ['result'],
      properties: {
        result: {
          type: 'object',
          required: ['now', 'started_at', 'step_seconds', 'from', 'steps', 'key', 'endpoints', 'system'],
          properties: {
            now: { type: 'integer', description: 'unix milliseconds' },
            started_at: { type: 'integer', description: 'start of the process that answers, unix milliseconds' },
            step_seconds: { type: 'integer' },
            from: { type: 'integer', description: 'start of the first step, unix seconds' },
            steps: { type: 'integer' },
            key: { type: 'object' },
            endpoints: { type: 'array', items: { type: 'object' } },
            system: { type: ['object', 'null'] },
          },
        },
      },
    }),
    ...sharedAnswers(400, 401, 429, 503),
  },
};
