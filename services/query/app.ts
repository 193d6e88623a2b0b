import { randomUUID } from 'node:crypto';
import { METHODS, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Clock } from '../../common/clock.ts';
import { UsageError } from '../../common/command/command.ts';
import { ApiError, envelope, invalidParameters } from '../../common/http/errors.ts';
import type { Route } from '../../common/http/route.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { readinessOf, type Check } from '../../common/readiness.ts';
import type { Answers, CacheResult } from './answers.ts';
import type { Definitions } from './definition.ts';
import { docsPage } from './docs.ts';
import { hasScope, refuseEndpoint, refuseProject, type Key, type KeyRing } from './keys.ts';
import type { QueryMetrics } from './metrics.ts';
import { openapi } from './openapi.ts';
import { readParams } from './params.ts';
import { isModified, preferredEncoding } from './negotiate.ts';


export interface AppOptions {
  readonly definitions: () => Definitions;
  readonly answers: Answers;
  readonly keys: KeyRing;
  /** told of every request that a key was accepted for */
  readonly onKeyUsed: (key: Key, now: number) => void;
  /** resolves when the ring has a newer list, or soon */
  readonly refreshKeys: () => Promise<void>;
  readonly checks: Readonly<Record<string, Check>>;
  readonly routes: readonly Route[];
  readonly clock: Clock;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly metrics: QueryMetrics;
  /** requests a minute; 0 = no limit */
  readonly ratePerKey: number;
  readonly ratePerAddress: number;
  readonly trustProxy: boolean;
  /** PEM; the service speaks TLS only, where it has them */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer };
  /** false where /metrics has a port of its own */
  readonly serveMetrics: boolean;
}

const MAX_REQUEST_LINE = 16 * 1024;
/** Request line and all headers; Node's own default is 16 KiB for both. */
const MAX_HEADERS = 40 * 1024;
const FAILED_AUTHENTICATIONS_PER_MINUTE = 60;
const COMPRESS_FROM_BYTES = 1024;
const VARY = 'X-API-KEY, Authorization, Accept-Encoding, Origin';
const JSON_TYPE = 'application/json; charset=utf-8';
const ENDPOINT_PATHS = ['/api/endpoints/query/:endpoint', '/api/endpoints/query/name/:endpoint', '/api/endpoints/:endpoint', '/endpoints/query/:endpoint'];
const CORS = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers': 'age, allow, etag, ratelimit-limit, ratelimit-remaining, ratelimit-reset, retry-after, x-cache, x-request-id, x-result-truncated',
} as const;

declare module 'fastify' {
  interface FastifyInstance {
    /** requests that are not answered yet */
    underWay: () => number;
  }
  interface FastifyContextConfig {
    /** needs no key */
    open?: true;
    allow?: readonly string[];
  }
  interface FastifyRequest {
    key: Key | undefined;
    /** for the log line and the metrics */
    told: { endpoint: string; cache: CacheResult | '' };
    search: URLSearchParams | undefined;
  }
}

/** The key that decides: the first one present and not empty. Other Authorization schemes are not keys. */
function presentedKey(request: FastifyRequest): string | undefined {
  const header = request.headers['x-api-key'];
  if (typeof header === 'string' && header.trim() !== '') return header.trim();
  const bearer = /^bearer +(.*)$/i.exec(request.headers.authorization ?? '')?.[1]?.trim();
  if (bearer !== undefined && bearer !== '') return bearer;
  const parameter = queryOf(request).get('api_key');
  return parameter === null || parameter === '' ? undefined : parameter;
}

function queryOf(request: FastifyRequest): URLSearchParams {
  if (request.search === undefined) {
    const url = request.raw.url ?? '';
    const at = url.indexOf('?');
    request.search = new URLSearchParams(at < 0 ? '' : url.slice(at + 1));
  }
  return request.search;
}

