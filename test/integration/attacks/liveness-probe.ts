import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { parentPort, workerData } from 'node:worker_threads';

/**
 * Asks a service for /livez every 100 ms, in a thread of its own: what the thread of the attack does meanwhile, reading
 * answers of megabytes among it, does not count as silence of the service. Posts at its first answer, and what it saw
 * once it gets a message.
 */
const SAMPLE_MS = 100;

export interface Seen {
  readonly statuses: ReadonlySet<number | undefined>;
  /** from one answer to the next, milliseconds */
  readonly longest: number;
}

const port = parentPort!;
const statuses = new Set<number | undefined>();
let longest = 0;
let isOver = false;
port.once('message', () => {
  isOver = true;
});

await ask();
port.postMessage(undefined);
let last = performance.now();
for (let done = false; !done;) {
  await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
  done = isOver;
  await ask();
  const now = performance.now();
  longest = Math.max(longest, now - last);
  last = now;
}
port.postMessage({ statuses, longest } satisfies Seen);

async function ask(): Promise<void> {
  const [response] = (await once(get(`${workerData as string}/livez`, { agent: false }), 'response')) as [
    IncomingMessage,
  ];
  statuses.add(response.statusCode);
  await once(response.resume(), 'end');
}
