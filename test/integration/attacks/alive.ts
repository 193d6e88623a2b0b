import { monitorEventLoopDelay } from 'node:perf_hooks';
import { expect } from 'vitest';
import { send } from '../query/service.ts';

/** Longer than this nobody waits, milliseconds. */
const LONGEST_GAP_MS = 1_000;
const SAMPLE_MS = 100;

/**
 * Runs an attack on a service of this process, while /livez is asked every 100 ms and answers 200. The longest gap is
 * that of the service's own event
 * loop: on a machine that has more to do than cores, the time of an answer says more about the machine.
 */
export async function whileAlive<T>(address: string, attack: () => Promise<T>): Promise<T> {
  const delay = monitorEventLoopDelay({ resolution: 10 });
  const statuses = new Set<number>();
  let samples = 0;
  let ended = false;
  const sampling = (async () => {
    while (!ended) {
      statuses.add((await send(address, '/livez')).status);
      samples++;
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
    }
  })();
  delay.enable();
  try {
    return await attack();
  } finally {
    delay.disable();
    ended = true;
    await sampling;
    expect([
      [...statuses],
      samples > 0,
      delay.max / 1e6 < LONGEST_GAP_MS ? 'alive' : `${Math.round(delay.max / 1e6)} ms`,
    ]).toEqual([[200], true, 'alive']);
  }
}
