import type { FastifyContextConfig, FastifyReply, FastifyRequest } from 'fastify';
import type { AnyRoute } from '../../../common/http/route.ts';
import { answerProbe } from '../../../common/metrics-server.ts';
import type { Registry } from '../../../common/metrics.ts';
import { watchReadiness, type Checks } from '../../../common/readiness.ts';
import type { Definitions } from '../definition/definition-files.ts';
import { hasScope } from '../keys/key-ring.ts';
import { docsPage } from './docs.ts';
import { openapi } from './openapi.ts';
import { JSON_TYPE, SAFE } from './request.ts';
import { sendCompressed } from './negotiate.ts';

export interface OwnPathsOptions {
  readonly definitions: () => Definitions;
  readonly routes: readonly AnyRoute[];
  readonly checks: Checks;
  readonly registry: Registry;
  /** false if /metrics has a port of its own */
  readonly serveMetrics: boolean;
}

export type Get = (
  url: string,
  config: Omit<FastifyContextConfig, 'allow'>,
  handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
) => void;

/** Serves the paths about the service itself: health, readiness, description and metrics. */
export function serveOwnPaths(
  get: Get,
  { definitions, routes, checks, registry, serveMetrics }: OwnPathsOptions,
  recognize: (request: FastifyRequest) => Promise<void>,
): void {
  const send = (reply: FastifyReply, type: string, body: string): Promise<unknown> =>
    sendCompressed(reply.headers({ 'content-type': type, 'cache-control': 'no-store' }), body);
  const serveProbe = (url: string, probe: '/livez' | '/readyz' | '/metrics'): void =>
    // counted by nobody: its 503 is what was asked for, and no failed request
    get(url, { open: true, answered: () => true }, async (_, reply) => {
      const { status, type, body } = await answerProbe(probe, registry, checks);
      return await send(reply.code(status), type, body);
    });
  serveProbe('/health', '/livez');
  serveProbe('/livez', '/livez');
  serveProbe('/readyz', '/readyz');
  // operators' routes are shown to operators only
  const shown = async (request: FastifyRequest): Promise<readonly AnyRoute[]> => {
    await recognize(request);
    return routes.filter(
      ({ scope }) => scope !== 'admin' || (request.key !== undefined && hasScope(request.key, scope)),
    );
  };
  get('/openapi.json', { open: true, isForBrowsers: true }, async (request, reply) => {
    const body = JSON.stringify(openapi(definitions().all, await shown(request)));
    return await send(reply, JSON_TYPE, body);
  });
  get('/docs', { open: true }, async (request, reply) => {
    reply.header('content-security-policy', `${SAFE['content-security-policy']}; style-src 'unsafe-inline'`);
    const address = `${request.protocol}://${request.host}`;
    const page = docsPage(definitions().all, { routes: await shown(request), address });
    return await send(reply, 'text/html; charset=utf-8', page);
  });
  if (serveMetrics) {
    watchReadiness(registry, checks);
    serveProbe('/metrics', '/metrics');
  }
}
