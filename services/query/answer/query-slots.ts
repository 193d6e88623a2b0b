import { ApiError } from '../../../common/http/errors.ts';
import { createTotals } from '../../../common/http/totals.ts';
import type { Shares } from './shares.ts';

/** The owner of requeries; no key has this id. */
export const BACKGROUND = '';

interface SlotLimits {
  readonly concurrency: number;
  /** the number of queries that may wait, each for at most waitMs */
  readonly queue: number;
  readonly waitMs: number;
  readonly shares: Shares;
}

interface Waiter extends PromiseWithResolvers<() => void> {
  readonly owner: string;
}

/** A query of the key `owner` got no slot, or no memory for its answer. */
export class NoRoom extends ApiError {
  readonly owner: string;
  constructor(owner: string, message: string, retryAfterSeconds = 1) {
    super('unavailable', message, { retryAfterSeconds });
    this.owner = owner;
  }
}

/** Waits among the waiters. Resolves to the release function of a slot, and rejects if refused, too late or aborted. */
async function waitIn(waiters: Set<Waiter>, owner: string, waitMs: number, signal: AbortSignal): Promise<() => void> {
  const waiter: Waiter = { owner, ...Promise.withResolvers<() => void>() };
  // leaves at once: a waiter that is still there may be given a slot
  const leave = (error: Error): void => {
    waiters.delete(waiter);
    waiter.reject(error);
  };
  const onAbort = (): void => leave(signal.reason as Error);
  const timer = setTimeout(() => leave(new NoRoom(owner, 'too many queries are running')), waitMs);
  signal.addEventListener('abort', onAbort, { once: true });
  waiters.add(waiter);
  try {
    return await waiter.promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

export type QuerySlots = ReturnType<typeof createQuerySlots>;

/**
 * Bounds the number of concurrent queries, with a short queue. A query that has waited for `waitMs` is refused. If the
 * queue is full, a new query is refused at once. But if another key has at least two more in it, the newest of the key
 * with the most is refused instead. Background work takes only its share and never waits.
 * No key has the last slot, unless there is only one. If another key asked within the last minute, a key has at most
 * half of the slots. Of the waiting queries, those of the key with the fewest running go first.
 */
export function createQuerySlots({ concurrency, queue, waitMs, shares }: SlotLimits) {
  const backgroundShare = Math.max(1, Math.floor(concurrency / 2));
  // in the order of their arrival
  const waiters = new Set<Waiter>();
  const running = createTotals();

  const mayRun = (owner: string): boolean => {
    const most = shares.hasOthers(owner) ? Math.floor(concurrency / 2) : concurrency - 1;
    return running.all() < concurrency && running.of(owner) < Math.max(1, most);
  };

  /** Takes a slot and returns its release function, which is idempotent. */
  function take(owner: string): () => void {
    const release = running.take(owner, 1);
    return () => {
      release();
      grantNext();
    };
  }

  function grantNext(): void {
    for (;;) {
      let next: Waiter | undefined;
      for (const waiter of waiters)
        if (mayRun(waiter.owner) && (next === undefined || running.of(waiter.owner) < running.of(next.owner)))
          next = waiter;
      if (next === undefined) return;
      waiters.delete(next);
      next.resolve(take(next.owner));
    }
  }

  /**
   * Frees a place in a full queue for a key that has at least two queries fewer in it than another. False if there is
   * no such key.
   */
  function makeRoom(owner: string): boolean {
    const waitingOf = Map.groupBy(waiters, (waiter) => waiter.owner);
    const [most] = [...waitingOf.values()].toSorted((a, b) => b.length - a.length);
    if (most === undefined || most.length <= (waitingOf.get(owner)?.length ?? 0) + 1) return false;
    const newest = most.at(-1)!;
    waiters.delete(newest);
    newest.reject(new NoRoom(newest.owner, 'too many queries of this key are waiting'));
    return true;
  }

  return {
    /**
     * Resolves to an idempotent release function. Throws `unavailable` if too many queries wait or the wait is too
     * long. `owner` is the key that asks.
     */
    async acquire(signal: AbortSignal, owner: string): Promise<() => void> {
      signal.throwIfAborted();
      // a key that waits may have more slots now: the last call of another one may be more than a minute ago
      grantNext();
      if (mayRun(owner)) return take(owner);
      if (waiters.size >= queue && !makeRoom(owner)) throw new NoRoom(owner, 'too many queries are waiting');
      return await waitIn(waiters, owner, waitMs, signal);
    },
    /**
     * Returns the release function of a slot for background work. Undefined if its share is taken, or no slot is free
     * after the waiting queries that may run have theirs.
     */
    tryAcquireBackground(): (() => void) | undefined {
      grantNext();
      return running.all() >= concurrency || running.of(BACKGROUND) >= backgroundShare ? undefined : take(BACKGROUND);
    },
    running: running.all,
    waiting: () => waiters.size,
  };
}
