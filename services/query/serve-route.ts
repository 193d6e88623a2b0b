import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError } from '../../common/http/errors.ts';
import type { Caller, Route } from '../../common/http/route.ts';
import { hasScope } from './keys.ts';
import { receiveBody } from './receive-body.ts';
import { JSON_TYPE, callerOf, queryOf, whenClosed } from './request.ts';

const NOBODY: Caller = { id: '', projects: [] };

/** Serves the routes of one path; `methods`: all that Node reads, of which those that no route takes get no further than the app's hook. */
export function serveRoutes(app: FastifyInstance, methods: readonly string[], path: string, routes: readonly Route[]): void {
  const routeOf = (request: FastifyRequest): Route => {
    const route = routes.find((r) => r.method === (request.method === 'HEAD' ? 'GET' : request.method));
    if (route === undefined) throw new Error('unreachable: the hook has looked at the method');
    return route;
  };
  app.route({
    method: [...methods],
    url: path,
    bodyLimit: Math.max(...routes.map((r) => r.bodyLimit)),
    config: { allow: routes.flatMap((r) => (r.method === 'GET' ? ['GET', 'HEAD'] : [r.method])), ...(routes.every((r) => r.open) && { open: true as const }) },
    // before the body is read: who may not send it need not
    onRequest: async (request) => {
      const route = routeOf(request);
      if (route.open === true) return;
      if (request.key === undefined || !hasScope(request.key, route.scope)) throw new ApiError('forbidden', 'the key may not do this');
    },
    preParsing: (request, reply, payload, done) => {
      const route = routeOf(request);
      const { key } = request;
      const releases: (() => void)[] = [];
      whenClosed(reply, () => { for (const release of releases.splice(0)) release(); });
      done(null, receiveBody(payload, { take: (bytes) => { if (route.admit !== undefined && key !== undefined && !reply.raw.destroyed) releases.push(route.admit(bytes, key)); } }));
    },
    handler: async (request, reply) => {
      const route = routeOf(request);
      const key = route.open === true ? NOBODY : request.key;
      if (key === undefined) throw new Error('unreachable: the hook has looked at the key');
      const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      if (body.length > route.bodyLimit) throw new ApiError('payload_too_large', `the body is larger than ${route.bodyLimit} bytes`);
      const response = await route.handle({ params: request.params as Record<string, string>, query: queryOf(request), headers: request.headers, body, key, address: request.ip, port: request.raw.socket.localPort ?? 0, signal: callerOf(reply) });
      reply.code(response.status).headers({ 'cache-control': 'private, no-store', ...response.headers });
      return await (response.json === undefined ? reply.send() : reply.header('content-type', JSON_TYPE).send(JSON.stringify(response.json)));
    },
  });
}
