import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';

/** Another loopback address than the one that servers listen on: a relay stands there at the server's own port. */
export const RELAY_HOST = '127.0.0.2';

/** Hands on every connection to the same port of 127.0.0.1. */
interface Relay {
  /**
   * From now on nothing passes between this process and the server, in either direction, as if the cable were cut.
   * Neither side is told: its connections stay open and get no answer.
   */
  cut(pid: number): void;
  /** Whatever waits goes on. */
  heal(): void;
  close(): Promise<void>;
}

interface Link {
  readonly pid: number | undefined;
  readonly client: Socket;
  readonly server: Socket;
}

/** `pids`: the processes that connect. */
export async function startRelay(port: number, pids: () => readonly number[]): Promise<Relay> {
  const links = new Set<Link>();
  const cut = new Set<number | undefined>();
  const relay = createServer((client) => {
    const link = { pid: pidAt(client.remotePort!, pids()), client, server: connect(port, '127.0.0.1') };
    links.add(link);
    for (const [one, other] of [
      [client, link.server],
      [link.server, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.once('close', () => {
        other.destroy();
        links.delete(link);
      });
    }
    if (!cut.has(link.pid)) join(link);
  });
  relay.listen(port, RELAY_HOST);
  await once(relay, 'listening');
  return {
    cut(pid) {
      cut.add(pid);
      for (const { client, server } of [...links].filter((link) => link.pid === pid)) {
        client.unpipe(server).pause();
        server.unpipe(client).pause();
      }
    },
    heal() {
      for (const link of links) if (cut.has(link.pid)) join(link);
      cut.clear();
    },
    async close() {
      for (const { client } of links) client.destroy();
      relay.close();
      await once(relay, 'close');
    },
  };
}

function join({ client, server }: Link): void {
  client.pipe(server);
  server.pipe(client);
}

/** The process that has a connection of this machine open at this port of its own. */
function pidAt(port: number, pids: readonly number[]): number | undefined {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const sockets = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([, address]) => address?.endsWith(local) === true)
    .map((columns) => `socket:[${columns[9]}]`);
  return pids.find((pid) => openFiles(pid).some((file) => sockets.includes(file)));
}

function openFiles(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      // closed meanwhile
      return [];
    }
  });
}
