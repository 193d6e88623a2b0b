/** Takes a permit to write a batch. Resolves to an idempotent release function. */
export type TakePermit = () => Promise<() => void>;

export interface PermitLimits {
  /** batches that are written at a time */
  readonly size: number;
  /**
   * batches that are written at a time together with those that take longer than SLOW_MS; the engine has room for one
   * statement more, the ledger's
   */
  readonly most: number;
}

/** Others wait at most this long for an insert that hangs or is slow. */
const SLOW_MS = 1_000;

/**
 * Write permits of one process, first come, first served. A batch is cut when it has its permit, so it takes in what
 * arrives while others write. After a second, the holder of a permit no longer delays the next one.
 */
export function createPermits({ size, most }: PermitLimits): TakePermit {
  const waiting: (() => void)[] = [];
  let held = 0;
  let slow = 0;

  function next(): void {
    while (waiting.length > 0 && held < most && held - slow < size) waiting.shift()!();
  }

  function take(): () => void {
    held++;
    let isSlow = false;
    let isHeld = true;
    const timer = setTimeout(() => {
      isSlow = true;
      slow++;
      next();
    }, SLOW_MS);
    return () => {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      held--;
      if (isSlow) slow--;
      next();
    };
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(() => resolve(take()));
      next();
    });
}
