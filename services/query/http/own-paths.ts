import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../../../common/http/route.ts';
import type { Registry } from '../../../common/metrics.ts';
import { readinessOf, watchReadiness, type Check } from '../../../common/readiness.ts';
import type { Definitions } from '../definition/definition-files.ts';
import { hasScope } from '../keys/key-ring.ts';
import { docsPage } from './docs.ts';
import { openapi } from './openapi.ts';
import { JSON_TYPE, SAFE } from './request.ts';

export interface OwnPathsOptions {
  readonly definitions: () => Definitions;
  readonly routes: readonly Route[];
  readonly checks: Readonly<Record<string, Check>>;
  readonly registry: Registry;
  /** false if /metrics has a port of its own */
  readonly serveMetrics: boolean;
}

/** Serves a GET path. `open`: it needs no key. */
export type Get = (
  url: string,
  open: boolean,
  handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
) => void;

/** Serves the paths about the service itself: health, readiness, description and metrics. */
export function serveOwnPaths(
  get: Get,
  { definitions, routes, checks, registry, serveMetrics }: OwnPathsOptions,
  recognize: (request: FastifyRequest) => Promise<void>,
): void {
  const sendJson = async (reply: FastifyReply, status: number, value: unknown): Promise<unknown> =>
    await reply
      .code(status)
      .headers({ 'content-type': JSON_TYPE, 'cache-control': 'no-store' })
      .send(JSON.stringify(value));
  for (const path of ['/health', '/livez'])
    get(path, true, async (_request, reply) => await sendJson(reply, 200, { status: 'ok' }));
  get('/readyz', true, async (_request, reply) => {
    const readiness = await readinessOf(checks);
    return await sendJson(reply, readiness.status === 'ready' ? 200 : 503, readiness);
  });
  // operators' routes are shown to operators only
  const shown = async (request: FastifyRequest): Promise<readonly Route[]> => {
    await recognize(request);
    return routes.filter(
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
  if (serveMetrics) {
    watchReadiness(registry, checks);
    get(
      '/metrics',
      true,
      async (_request, reply) =>
        await reply
          .headers({ 'content-type': registry.contentType, 'cache-control': 'no-store' })
          .send(await registry.metrics()),
    );
  }
}
