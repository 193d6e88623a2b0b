import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StartError } from './errors.ts';
import { addressOf } from './http/address.ts';
import type { Component } from './lifecycle/run.ts';
import type { Registry } from './metrics.ts';
import { readinessOf, watchReadiness, type Checks } from './readiness.ts';

export interface MetricsServer extends Component {
  /** `http://host:port` */
  readonly address: string;
}

/**
 * Serves /metrics, /livez and /readyz on METRICS_PORT, whatever the method, and nothing else. Ingest and rollup, which
 * have no HTTP of their own, are watched through it. Port 0 is any free one. Throws StartError if the port is not
 * available.
 */
export async function serveMetrics(
  registry: Registry,
  host: string,
  port: number,
  checks: Checks,
): Promise<MetricsServer> {
  watchReadiness(registry, checks);
  const server = createServer((request, response) => {
    const [path = ''] = (request.url ?? '').split('?', 1);
    void answerProbe(path, registry, checks).then(
      ({ status, type, body }) =>
        response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(body),
      () => response.writeHead(500).end(),
    );
  });
  try {
    server.listen(port, host);
    await once(server, 'listening');
  } catch (error) {
    throw portError('METRICS_PORT', port, host, error);
  }
  return {
    name: 'metrics',
    address: addressOf(host, (server.address() as AddressInfo).port),
    stop: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

const JSON_TYPE = 'application/json; charset=utf-8';

export async function answerProbe(
  path: string,
  registry: Registry,
  checks: Checks,
): Promise<{ readonly status: number; readonly type: string; readonly body: string }> {
  if (path === '/metrics') return { status: 200, type: registry.contentType, body: await registry.metrics() };
  if (path === '/livez') return { status: 200, type: JSON_TYPE, body: '{"status":"ok"}' };
  if (path !== '/readyz') return { status: 404, type: JSON_TYPE, body: '{"status":"not_found"}' };
  const readiness = await readinessOf(checks);
  return { status: readiness.status === 'ready' ? 200 : 503, type: JSON_TYPE, body: JSON.stringify(readiness) };
}

/** Returns why a port cannot be opened, in one line. */
export function portError(setting: 'PORT' | 'METRICS_PORT', port: number, host: string, error: unknown): StartError {
  const code = (error as NodeJS.ErrnoException).code;
  const why =
    code === 'EADDRINUSE'
      ? `is in use; stop the program that listens there, or set ${setting}`
      : code === 'EACCES'
        ? `needs more rights; set ${setting} to 1024 or higher`
        : `cannot be opened (${code}); check HOST and ${setting}`;
  return new StartError(`port ${port} on ${host} ${why}`, { cause: error });
}
