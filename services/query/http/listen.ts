import { promises as dns } from 'node:dns';
import { once } from 'node:events';
import { createServer, type AddressInfo, type ListenOptions, type Server, type Socket } from 'node:net';
import { Server as TlsServer } from 'node:tls';
import type { FastifyInstance } from 'fastify';

/** How many sockets of one address accept connections. */
const SOCKETS = 8;

export interface Listening {
  /** as Fastify writes it */
  readonly address: string;
  /** Resolves when the connections of the other sockets are closed; the app closes its own. */
  readonly close: () => Promise<void>;
  /** Destroys every connection. Node's `closeAllConnections` misses those that have not completed a TLS handshake. */
  readonly destroyConnections: () => void;
}

/**
 * Listens with several sockets of one address on Linux, where the kernel divides connections among them. Node accepts
 * one connection of a socket in each turn of its event loop, and a turn takes up to 20 ms while ingest works off a
 * backlog: so of 50 callers that connected at once the last one waited for 200 ms. Rejects like `net.Server.listen`.
 */
export async function listenOnSockets(app: FastifyInstance, host: string, port: number): Promise<Listening> {
  const connections = new Set<Socket>();
  // with TLS too, this event has the socket of TCP
  app.server.on('connection', (socket: Socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  });
  const destroyConnections = (): void => {
    for (const socket of connections) socket.destroy();
  };
  // one address: of localhost Fastify would open others too, on servers without our handlers
  const { address: own } = await dns.lookup(host, { order: 'ipv4first' });
  // macOS has SO_REUSEPORT too, but does not divide connections
  const reusePort = process.platform === 'linux';
  // another process of our user could share the port: only a socket without reusePort is refused then
  await close(await open(createServer(), { host: own, port }));
  const at = { host: own, port, reusePort };
  const address = await app.listen(at);
  // not the port of the address: a URL with the default port of its scheme has none
  at.port = (app.server.address() as AddressInfo).port;
  // as Node's own servers
  const options = { allowHalfOpen: !(app.server instanceof TlsServer), noDelay: true };
  const others: Server[] = [];
  for (let i = 1; i < (reusePort ? SOCKETS : 1); i++) {
    const socket = createServer(options, (one) => app.server.emit('connection', one));
    others.push(await open(socket, at));
  }
  return { address, close: async () => void (await Promise.all(others.map(close))), destroyConnections };
}

async function open(server: Server, options: ListenOptions): Promise<Server> {
  await once(server.listen(options), 'listening');
  return server;
}

async function close(server: Server): Promise<void> {
  await once(server.close(), 'close');
}
