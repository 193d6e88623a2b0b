import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { endOf } from '../../../common/http/address.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { AnyRoute, OpenRoute, RouteResponse } from '../../../common/http/route.ts';
import type { Logger } from '../../../common/logger.ts';
import { hasScope } from '../keys/key-ring.ts';
import { preferredEncoding, sendCompressed } from './negotiate.ts';
import { receiveBody } from './receive-body.ts';
import { CALLER_LEFT, JSON_TYPE, callerOf, keyOf, queryOf, whenClosed } from './request.ts';
import { errorOf } from './send-error.ts';

/**
 * Serves the routes that other components have at one path. `methods` are all that Node reads; the app's hook answers
 * OPTIONS, and refuses those that no route takes.
 */
export function serveRoutes(
  app: FastifyInstance,
  methods: readonly string[],
  path: string,
  routes: readonly AnyRoute[],
  logger: Logger,
): void {
  const answered = (request: FastifyRequest, status: number): boolean => {
    const route = findRoute(routes, request);
    route?.answered?.({ query: queryOf(request), headers: request.headers }, status);
    return route?.answered !== undefined;
  };
  // the app's hook has looked at the method
  const routeOf = (request: FastifyRequest): AnyRoute => findRoute(routes, request)!;
  app.route({
    method: [...methods],
    url: path,
    bodyLimit: Math.max(...routes.map((r) => r.bodyLimit)),
    config: {
      allow: allowed(routes),
      answered,
      open: routes.every(({ scope }) => scope === undefined),
      isForBrowsers: routes.some(({ scope }) => scope !== undefined && scope !== 'admin'),
    },
    // before the body is read: a caller without the right should not have to send it
    onRequest: async (request) => {
      const { scope } = routeOf(request);
      if (scope !== undefined && scope !== 'any' && !hasScope(keyOf(request), scope))
        throw new ApiError('forbidden', 'the key may not do this');
    },
    preParsing: (request, reply, payload, done) => {
      const route = routeOf(request);
      const releases: (() => void)[] = [];
      whenClosed(reply, () => {
        for (const release of releases.splice(0)) release();
      });
      const take = (bytes: number): void => {
        if (route.admit !== undefined && !reply.raw.destroyed) releases.push(route.admit(bytes, keyOf(request)));
      };
      done(null, receiveBody(payload, take));
    },
    handler: async (request, reply) => {
      const route = routeOf(request);
      // Node sets it back for the next request of the connection
      if (route.timeoutMs !== undefined) request.raw.socket.setTimeout(route.timeoutMs);
      const audit = (outcome: 'done' | 'failed' | 'caller_left', fields: object): void => {
        if (route.scope !== 'admin' || route.method === 'GET') return;
        const by = { request_id: request.id, key_id: request.key?.id, address: request.ip };
        logger.info({ ...by, method: route.method, path, outcome, ...fields }, 'admin_action');
      };
      let response: RouteResponse;
      try {
        const asked = requestOf(request, reply);
        response = await (route.scope === undefined
          ? route.handle(asked)
          : route.handle({ ...asked, key: keyOf(request) }));
      } catch (error) {
        const { status, code } = errorOf(error);
        if (error === CALLER_LEFT) audit('caller_left', {});
        else audit('failed', { status, code });
        throw error;
      }
      audit('done', { status: response.status, ...response.audit });
      return await sendResponse(reply, response);
    },
  });
}

function findRoute(routes: readonly AnyRoute[], { method }: FastifyRequest): AnyRoute | undefined {
  return routes.find((r) => r.method === (method === 'HEAD' ? 'GET' : method));
}

function allowed(routes: readonly AnyRoute[]): string[] {
  return routes.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
}

function requestOf(request: FastifyRequest, reply: FastifyReply): Parameters<OpenRoute['handle']>[0] {
  return {
    params: request.params as Record<string, string>,
    query: queryOf(request),
    headers: request.headers,
    body: Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0),
    address: request.ip,
    arrivedAt: endOf(request.raw.socket.localAddress, request.raw.socket.localPort),
    signal: callerOf(reply),
  };
}

async function sendResponse(reply: FastifyReply, response: RouteResponse): Promise<unknown> {
  reply.code(response.status).headers({ 'cache-control': 'private, no-store', ...response.headers });
  if (response.body !== undefined) {
    const encoding = preferredEncoding(reply.request.headers['accept-encoding']);
    if (encoding !== undefined) reply.header('content-encoding', encoding);
    return await reply.send(response.body[encoding ?? 'plain']);
  }
  if (response.json === undefined) return await reply.send();
  return await sendCompressed(reply.header('content-type', JSON_TYPE), JSON.stringify(response.json));
}
