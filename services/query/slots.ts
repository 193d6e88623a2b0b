import { ApiError } from '../../common/http/errors.ts';

/**
 * Bounded concurrency of queries, with a short queue: a query that would wait longer than it is worth is refused at once.
 * Background work takes only its share and never waits.
 */
export interface Slots {
  /** Resolves to the function that gives the slot back. Throws `unavailable` where too many wait or the wait is too long. */
  acquire(signal: AbortSignal): Promise<() => void>;
  /** A slot for background work, or undefined where its share is taken. */
  tryAcquireBackground(): (() => void) | undefined;
  readonly running: () => number;
  readonly waiting: () => number;
}

export interface SlotLimits {
  readonly concurrency: number;
  readonly queue: number;
  readonly waitMs: number;
}

/** `queue`: how many may wait, each for waitMs at most. */
export function createSlots({ concurrency, queue, waitMs }: SlotLimits): Slots {
  const backgroundShare = Math.max(1, Math.floor(concurrency / 2));
  const waiters = new Set<(release: () => void) => void>();
  let running = 0;
  let background = 0;

  /** A slot; given back twice, it counts once. */
  const take = (onGiven: () => void = () => {}): (() => void) => {
    running++;
    let given = false;
    return () => {
      if (given) return;
      given = true;
      running--;
      onGiven();
      const [next] = waiters;
      if (next !== undefined) {
        waiters.delete(next);
        next(take());
      }
    };
  };

  return {
    async acquire(signal) {
      signal.throwIfAborted();
      if (running < concurrency) return take();
      if (waiters.size >= queue) throw new ApiError('unavailable', 'too many queries are waiting', { retryAfterSeconds: 1 });
      return await new Promise((resolve, reject) => {
        const leave = (error: Error): void => {
          waiters.delete(grant);
          clearTimeout(timer);
          signal.removeEventListener('abort', onAbort);
          reject(error);
        };
        const onAbort = (): void => leave(signal.reason as Error);
        const timer = setTimeout(() => leave(new ApiError('unavailable', 'too many queries are running', { retryAfterSeconds: 1 })), waitMs);
        const grant = (release: () => void): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', onAbort);
          resolve(release);
        };
        signal.addEventListener('abort', onAbort, { once: true });
        waiters.add(grant);
      });
    },
    tryAcquireBackground() {
      if (running >= concurrency || background >= backgroundShare || waiters.size > 0) return undefined;
      background++;
      return take(() => { background--; });
    },
    running: () => running,
    waiting: () => waiters.size,
  };
}
