import { randomUUID } from 'node:crypto';
import { METHODS, type IncomingHttpHeaders } from 'node:http';
import rateLimit from '@fastify/rate-limit';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { TrustProxy } from '../../../common/config/parsers.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { createAuthentication, type AuthenticationOptions } from './authentication.ts';
import { serveOwnPaths, type Get, type OwnPathsOptions } from './own-paths.ts';
import { closeUnlessRead } from './receive-body.ts';
import { CORS, SAFE, VARY } from './request.ts';
import { answerBrokenRequest, answerConnect, createSendError } from './send-error.ts';
import { createServeEndpoint, ENDPOINT_PATHS, type EndpointOptions } from './serve-endpoint.ts';
import { serveRoutes } from './serve-component-routes.ts';

export interface AppOptions extends AuthenticationOptions, EndpointOptions, OwnPathsOptions {
  readonly logger: Logger;
  readonly trustProxy: TrustProxy;
  /** PEM; if present, the service speaks TLS only */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
}

const MAX_REQUEST_LINE = 16 * 1024;
/** Request line and all headers. Node's own default is 16 KiB for both. */
const MAX_HEADERS = 40 * 1024;
/** Returns Fastify's option; hop 0 is the peer of the socket. */
function trusted(trustProxy: TrustProxy): false | string[] | ((address: string, hop: number) => boolean) {
  if (typeof trustProxy === 'number') return (_address, hop) => hop < trustProxy;
  return trustProxy === false ? false : [...trustProxy];
}

/** Returns the caller's request id if it is a plain word, else a new one. */
function requestId(raw: { readonly headers: IncomingHttpHeaders }): string {
  const given = raw.headers['x-request-id'];
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : randomUUID();
}

/**
 * Returns the URL with a path that can be decoded: percent signs that begin no escape of ASCII become escapes. For
 * a path that it cannot decode Fastify runs no hook, and takes the IP address of the proxy for the caller's.
 */
function decodable(url: string): string {
  const path = url.replace(/[?#].*$/s, '');
  try {
    decodeURI(path);
    return url;
  } catch {
    return path.replaceAll(/%(?![0-7][0-9a-f])/gi, '%25') + url.slice(path.length);
  }
}

/** Refuses a request by its headers, address or method, before its body is read. Throws ApiError. */
function checkRequest(request: FastifyRequest): void {
  if (request.headers.host === undefined && request.raw.httpVersion === '1.1')
    throw new ApiError('invalid_request', 'the request has no Host header');
  if ((request.raw.url ?? '').length > MAX_REQUEST_LINE)
    throw new ApiError('too_large', 'the address of the request is longer than 16 KiB');
  if (request.is404) throw new ApiError('not_found', 'there is nothing at this path');
  const { config } = request.routeOptions;
  if (config?.allow !== undefined && !config.allow.includes(request.method)) {
    throw new ApiError('method_not_allowed', `this path accepts ${config.allow.join(', ')}`, {
      allow: [...config.allow, 'OPTIONS'].join(', '),
    });
  }
}

/** Whether pages of other origins may call a request's path. Without a route there is nothing that they could reach. */
function servesBrowsers({ routeOptions: { url, config } }: FastifyRequest): boolean {
  return url === undefined || config.isForBrowsers === true;
}

function answerOptions(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  if (servesBrowsers(request))
    reply.headers({
      'access-control-allow-methods': 'GET, HEAD, POST, DELETE, OPTIONS',
      'access-control-allow-headers':
        request.headers['access-control-request-headers'] ?? 'X-API-KEY, Authorization, Content-Type',
      'access-control-max-age': '86400',
    });
  return reply.code(204).send();
}

function countRequests(app: FastifyInstance): void {
  let inFlight = 0;
  app.decorate('inFlight', () => inFlight);
  app.server.on('request', (_request, response) => {
    inFlight++;
    response.once('close', () => {
      inFlight--;
    });
  });
}

function recordAnswers(app: FastifyInstance, { metrics, logger }: Pick<AppOptions, 'metrics' | 'logger'>): void {
  app.addHook('onResponse', async (request, reply) => {
    closeUnlessRead(request.raw);
    const { endpoint, cache } = request.outcome;
    const seconds = reply.elapsedTime / 1000;
    // a route learns of its answer here, and returns true if it counts it itself (request.ts)
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
}

/** Creates the HTTP service without a socket: `listen` opens it. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { logger } = options;
  // the hook below refuses a request without Host, with our error body (`envelope`, common/http/errors.ts)
  const server = { maxHeaderSize: MAX_HEADERS, connectionsCheckingInterval: 5_000, requireHostHeader: false };
  // typed as neither, because Fastify has a type for each and nothing here depends on which
  const listener: object = options.tls === undefined ? { http: server } : { https: { ...server, ...options.tls } };
  const app = fastify({
    genReqId: requestId,
    // for a longer parameter Fastify runs no hook either, and `decodable` makes three characters of one
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 3 * MAX_HEADERS, querystringParser: () => ({}) },
    rewriteUrl: ({ url = '/' }) => decodable(url),
    ...listener,
    requestTimeout: 60_000,
    connectionTimeout: 120_000,
    keepAliveTimeout: 75_000,
    return503OnClosing: false,
    trustProxy: trusted(options.trustProxy),
    clientErrorHandler: answerBrokenRequest,
  });
  countRequests(app);
  // Node would refuse an expectation that it does not know. It is ignored, as RFC 9110 section 10.1.1 allows.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));
  app.server.on('connect', answerConnect);
  // declared in request.ts
  app.decorateRequest('key', undefined);
  app.decorateRequest('outcome');
  await app.register(rateLimit, { global: false });
  const { admit, recognize } = createAuthentication(app, options);
  const sendError = createSendError(options);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  function prepare(request: FastifyRequest, reply: FastifyReply): void {
    // the content of a body decides, not its type. Fastify would refuse a content-type that is no media type, and the
    // method QUERY without one
    request.raw.headers['content-type'] = 'application/octet-stream';
    request.outcome = { endpoint: 'other', cache: '' };
    reply.headers({ ...(servesBrowsers(request) && CORS), ...SAFE, 'x-request-id': request.id, vary: VARY });
  }

  app.addHook('onRequest', async (request, reply) => {
    prepare(request, reply);
    if (request.method === 'OPTIONS') return answerOptions(request, reply);
    await admit(request, reply);
    checkRequest(request);
    return undefined;
  });

  recordAnswers(app, options);
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));

  // Every path has a route for every method that Node reads, OPTIONS too. So the hook above knows the path: it answers
  // OPTIONS, and 405 with what the path accepts.
  for (const method of METHODS)
    if (method !== 'CONNECT' && !app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  const methods = app.supportedMethods;
  const get: Get = (url, config, handler) => {
    app.route({ method: methods, url, config: { allow: ['GET', 'HEAD'], ...config }, handler });
  };

  const serveEndpoint = createServeEndpoint(options);
  for (const path of ENDPOINT_PATHS) get(path, { isForBrowsers: true }, serveEndpoint);
  for (const [path, routes] of Map.groupBy(options.routes, (r) => r.path))
    serveRoutes(app, methods, path, routes, logger);
  serveOwnPaths(get, options, recognize);
  return app;
}
