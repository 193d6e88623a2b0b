import { refusal } from './errors.ts';

export type Pool<S> = ReturnType<typeof createPool<S>>;

/** Reads that may wait for a reader; more are refused with 202. */
export const READ_QUEUE = 64;
/** How long close() of an engine lets writes finish, milliseconds. */
export const CLOSE_GRACE_MS = 4_000;

export interface PoolOptions<S> {
  /** concurrent statements */
  readonly size: number;
  /** statements waiting; more are refused */
  readonly queueLimit: number;
  /** sessions kept open without a statement */
  readonly idleLimit: number;
  readonly open: (key: string) => Promise<S>;
  /** repairs a session after an error; false if it is unusable */
  readonly recover: (session: S) => Promise<boolean>;
  readonly close: (session: S) => void;
}

/**
 * A pool of sessions of the engine; one statement at a time uses a session. It opens no session before the first
 * statement. A session is reused by the next statement of the same key.
 */
export function createPool<S>({ size, queueLimit, idleLimit, open, recover, close }: PoolOptions<S>) {
  /** in the order of calls */
  const waiting = new Set<PromiseWithResolvers<void>>();
  /** oldest first */
  const idle: { key: string; session: S }[] = [];
  let running = 0;
  let closing = false;
  const { promise: drained, resolve: onDrained } = Promise.withResolvers<void>();

  return {
    /**
     * Runs `work` alone on a session of that key, in the order of calls. Throws 202 if too many wait, 394 if `signal`
     * fires while waiting. After an error of `work`, `recover` gets the session before it is used again, and its place
     * stays taken until then.
     */
    async use<T>(key: string, work: (session: S) => Promise<T>, signal?: AbortSignal): Promise<T> {
      await turn(signal);
      try {
        const session = await take(key);
        try {
          const result = await work(session);
          keep(key, session);
          return result;
        } catch (error) {
          if (await recover(session)) keep(key, session);
          else close(session);
          throw error;
        }
      } finally {
        const [next] = waiting;
        if (next === undefined) running--;
        else {
          waiting.delete(next);
          next.resolve();
        }
        if (closing && running === 0) onDrained();
      }
    },

    /** Refuses new work, waits for running work, and closes all sessions. */
    async close(): Promise<void> {
      closing = true;
      for (const place of waiting) place.reject(refusal(236, 'Aborted: the engine is closing'));
      waiting.clear();
      if (running > 0) await drained;
      for (const { session } of idle.splice(0)) close(session);
    },
  };

  /** Resolves when the caller counts as running. */
  async function turn(signal: AbortSignal | undefined): Promise<void> {
    if (closing) throw refusal(236, 'Aborted: the engine is closing');
    if (signal?.aborted === true) throw cancelled();
    if (running < size) {
      running++;
      return;
    }
    if (waiting.size >= queueLimit)
      throw refusal(202, `Too many simultaneous queries: ${size} run and ${queueLimit} wait`);
    const place = Promise.withResolvers<void>();
    const onAbort = (): void => {
      waiting.delete(place);
      place.reject(cancelled());
    };
    waiting.add(place);
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      await place.promise;
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  async function take(key: string): Promise<S> {
    const at = idle.findLastIndex((i) => i.key === key);
    return at < 0 ? await open(key) : idle.splice(at, 1)[0]!.session;
  }

  function keep(key: string, session: S): void {
    idle.push({ key, session });
    if (idle.length > idleLimit) close(idle.shift()!.session);
  }
}

/** Returns the error of a statement whose signal fired. */
export function cancelled(): Error {
  return refusal(394, 'Query was cancelled by the caller');
}

/** A pool without sessions: runs `size` works at a time, in the order of calls. */
export function createLimit(size: number, queueLimit = Number.POSITIVE_INFINITY): Pool<undefined> {
  const [open, recover] = [async (): Promise<undefined> => undefined, async (): Promise<boolean> => false];
  return createPool<undefined>({ size, queueLimit, idleLimit: 0, open, recover, close: () => {} });
}
