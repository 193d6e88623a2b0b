import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** Hands on every connection of a ClickHouse server to its Keeper. */
export interface KeeperRelay {
  readonly port: number;
  /** Ends all connections, and every new one until `heal`. */
  cut(): void;
  /** Cuts when a request with all of these texts comes, which Keeper never gets. Resolves when it has. */
  cutAt(...texts: readonly string[]): Promise<void>;
  heal(): void;
  close(): Promise<void>;
}

/** `target`: Keeper's port. */
export async function startKeeperRelay(target: number): Promise<KeeperRelay> {
  const clients = new Set<Socket>();
  let isCut = false;
  let isLast: (request: Buffer) => boolean = () => false;
  const cut = (): void => {
    isCut = true;
    for (const client of clients) client.destroy();
  };
  const relay = createServer((client) => {
    if (isCut) return void client.destroy();
    const keeper = connect(target, '127.0.0.1');
    clients.add(client);
    for (const [one, other] of [
      [client, keeper],
      [keeper, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.once('close', () => other.destroy());
    }
    client.once('close', () => clients.delete(client));
    // ClickHouse sends a request as a whole, and one of a few kB comes so
    client.on('data', (request: Buffer) => {
      if (!isLast(request)) keeper.write(request);
    });
    keeper.pipe(client);
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  return {
    port: (relay.address() as AddressInfo).port,
    cut,
    cutAt: (...texts) =>
      new Promise((resolve) => {
        isLast = (request) => {
          if (!texts.every((text) => request.includes(text))) return false;
          isLast = () => false;
          cut();
          resolve();
          return true;
        };
      }),
    heal() {
      isCut = false;
    },
    async close() {
      cut();
      relay.close();
      await once(relay, 'close');
    },
  };
}
