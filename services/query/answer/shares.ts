const RECENT_MS = 60_000;

export type Shares = ReturnType<typeof createShares>;

/**
 * Remembers whether several keys call endpoints. If another key called within the last minute, a key gets at most half
 * of the query slots (query-slots.ts) and of the memory for large answers (response-memory.ts). The queue and the cache
 * do not ask here: they compare what each key has in them. `now` is monotonic, in milliseconds.
 */
export function createShares(now: () => number = () => performance.now()) {
  // the key that asked last, and the last other key before it
  let last = { owner: '', at: Number.NEGATIVE_INFINITY };
  let other = last;
  return {
    /** Records that a key asks. */
    note(owner: string): void {
      if (owner !== last.owner) other = last;
      last = { owner, at: now() };
    },
    /** True if another key asked within the last minute. */
    hasOthers(owner: string): boolean {
      return now() - (owner === last.owner ? other : last).at < RECENT_MS;
    },
  };
}
