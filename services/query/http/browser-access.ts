import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../../../common/http/route.ts';
import { ENDPOINT_PATHS } from './serve-endpoint.ts';

/**
 * Returns a function that tells whether pages of other origins may call a request's path: endpoints, push and their
 * description, but not metrics, keys and commands.
 */
export function createBrowserAccess(routes: readonly Route[]): (request: FastifyRequest) => boolean {
  const browserPaths: readonly string[] = [
    ...ENDPOINT_PATHS,
    '/openapi.json',
    ...routes.filter(({ scope }) => scope !== 'admin').map(({ path }) => path),
  ];
  // without a url there is no such path
  return ({ routeOptions: { url } }) => url === undefined || browserPaths.includes(url);
}

export function answerOptions(request: FastifyRequest, reply: FastifyReply, isAllowed: boolean): FastifyReply {
  reply.code(204);
  if (isAllowed)
    reply.headers({
      'access-control-allow-methods': 'GET, HEAD, POST, DELETE, OPTIONS',
      'access-control-allow-headers':
        request.headers['access-control-request-headers'] ?? 'X-API-KEY, Authorization, Content-Type',
      'access-control-max-age': '86400',
    });
  return reply.send();
}
