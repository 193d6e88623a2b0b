/** Takes a turn to write a batch; resolves to what ends it, which called again does nothing. */
type Turns = () => Promise<() => void>;

/** Others do not wait longer than this for one that hangs, or that takes long for reasons of its own (a schema registry, thousands of refused messages). */
const TURN_MS = 2_000;

/**
 * Turns for so many at a time, the longest waiting first. A batch is cut when its turn comes, so that what arrives while others write is in it; cut before, it would
 * wait while its partition gathers another one behind it. Measured with 27 partitions that have traffic, on two cores: bench/README.md.
 */
export function createTurns(size: number, turnMs: number = TURN_MS): Turns {
  const waiting: (() => void)[] = [];
  let left = size;

  function begin(): () => void {
    left--;
    const end = (): void => {
      if (timer === undefined) return;
      clearTimeout(timer);
      timer = undefined;
      left++;
      waiting.shift()?.();
    };
    let timer: NodeJS.Timeout | undefined = setTimeout(end, turnMs);
    return end;
  }

  return () => new Promise((resolve) => {
    const start = (): void => resolve(begin());
    if (left > 0) start();
    else waiting.push(start);
  });
}
