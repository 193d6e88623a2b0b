/**
 * A process takes all its partitions at once. Of more reads than this the client would refuse some, callers' queries
 * too (READ_QUEUE in common/clickhouse/pool.ts).
 */
export const TAKEOVER_READS = 16;

/** Runs work when fewer others than a limit run. */
export type Limited = <T>(work: () => Promise<T>) => Promise<T>;

/** Returns a function that runs `most` works at a time, in the order of calls. */
export function limited(most: number): Limited {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (work) => {
    if (running < most) running++;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
