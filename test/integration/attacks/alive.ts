import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect } from 'vitest';
import type { Seen } from './liveness-probe.ts';

/** A service under attack answers /livez at least this often. */
const LONGEST_GAP_MS = 1_000;

/** Runs an attack while /livez is asked every 100 ms: each answer is 200, and comes within a second of the one before. */
export async function whileAlive<T>(address: string, attack: () => Promise<T>): Promise<T> {
  const probe = new Worker(new URL('liveness-probe.ts', import.meta.url), { workerData: address });
  await once(probe, 'message');
  const seen = once(probe, 'message') as Promise<[Seen]>;
  seen.catch(() => {});
  try {
    return await attack();
  } finally {
    probe.postMessage('over', []);
    const [{ statuses, longest }] = await seen;
    expect([[...statuses], longest < LONGEST_GAP_MS ? 'alive' : `${Math.round(longest)} ms`]).toEqual([[200], 'alive']);
  }
}
