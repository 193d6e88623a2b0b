import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A shared read begins this long after the first caller asked. A process takes many partitions at a time: a read of all
 * rows for each of them would grow with the square of the partitions, and a read of its own costs 7 ms of CPU.
 */
const GATHER_MS = 10;

/** Returns a function that reads. Callers within GATHER_MS share one read, which begins after all of them have asked. */
export function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let gathering: Promise<T> | undefined;
  async function gather(): Promise<T> {
    await sleep(GATHER_MS);
    gathering = undefined;
    return await read();
  }
  return async () => await (gathering ??= gather());
}