/**
 * Everything below these is for callers with a key: they learn nothing else before it is shown, not even that a path is none.
 * However it is written: in absolute form (RFC 9112 section 3.2.2), with letters percent-encoded or of other case.
 */
function isGuarded(url: string): boolean {
  const path = url.replace(/^https?:\/\/[^/?#]*/i, '').replaceAll(/%([0-7][0-9a-f])/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return /^\/+(api|endpoints)(\/|\?|#|$)/i.test(path);
}

/** Why a query is ended whose caller went away: nobody is told, and nothing is wrong. */
const CALLER_LEFT = new Error('the caller has left');
/** What nginx calls such a request, for the metrics. */
const STATUS_CALLER_LEFT = 499;

/** The HTTP service, without a socket: `inject` and `listen` both work on it. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { definitions, answers, keys, clock, logger, metrics } = options;
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
  const perMinute = (max: number, keyGenerator: (request: FastifyRequest) => string) => app.createRateLimit({ max, timeWindow: 60_000, keyGenerator });
  const limitFailures = perMinute(FAILED_AUTHENTICATIONS_PER_MINUTE, (request) => request.ip);
  const limitAddress = options.ratePerAddress > 0 ? perMinute(options.ratePerAddress, (request) => request.ip) : undefined;
  const limitKey = options.ratePerKey > 0 ? perMinute(options.ratePerKey, (request) => request.key?.id ?? '') : undefined;

  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  function prepare(request: FastifyRequest, reply: FastifyReply): void {
    request.told = { endpoint: 'other', cache: '' };
    reply.headers({ ...CORS, 'x-request-id': request.id, vary: VARY });
  }

  /** Throws unless the request shows a key that holds. */
  async function authenticate(request: FastifyRequest): Promise<void> {
    if (request.routeOptions.config?.open === true || (request.is404 && !isGuarded(request.raw.url ?? ''))) return;
    const presented = presentedKey(request);
    let verdict = presented === undefined ? 'unauthorized' : keys.verdict(presented, clock());
    if (verdict === 'unauthorized') {
      metrics.failedAuthentications.inc();
      const limit = await limitFailures(request);
      if (!limit.isAllowed && limit.isExceeded) throw new ApiError('rate_limited', 'too many requests without a valid key', { retryAfterSeconds: limit.ttlInSeconds });
      if (presented === undefined) throw new ApiError('unauthorized', 'a key is needed: send it as X-API-KEY');
      // it may have been made a moment ago, by another process
      await options.refreshKeys();
      verdict = keys.verdict(presented, clock());
    }
    if (verdict === 'unavailable') throw new ApiError('unavailable', 'the keys are not loaded yet', { retryAfterSeconds: 1 });
    if (verdict === 'unauthorized') throw new ApiError('unauthorized', 'the key is not valid');
    request.key = verdict.key;
    options.onKeyUsed(verdict.key, clock());
  }

  async function applyRate(check: ReturnType<typeof perMinute> | undefined, request: FastifyRequest, reply: FastifyReply): Promise<void> {
    if (check === undefined) return;
    const limit = await check(request);
    if (limit.isAllowed) return;
    reply.headers({ 'ratelimit-limit': limit.max, 'ratelimit-remaining': limit.remaining, 'ratelimit-reset': limit.ttlInSeconds });
    if (limit.isExceeded) throw new ApiError('rate_limited', 'too many requests', { retryAfterSeconds: limit.ttlInSeconds });
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
    if (config?.open !== true) await applyRate(limitAddress, request, reply);
    await authenticate(request);
    if (request.key !== undefined) await applyRate(limitKey, request, reply);
    if ((request.raw.url ?? '').length > MAX_REQUEST_LINE) throw new ApiError('too_large', 'the address of the request is longer than 16 KiB');
    if (config?.allow !== undefined && !config.allow.includes(request.method)) {
      throw new ApiError('method_not_allowed', `this path takes ${config.allow.join(', ')}`, { allow: [...config.allow, 'OPTIONS'].join(', ') });
    }
    return undefined;
  });

  app.addHook('onResponse', async (request, reply) => {
    const { endpoint, cache } = request.told;
    const seconds = reply.elapsedTime / 1000;
    metrics.requests.inc({ endpoint, status: reply.statusCode, cache });
    if (endpoint !== 'other') metrics.seconds.observe({ endpoint, cache }, seconds);
    logger.debug({ request_id: request.id, method: request.method, endpoint, status: reply.statusCode, cache, key_id: request.key?.id, seconds }, 'request_answered');
  });

  function sendError(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
    if (thrown === CALLER_LEFT) {
      metrics.requests.inc({ endpoint: request.told.endpoint, status: STATUS_CALLER_LEFT, cache: '' });
      logger.debug({ request_id: request.id, endpoint: request.told.endpoint, key_id: request.key?.id }, 'caller_left');
      reply.hijack();
      return;
    }
    const error = thrown instanceof ApiError ? thrown : fromFastify(thrown as FastifyError);
    const fields = { request_id: request.id, endpoint: request.told.endpoint, key_id: request.key?.id, code: error.code };
    if (error.status === 500) logger.error({ ...fields, ...reasonOf(error.cause ?? error) }, 'request_failed');
    else if (error.status > 500) logger.warn({ ...fields, ...reasonOf(error.cause) }, 'request_failed');
    else logger.info({ ...fields, status: error.status }, 'request_refused');
    if (error.retryAfterSeconds !== undefined) reply.header('retry-after', error.retryAfterSeconds);
    if (error.allow !== undefined) reply.header('allow', error.allow);
    if (error.status === 401) reply.header('www-authenticate', 'Bearer');
    void reply.code(error.status).headers({ 'content-type': JSON_TYPE, 'cache-control': 'private, no-store' }).send(envelope(error, request.id));
  }
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request, reply) => sendError(new ApiError('not_found', 'there is nothing at this path'), request, reply));

  // Every method that Node reads has a route, so that the hook above can say what a path takes.
  for (const method of METHODS) if (method !== 'CONNECT' && !app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  const methods = app.supportedMethods.filter((m) => m !== 'OPTIONS');
  function get(url: string, open: boolean, handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>): void {
    app.route({ method: methods, url, config: { allow: ['GET', 'HEAD'], ...(open && { open }) }, handler });
  }

  /** Fires when the caller goes away before the answer. */
  function callerOf(reply: FastifyReply): AbortSignal {
    const controller = new AbortController();
    reply.raw.once('close', () => {
      if (!reply.raw.writableEnded) controller.abort(CALLER_LEFT);
    });
    return controller.signal;
  }

  async function answerEndpoint(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
    const { key } = request;
    if (key === undefined) throw new Error('unreachable: the hook has authenticated');
    const query = queryOf(request);
    const found = definitions().find((request.params as { endpoint: string }).endpoint);
    const refused = refuseEndpoint(key, found);
    if (refused !== undefined || found === undefined) throw refused ?? new ApiError('not_found', 'there is no such endpoint');
    request.told.endpoint = found.name;
    const hidden = refuseProject(key, found, query.getAll(found.project?.parameter ?? ''));
    if (hidden !== undefined) throw hidden;
    const read = readParams(found, query);
    if ('mistakes' in read) throw invalidParameters(read.mistakes);

    const { answer, cache } = await answers.answer(found, read.params, () => callerOf(reply));
    request.told.cache = cache;
    reply.headers({
      'content-type': JSON_TYPE,
      'x-cache': cache,
      'cache-control': cache === 'none' ? 'private, no-store' : cache === 'stale' ? 'no-cache' : `private, max-age=${found.cacheSeconds}`,
    });
    if (answer.truncated) reply.header('x-result-truncated', 'true');
    if (cache !== 'none') {
      reply.headers({ age: Math.max(0, Math.floor((clock() - answer.fetchedAt) / 1000)), etag: answer.etag });
      if (!isModified(request.headers['if-none-match'], answer.etag)) return await reply.code(304).send();
    }
    const encoding = answer.bytes > COMPRESS_FROM_BYTES ? preferredEncoding(request.headers['accept-encoding']) : undefined;
    if (encoding === undefined) return await reply.header('content-length', answer.bytes).send(answer.body);
    return await reply.header('content-encoding', encoding).send(await answers.encoded(answer, encoding));
  }
  for (const path of ENDPOINT_PATHS) get(path, false, answerEndpoint);

  for (const [path, routes] of Map.groupBy(options.routes, (r) => r.path)) {
    const routeOf = (request: FastifyRequest): Route => {
      const route = routes.find((r) => r.method === (request.method === 'HEAD' ? 'GET' : request.method));
      if (route === undefined) throw new Error('unreachable: the hook has looked at the method');
      return route;
    };
    app.route({
      method: methods,
      url: path,
      bodyLimit: Math.max(...routes.map((r) => r.bodyLimit)),
      config: { allow: routes.flatMap((r) => (r.method === 'GET' ? ['GET', 'HEAD'] : [r.method])) },
      // before the body is read: who may not send it need not, and what it takes is known to whoever bounds it
      onRequest: async (request, reply) => {
        const route = routeOf(request);
        if (request.key === undefined || !hasScope(request.key, route.scope)) throw new ApiError('forbidden', 'the key may not do this');
        const length = request.headers['content-length'];
        const release = route.admit?.(length === undefined ? route.bodyLimit : Math.min(Number(length), route.bodyLimit));
        if (release !== undefined) reply.raw.once('close', release);
      },
      handler: async (request, reply) => {
        const route = routeOf(request);
        const { key } = request;
        if (key === undefined) throw new Error('unreachable: the hook has looked at the key');
        const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
        if (body.length > route.bodyLimit) throw new ApiError('payload_too_large', `the body is larger than ${route.bodyLimit} bytes`);
        const response = await route.handle({ params: request.params as Record<string, string>, query: queryOf(request), headers: request.headers, body, key, signal: callerOf(reply) });
        reply.code(response.status).headers({ 'cache-control': 'private, no-store', ...response.headers });
        return await (response.json === undefined ? reply.send() : reply.header('content-type', JSON_TYPE).send(JSON.stringify(response.json)));
      },
    });
  }

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

/** For the log. ClickHouse's words behind "In scope" repeat the statement with its parameters, which is more than is needed. */
function reasonOf(cause: unknown): Record<string, unknown> {
  if (cause instanceof ClickHouseError) return { clickhouse_code: cause.code, reason: cause.codeName, ...(cause.kind !== 'retry' && { said: cause.message.replace(/:? In scope .*/s, '').slice(0, 300) }) };
  return cause === undefined ? {} : { err: cause };
}

/** What Fastify itself refuses, and what nobody foresaw. */
function fromFastify(error: FastifyError | UsageError): ApiError {
  if (error instanceof UsageError) return new ApiError('invalid_request', error.message, { cause: error });
  if (error.statusCode === 413) return new ApiError('payload_too_large', 'the body is too large', { cause: error });
  if (error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500) return new ApiError('invalid_request', 'the request cannot be read', { cause: error });
  return new ApiError('internal', 'something went wrong on our side', { cause: error });
}

/** A request that is no HTTP, or whose head is too large: there is no request object yet, only a socket. */
function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = randomUUID();
  const tooLarge = error.code === 'HPE_HEADER_OVERFLOW';
  const answer = tooLarge ? new ApiError('too_large', 'the request line and headers are too large', { status: 431 }) : new ApiError('invalid_request', 'the request cannot be read');
  const body = envelope(answer, requestId);
  const headers = { ...CORS, 'content-type': JSON_TYPE, 'content-length': Buffer.byteLength(body), 'cache-control': 'private, no-store', 'x-request-id': requestId, connection: 'close' };
  socket.end(`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}\r\n${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n${body}`);
}
