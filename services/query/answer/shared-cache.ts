import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../../common/clock.ts';
import { etagOf } from '../render/render.ts';
import { answerOf, type Answer } from './answer.ts';
import { STALE_MS } from './cache.ts';

export type SharedAnswer = Pick<Answer, 'truncated' | 'fetchedAt'> & { readonly body: string };

/**
 * A cache that several processes share; redis-cache.ts implements it. Never throws: while it is unavailable, it finds
 * nothing and grants every lock.
 */
export interface SharedCache {
  get(key: string): Promise<SharedAnswer | undefined>;
  /** Returns `fetchedAt` of an answer without reading and verifying all of it. */
  fetchedAt(key: string): Promise<number | undefined>;
  put(key: string, answer: SharedAnswer): Promise<void>;
  /**
   * Returns what ends the lock if this process should run the query, whose time limit is `queryMs`. Undefined if another
   * process is running it.
   */
  lock(key: string, queryMs: number): Promise<(() => Promise<void>) | undefined>;
}

/** The result of a query that one of several processes ran. */
export interface QueryOutcome {
  readonly answer: Answer;
  /** true if this process ran the query, false if another process had the answer */
  readonly ran: boolean;
}

/** Larger answers are not shared: they would stall Redis and its readers. */
const SHARED_BYTES = 8 * 1024 * 1024;
/** how often a process asks whether another one has the answer, milliseconds */
const SHARED_POLL_MS = 25;
/** An answer further in the future comes from a process with a wrong clock, so its age is unknown. */
const CLOCKS_DIFFER_MS = 10_000;

/** Without a shared cache, every process runs its own queries. */
export function createSharedQueries(shared: SharedCache | undefined, clock: Clock) {
  async function look(key: string, newerThan: number): Promise<QueryOutcome | undefined> {
    const counts = (at: number | undefined): boolean =>
      at !== undefined && at > newerThan && at <= clock() + CLOCKS_DIFFER_MS;
    // only its time is read first: waiting processes poll every 25 ms, and the old answer may be large
    if (!counts(await shared?.fetchedAt(key))) return undefined;
    const found = await shared?.get(key);
    return found !== undefined && counts(found.fetchedAt) ? { answer: sharedAnswerOf(found), ran: false } : undefined;
  }
  return {
    /**
     * Runs one query for all processes that share a cache: the one with the lock runs it, the others poll for its
     * answer. An answer from before `newerThan` does not count. `queryMs` is the time limit of its queries. The lock
     * lasts longer (redis-cache.ts).
     */
    async once(
      key: string,
      newerThan: number,
      queryMs: number,
      run: () => Promise<Answer>,
      signal: AbortSignal,
    ): Promise<QueryOutcome> {
      if (shared === undefined) return { answer: await run(), ran: true };
      let unlock: (() => Promise<void>) | undefined;
      for (;;) {
        signal.throwIfAborted();
        const found = await look(key, newerThan);
        if (found !== undefined) return found;
        unlock = await shared.lock(key, queryMs);
        if (unlock !== undefined) break;
        await sleep(SHARED_POLL_MS);
      }
      try {
        // the last holder of the lock may have stored its answer since we looked
        const found = await look(key, newerThan);
        if (found !== undefined) return found;
        const answer = await run();
        const { body, bytes, truncated, fetchedAt } = answer;
        if (bytes <= SHARED_BYTES) await shared.put(key, { body: body.toString(), truncated, fetchedAt });
        return { answer, ran: true };
      } finally {
        await unlock();
      }
    },
    /** Returns the answer of another process while it may still be served. */
    async last(key: string, now: number): Promise<Answer | undefined> {
      const found = await shared?.get(key);
      return found !== undefined && now - found.fetchedAt <= STALE_MS ? sharedAnswerOf(found) : undefined;
    },
  };
}

function sharedAnswerOf(shared: SharedAnswer): Answer {
  return answerOf({ ...shared, etag: etagOf(shared.body) });
}
