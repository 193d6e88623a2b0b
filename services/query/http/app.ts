import { randomUUID } from 'node:crypto';
import { METHODS } from 'node:http';
import rateLimit from '@fastify/rate-limit';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { TrustProxy } from '../../../common/config/settings.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { OpenRoute, Route } from '../../../common/http/route.ts';
import type { Logger } from '../../../common/logger.ts';
import type { Registry } from '../../../common/metrics.ts';
import { readinessOf, watchReadiness, type Check } from '../../../common/readiness.ts';
import { createAuthentication, type AuthenticationOptions } from './authentication.ts';
import { docsPage } from './docs.ts';
import { hasScope } from '../keys/key-ring.ts';
import { openapi } from './openapi.ts';
import { closeUnlessRead } from './receive-body.ts';
import { CORS, JSON_TYPE, SAFE, VARY } from './request.ts';
import { answerBrokenRequest, createSendError } from './send-error.ts';
import { createServeEndpoint, type EndpointOptions } from './serve-endpoint.ts';
import { serveOpenRoutes, serveRoutes } from './serve-route.ts';

export interface AppOptions extends AuthenticationOptions, EndpointOptions {
  readonly checks: Readonly<Record<string, Check>>;
  readonly routes: readonly Route[];
  readonly openRoutes?: readonly OpenRoute[];
  readonly logger: Logger;
  readonly registry: Registry;
  readonly trustProxy: TrustProxy;
  /** PEM; if present, the service speaks TLS only */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
  /** false if /metrics has a port of its own */
  readonly serveMetrics: boolean;
}

const MAX_REQUEST_LINE = 16 * 1024;
/** Request line and all headers. Node's own default is 16 KiB for both. */
const MAX_HEADERS = 40 * 1024;
const ENDPOINT_PATHS = [
  '/api/endpoints/query/:endpoint',
  '/api/endpoints/query/name/:endpoint',
  '/api/endpoints/:endpoint',
  '/endpoints/query/:endpoint',
];

/** They need no key, and are closed to pages of other origins. */
const OPEN_PATHS = ['/health', '/livez', '/readyz', '/metrics', '/docs'];

/** Returns Fastify's option; hop 0 is the peer of the socket. */
function trusted(trustProxy: TrustProxy): false | string[] | ((address: string, hop: number) => boolean) {
  if (typeof trustProxy === 'number') return (_address, hop) => hop < trustProxy;
  return trustProxy === false ? false : [...trustProxy];
}

