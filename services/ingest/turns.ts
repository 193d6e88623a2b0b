/**
 * Whose turn it is to write a batch: so many at a time, the longest waiting first. A batch is cut when its turn comes, so that what arrives while others write is
 * in it; cut before, it would wait and its partition gather another one behind it. Measured with 27 partitions that have traffic, on two cores: bench/README.md.
 */
export interface Turns {
  /** Resolves to what ends the turn; called again it does nothing. */
  take(): Promise<() => void>;
  /** From now on it is everybody's turn. */
  open(): void;
}

export function createTurns(size: number): Turns {
  const waiting: (() => void)[] = [];
  let left = size;

  function begin(): () => void {
    left--;
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      left++;
      if (left > 0) waiting.shift()?.();
    };
  }

  return {
    take: () => new Promise((resolve) => {
      const start = (): void => resolve(begin());
      if (left > 0) start();
      else waiting.push(start);
    }),
    open() {
      left = Number.POSITIVE_INFINITY;
      for (const start of waiting.splice(0)) start();
    },
  };
}
