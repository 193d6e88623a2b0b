const RECENT_MS = 60_000;

export type Shares = ReturnType<typeof createShares>;

/**
 * Remembers whether several keys ask. One key may use everything while no other asks. While another key asks too, it
 * gets half of slots, queue, warm answers and memory. `now` is monotonic, in milliseconds.
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
