import { randomUUID } from 'node:crypto';
import { METHODS } from 'node:http';
import rateLimit from '@fastify/rate-limit';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { ApiError } from '../../common/http/errors.ts';
import type { Route } from '../../common/http/route.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { readinessOf, type Check } from '../../common/readiness.ts';
import { createAuthentication, type AuthenticationOptions } from './authentication.ts';
import { docsPage } from './docs.ts';
import { openapi } from './openapi.ts';
import { closeUnlessRead } from './receive-body.ts';
import { CORS, JSON_TYPE } from './request.ts';
import { answerBrokenRequest, createSendError } from './send-error.ts';
import { createServeEndpoint, type EndpointOptions } from './serve-endpoint.ts';
import { serveRoutes } from './serve-route.ts';

export interface AppOptions extends AuthenticationOptions, EndpointOptions {
  readonly checks: Readonly<Record<string, Check>>;
  readonly routes: readonly Route[];
  readonly logger: Logger;
  readonly registry: Registry;
  readonly trustProxy: boolean;
  /** PEM; the service speaks TLS only, where it has them */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
  /** false where /metrics has a port of its own */
  readonly serveMetrics: boolean;
}

const MAX_REQUEST_LINE = 16 * 1024;
/** Request line and all headers; Node's own default is 16 KiB for both. */
const MAX_HEADERS = 40 * 1024;
const VARY = 'X-API-KEY, Authorization, Accept-Encoding, Origin';
const ENDPOINT_PATHS = ['/api/endpoints/query/:endpoint', '/api/endpoints/query/name/:endpoint', '/api/endpoints/:endpoint', '/endpoints/query/:endpoint'];

/** The HTTP service, without a socket: `inject` and `listen` both work on it. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { definitions, logger, metrics } = options;
  const server = { maxHeaderSize: MAX_HEADERS, connectionsCheckingInterval: 5_000 };
  // typed as neither: with the one or the other fastify's types are two, and nothing here depends on which
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
    trustProxy: options.trustProxy,
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (_error, request, reply) => {
      prepare(request, reply);
      // a path that cannot be decoded: no route, and no hook has run
      void authenticate(request).then(
        () => sendError(new ApiError('not_found', 'there is nothing at this path'), request, reply),
        (error: unknown) => sendError(error, request, reply),
      );
    },
  });
  let underWay = 0;
  app.decorate('underWay', () => underWay);
  app.server.on('request', (_request, response) => {
    underWay++;
    response.once('close', () => { underWay--; });
  });
  app.decorateRequest('key', undefined);
  app.decorateRequest('told');
  app.decorateRequest('search', undefined);
  await app.register(rateLimit, { global: false });
  const { authenticate, limitAddress, limitKey } = createAuthentication(app, options);
  const sendError = createSendError(options);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  function prepare(request: FastifyRequest, reply: FastifyReply): void {
    request.told = { endpoint: 'other', cache: '' };
    reply.headers({ ...CORS, 'x-request-id': request.id, vary: VARY });
  }

  app.addHook('onRequest', async (request, reply) => {
    prepare(request, reply);
    if (request.method === 'OPTIONS') {
      return reply
        .code(204)
        .headers({
          'access-control-allow-methods': 'GET, HEAD, POST, DELETE, OPTIONS',
          'access-control-allow-headers': request.headers['access-control-request-headers'] ?? 'X-API-KEY, Authorization, Content-Type',
          'access-control-max-age': '86400',
        })
        .send();
    }
    const { config } = request.routeOptions;
    if (config?.open !== true) await limitAddress(request, reply);
    await authenticate(request);
    if (request.key !== undefined) await limitKey(request, reply);
    if ((request.raw.url ?? '').length > MAX_REQUEST_LINE) throw new ApiError('too_large', 'the address of the request is longer than 16 KiB');
    if (config?.allow !== undefined && !config.allow.includes(request.method)) {
      throw new ApiError('method_not_allowed', `this path takes ${config.allow.join(', ')}`, { allow: [...config.allow, 'OPTIONS'].join(', ') });
    }
    return undefined;
  });

  app.addHook('onResponse', async (request, reply) => {
    closeUnlessRead(request.raw);
    const { endpoint, cache } = request.told;
    const seconds = reply.elapsedTime / 1000;
    metrics.requests.inc({ endpoint, status: reply.statusCode, cache });
    if (endpoint !== 'other') metrics.seconds.observe({ endpoint, cache }, seconds);
    logger.debug({ request_id: request.id, method: request.method, endpoint, status: reply.statusCode, cache, key_id: request.key?.id, seconds }, 'request_answered');
  });

  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request, reply) => sendError(new ApiError('not_found', 'there is nothing at this path'), request, reply));

  // Every method that Node reads has a route, so that the hook above can say what a path takes.
  for (const method of METHODS) if (method !== 'CONNECT' && !app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  const methods = app.supportedMethods.filter((m) => m !== 'OPTIONS');
  function get(url: string, open: boolean, handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>): void {
    app.route({ method: methods, url, config: { allow: ['GET', 'HEAD'], ...(open && { open }) }, handler });
  }

  const serveEndpoint = createServeEndpoint(options);
  for (const path of ENDPOINT_PATHS) get(path, false, serveEndpoint);
  for (const [path, routes] of Map.groupBy(options.routes, (r) => r.path)) serveRoutes(app, methods, path, routes);

  const sendJson = async (reply: FastifyReply, status: number, value: unknown): Promise<unknown> =>
    await reply.code(status).headers({ 'content-type': JSON_TYPE, 'cache-control': 'no-store' }).send(JSON.stringify(value));
  for (const path of ['/health', '/livez']) get(path, true, async (_request, reply) => await sendJson(reply, 200, { status: 'ok' }));
  get('/readyz', true, async (_request, reply) => {
    const readiness = await readinessOf(options.checks);
    return await sendJson(reply, readiness.status === 'ready' ? 200 : 503, readiness);
  });
  get('/openapi.json', true, async (_request, reply) => await sendJson(reply, 200, openapi(definitions().all, options.routes)));
  get('/docs', true, async (_request, reply) =>
    await reply.headers({ 'content-type': 'text/html; charset=utf-8', 'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'" }).send(docsPage(definitions().all, options.routes)));
  if (options.serveMetrics) {
    get('/metrics', true, async (_request, reply) => await reply.headers({ 'content-type': options.registry.contentType, 'cache-control': 'no-store' }).send(await options.registry.metrics()));
  }
  return app;
}
