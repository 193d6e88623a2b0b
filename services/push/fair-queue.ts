/** Runs one task at a time. */
type FairQueue = <T>(owner: string, work: () => Promise<T>) => Promise<T>;

/**
 * Returns a queue that serves waiting owners in rotation, however many tasks each of them has: a key that sends a
 * thousand bodies delays another key by one task.
 */
export function createFairQueue(): FairQueue {
  /** in the order of the rotation */
  const waiting = new Map<string, (() => Promise<void>)[]>();
  let isRunning = false;

  async function run(): Promise<void> {
    for (let next = waiting.entries().next().value; next !== undefined; next = waiting.entries().next().value) {
      const [owner, queue] = next;
      const work = queue.shift();
      waiting.delete(owner);
      if (queue.length > 0) waiting.set(owner, queue);
      await work?.();
    }
    isRunning = false;
  }

  return (owner, work) =>
    new Promise((resolve, reject) => {
      const queue = waiting.get(owner) ?? [];
      waiting.set(owner, queue);
      queue.push(() => work().then(resolve, reject));
      if (isRunning) return;
      isRunning = true;
      void run();
    });
}