/** Creates the HTTP service without a socket; `inject` and `listen` both work on it. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { definitions, logger, metrics } = options;
  // the hook below refuses a request without Host, with the envelope
  const server = { maxHeaderSize: MAX_HEADERS, connectionsCheckingInterval: 5_000, requireHostHeader: false };
  // typed as neither, because Fastify has a type for each and nothing here depends on which
  const listener: object = options.tls === undefined ? { http: server } : { https: { ...server, ...options.tls } };
  const app = fastify({
    logger: false,
    genReqId: (raw) => {
      const given = raw.headers['x-request-id'];
      return typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : randomUUID();
    },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 200, querystringParser: () => ({}) },
    ...listener,
    requestTimeout: 60_000,
    connectionTimeout: 120_000,
    keepAliveTimeout: 75_000,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    trustProxy: trusted(options.trustProxy),
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (_error, request, reply) => {
      prepare(request, reply);
      // the path cannot be decoded, so there is no route and no hook has run
      void authenticate(request).then(
        () => sendError(new ApiError('not_found', 'there is nothing at this path'), request, reply),
        (error: unknown) => sendError(error, request, reply),
      );
    },
  });
  let inFlight = 0;
  app.decorate('inFlight', () => inFlight);
  app.server.on('request', (_request, response) => {
    inFlight++;
    response.once('close', () => {
      inFlight--;
    });
  });
  // Node would answer by itself, without the envelope
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  app.decorateRequest('key', undefined);
  app.decorateRequest('outcome');
  app.decorateRequest('search', undefined);
  await app.register(rateLimit, { global: false });
  const { authenticate, recognize, limitAddress, limitKey } = createAuthentication(app, options);
  const sendError = createSendError(options);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  const browserPaths = [
    ...ENDPOINT_PATHS,
    '/openapi.json',
    ...options.routes.filter(({ scope }) => scope !== 'admin').map(({ path }) => path),
  ];
  const closedPaths = ['/', ...OPEN_PATHS, ...options.routes.map(({ path }) => path)]
    .filter((path) => !browserPaths.includes(path))
    .map((path) => new RegExp(`^${path.replaceAll(/:\w+/g, '[^/]+')}/?$`));
  /**
   * Returns whether pages of other origins may call this path: endpoints, push and their description, but not metrics,
   * keys and commands.
   */
  function servesBrowsers(request: FastifyRequest): boolean {
    const { url } = request.routeOptions;
    if (url !== undefined) return browserPaths.includes(url);
    // no such path, or OPTIONS
    const path = (request.raw.url ?? '').replace(/\?.*$/s, '');
    return !closedPaths.some((closed) => closed.test(path));
  }

  function prepare(request: FastifyRequest, reply: FastifyReply): void {
    request.outcome = { endpoint: 'other', cache: '' };
    reply.headers({ ...(servesBrowsers(request) && CORS), ...SAFE, 'x-request-id': request.id, vary: VARY });
  }

  app.addHook('onRequest', async (request, reply) => {
    prepare(request, reply);
    if (request.method === 'OPTIONS') {
      return reply
        .code(204)
        .headers(
          !servesBrowsers(request)
            ? {}
            : {
                'access-control-allow-methods': 'GET, HEAD, POST, DELETE, OPTIONS',
                'access-control-allow-headers':
                  request.headers['access-control-request-headers'] ?? 'X-API-KEY, Authorization, Content-Type',
                'access-control-max-age': '86400',
              },
        )
        .send();
    }
    const { config } = request.routeOptions;
    if (config?.open !== true) await limitAddress(request, reply);
    await authenticate(request);
    if (request.key !== undefined) await limitKey(request, reply);
    const { host, expect } = request.headers;
    if (host === undefined && request.raw.httpVersion === '1.1')
      throw new ApiError('invalid_request', 'the request has no Host header');
    if (expect !== undefined && expect.toLowerCase() !== '100-continue')
      throw new ApiError('expectation_failed', 'Expect must be 100-continue');
    if ((request.raw.url ?? '').length > MAX_REQUEST_LINE)
      throw new ApiError('too_large', 'the address of the request is longer than 16 KiB');
    if (config?.allow !== undefined && !config.allow.includes(request.method)) {
      throw new ApiError('method_not_allowed', `this path accepts ${config.allow.join(', ')}`, {
        allow: [...config.allow, 'OPTIONS'].join(', '),
      });
    }
    return undefined;
  });

  app.addHook('onResponse', async (request, reply) => {
    closeUnlessRead(request.raw);
    const { endpoint, cache } = request.outcome;
    const seconds = reply.elapsedTime / 1000;
    if (request.routeOptions.config?.answered?.(request, reply.statusCode) !== true)
      metrics.requests.inc({ endpoint, status: reply.statusCode, cache });
    if (endpoint !== 'other') metrics.seconds.observe({ endpoint, cache }, seconds);
    logger.debug(
      {
        request_id: request.id,
        method: request.method,
        endpoint,
        status: reply.statusCode,
        cache,
        key_id: request.key?.id,
        seconds,
      },
      'request_answered',
    );
  });

  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request, reply) =>
    sendError(new ApiError('not_found', 'there is nothing at this path'), request, reply),
  );

  // Every method that Node reads has a route, so the hook above can answer 405 with what a path accepts.
  for (const method of METHODS)
    if (method !== 'CONNECT' && !app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  const methods = app.supportedMethods.filter((m) => m !== 'OPTIONS');
  function get(
    url: string,
    open: boolean,
    handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  ): void {
    app.route({ method: methods, url, config: { allow: ['GET', 'HEAD'], ...(open && { open }) }, handler });
  }

  const serveEndpoint = createServeEndpoint(options);
  for (const path of ENDPOINT_PATHS) get(path, false, serveEndpoint);
  for (const [path, routes] of Map.groupBy(options.routes, (r) => r.path))
    serveRoutes(app, methods, path, routes, logger);
  for (const [path, routes] of Map.groupBy(options.openRoutes ?? [], (r) => r.path))
    serveOpenRoutes(app, methods, path, routes);

  const sendJson = async (reply: FastifyReply, status: number, value: unknown): Promise<unknown> =>
    await reply
      .code(status)
      .headers({ 'content-type': JSON_TYPE, 'cache-control': 'no-store' })
      .send(JSON.stringify(value));
  for (const path of ['/health', '/livez'])
    get(path, true, async (_request, reply) => await sendJson(reply, 200, { status: 'ok' }));
  get('/readyz', true, async (_request, reply) => {
    const readiness = await readinessOf(options.checks);
    return await sendJson(reply, readiness.status === 'ready' ? 200 : 503, readiness);
  });
  // operators' routes are shown to operators only
  const shown = async (request: FastifyRequest): Promise<readonly Route[]> => {
    await recognize(request);
    return options.routes.filter(
      ({ scope }) => scope !== 'admin' || (request.key !== undefined && hasScope(request.key, scope)),
    );
  };
  get(
    '/openapi.json',
    true,
    async (request, reply) => await sendJson(reply, 200, openapi(definitions().all, await shown(request))),
  );
  get(
    '/docs',
    true,
    async (request, reply) =>
      await reply
        .headers({
          'content-type': 'text/html; charset=utf-8',
          'content-security-policy': `${SAFE['content-security-policy']}; style-src 'unsafe-inline'`,
        })
        .send(docsPage(definitions().all, await shown(request))),
  );
  if (options.serveMetrics) {
    watchReadiness(options.registry, options.checks);
    get(
      '/metrics',
      true,
      async (_request, reply) =>
        await reply
          .headers({ 'content-type': options.registry.contentType, 'cache-control': 'no-store' })
          .send(await options.registry.metrics()),
    );
  }
  return app;
}
