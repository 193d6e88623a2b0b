import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/** Outside of what systems give to connections: a port that was left for a moment can be had again. */
const FIRST = 20_000;
const LAST = 32_000;

/** A port of this machine that nobody has at this moment, for somebody who gives it up and takes it again. */
export async function lastingPort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST, LAST);
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer();
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}
