interface Flight<T> {
  readonly promise: Promise<T>;
  readonly controller: AbortController;
  waiters: number;
}

/** Runs one task per key at a time; callers with the same key share it. */
export function createSingleFlight<T>() {
  const flights = new Map<string, Flight<T>>();
  return {
    has: (key: string): boolean => flights.has(key),
    /**
     * Joins the task in flight for a key, or starts one with `fetch`. When the last waiting caller leaves, the task is
     * cancelled.
     */
    async fly(key: string, caller: AbortSignal, fetch: (signal: AbortSignal) => Promise<T>): Promise<T> {
      caller.throwIfAborted();
      let flight = flights.get(key);
      if (flight === undefined) {
        const controller = new AbortController();
        const promise = fetch(controller.signal).finally(() => {
          if (flights.get(key)?.controller === controller) flights.delete(key);
        });
        flight = { promise, controller, waiters: 0 };
        flights.set(key, flight);
      }
      const joined = flight;
      joined.waiters++;
      return await new Promise<T>((resolve, reject) => {
        const leave = (): void => {
          joined.waiters--;
          if (joined.waiters === 0) {
            if (flights.get(key) === joined) flights.delete(key);
            joined.controller.abort(caller.reason);
          }
          reject(caller.reason as Error);
        };
        caller.addEventListener('abort', leave, { once: true });
        joined.promise.then(resolve, reject).finally(() => caller.removeEventListener('abort', leave));
      });
    },
    /** Cancels every task in flight. */
    cancel(reason: Error): void {
      for (const flight of flights.values()) flight.controller.abort(reason);
    },
  };
}
