import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../../../common/http/route.ts';
import { plainUrl } from './request.ts';
import { ENDPOINT_PATHS } from './serve-endpoint.ts';

/** They need no key, and are closed to pages of other origins. */
const OPEN_PATHS = ['/health', '/livez', '/readyz', '/metrics', '/docs'];

/**
 * Returns a function that tells whether pages of other origins may call a request's path: endpoints, push and their
 * description, but not metrics, keys and commands.
 */
export function createBrowserAccess(routes: readonly Route[]): (request: FastifyRequest) => boolean {
  const browserPaths = [
    ...ENDPOINT_PATHS,
    '/openapi.json',
    ...routes.filter(({ scope }) => scope !== 'admin').map(({ path }) => path),
  ];
  const closedPaths = ['/', ...OPEN_PATHS, ...routes.map(({ path }) => path)]
    .filter((path) => !browserPaths.includes(path))
    .map((path) => new RegExp(`^${path.replaceAll(/:\w+/g, '[^/]+')}/?$`));
  return (request) => {
    const { url } = request.routeOptions;
    if (url !== undefined) return browserPaths.includes(url);
    // no such path, or OPTIONS
    const path = plainUrl((request.raw.url ?? '').replace(/[?#].*$/s, ''));
    return !closedPaths.some((closed) => closed.test(path));
  };
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
