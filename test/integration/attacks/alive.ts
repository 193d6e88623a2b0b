import { readFileSync } from 'node:fs';
import { expect } from 'vitest';
import { send } from '../query/service.ts';

/** Longer than this nobody waits, milliseconds. */
const LONGEST_GAP_MS = 1_000;
const SAMPLE_MS = 100;

/**
 * Milliseconds that the main thread of a process was ready to run and had no core. Its share of a busy machine says
 * nothing about its own work.
 */
const waitedForCoreMs = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6;

/**
 * Runs an attack on a service, of the process `pid`, while /livez is asked every 100 ms: each answer is 200, and none
 * comes later than a second after the one before. Time without a core does not count.
 */
export async function whileAlive<T>(address: string, attack: () => Promise<T>, pid: number = process.pid): Promise<T> {
  const now = (): number =>
    performance.now() - waitedForCoreMs(process.pid) - (pid === process.pid ? 0 : waitedForCoreMs(pid));
  const statuses = new Set<number>();
  let longest = 0;
  let isOver = false;
  const sampling = (async () => {
    let last = now();
    for (let done = false; !done;) {
      done = isOver;
      statuses.add((await send(address, '/livez')).status);
      const answeredAt = now();
      longest = Math.max(longest, answeredAt - last);
      last = answeredAt;
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
