import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError } from '../../common/http/errors.ts';
import type { Logger } from '../../common/logger.ts';
import type { Route } from '../../common/http/route.ts';
import { hasScope } from './keys.ts';
import { JSON_TYPE, callerOf, queryOf, whenClosed } from './request.ts';

/** Serves the routes of one path; `methods`: all that Node reads, of which those that no route takes get no further than the app's hook. */
export function serveRoutes(app: FastifyInstance, methods: readonly string[], path: string, routes: readonly Route[], logger: Logger): void {
  const routeOf = (request: FastifyRequest): Route => {
    const route = routes.find((r) => r.method === (request.method === 'HEAD' ? 'GET' : request.method));
    if (route === undefined) throw new Error('unreachable: the hook has looked at the method');
    return route;
  };
  app.route({
    method: [...methods],
    url: path,
    bodyLimit: Math.max(...routes.map((r) => r.bodyLimit)),
    config: { allow: routes.flatMap((r) => (r.method === 'GET' ? ['GET', 'HEAD'] : [r.method])) },
    // before the body is read: who may not send it need not, and what it takes is known to whoever bounds it
    onRequest: async (request, reply) => {
      const route = routeOf(request);
      if (request.key === undefined || !hasScope(request.key, route.scope)) throw new ApiError('forbidden', 'the key may not do this');
      const length = request.headers['content-length'];
      const release = route.admit?.(length === undefined ? route.bodyLimit : Math.min(Number(length), route.bodyLimit));
      if (release !== undefined) whenClosed(reply, release);
    },
    handler: async (request, reply) => {
      const route = routeOf(request);
      const { key } = request;
      if (key === undefined) throw new Error('unreachable: the hook has looked at the key');
      const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      if (body.length > route.bodyLimit) throw new ApiError('payload_too_large', `the body is larger than ${route.bodyLimit} bytes`);
      const response = await route.handle({ params: request.params as Record<string, string>, query: queryOf(request), headers: request.headers, body, key, address: request.ip, signal: callerOf(reply) });
      if (route.scope === 'admin' && route.method !== 'GET') {
        logger.info({ request_id: request.id, key_id: key.id, address: request.ip, method: route.method, path, status: response.status, ...response.audit }, 'admin_action');
      }
      reply.code(response.status).headers({ 'cache-control': 'private, no-store', ...response.headers });
      return await (response.json === undefined ? reply.send() : reply.header('content-type', JSON_TYPE).send(JSON.stringify(response.json)));
    },
  });
}
