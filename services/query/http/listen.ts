import { once } from 'node:events';
import { createServer, type ListenOptions, type Server } from 'node:net';
import type { FastifyInstance } from 'fastify';

/** How many sockets of one address accept connections. */
const SOCKETS = 8;

/**
 * Listens with several sockets of one address on Linux, where the kernel divides connections among them. Node accepts one
 * connection of a socket in each turn of its event loop, and a turn takes up to 20 ms while ingest works off a backlog: so
 * of 50 callers that connected at once the last one waited for 200 ms. Returns the address, as Fastify writes it, and
 * `close`, which resolves when the connections of the other sockets are closed; the app closes its own. Rejects like
 * `net.Server.listen`.
 */
export async function listenOnSockets(
  app: FastifyInstance,
  host: string,
  port: number,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  // macOS has SO_REUSEPORT too, but does not divide connections
  if (process.platform !== 'linux')
    return { address: await app.listen({ host, port }), close: () => Promise.resolve() };
  // another process of our user could share the port: only a socket without reusePort is refused then
  await close(await open(createServer(), { host, port }));
  const at = { host, port, reusePort: true };
  const address = await app.listen(at);
  at.port = Number(new URL(address).port);
  const others: Server[] = [];
  for (let i = 1; i < SOCKETS; i++) {
    // allowHalfOpen and noDelay: as Node's own HTTP servers
    const socket = createServer({ allowHalfOpen: true, noDelay: true }, (one) => app.server.emit('connection', one));
    others.push(await open(socket, at));
  }
  return { address, close: async () => void (await Promise.all(others.map(close))) };
}

async function open(server: Server, options: ListenOptions): Promise<Server> {
  await once(server.listen(options), 'listening');
  return server;
}

async function close(server: Server): Promise<void> {
  await once(server.close(), 'close');
}
