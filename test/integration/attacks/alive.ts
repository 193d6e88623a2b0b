import { expect } from 'vitest';
import { send } from '../query/service.ts';

/** A service under attack answers /livez at least this often. */
const LONGEST_GAP_MS = 1_000;
const SAMPLE_MS = 100;

/** Runs an attack while /livez is asked every 100 ms: each answer is 200, and comes within a second of the one before. */
export async function whileAlive<T>(address: string, attack: () => Promise<T>): Promise<T> {
  const statuses = new Set<number>();
  let longest = 0;
  let isOver = false;
  const sampling = (async () => {
    let last = performance.now();
    for (let done = false; !done;) {
      done = isOver;
      statuses.add((await send(address, '/livez')).status);
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
    }
  })();
  try {
    return await attack();
  } finally {
    isOver = true;
    await sampling;
    expect([[...statuses], longest < LONGEST_GAP_MS ? 'alive' : `${Math.round(longest)} ms`]).toEqual([[200], 'alive']);
  }
}
