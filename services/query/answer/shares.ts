/**
 * Remembers whether several keys ask. One key may use everything while no other asks. While another key asks too, it
 * gets half of slots, queue, warm answers and memory.
 */
export interface Shares {
  /** Records that a key asks. */
  note(owner: string): void;
  /** True if another key asked within the last minute. */
  hasOthers(owner: string): boolean;
}

const RECENT_MS = 60_000;

/** `now` is monotonic, in milliseconds. */
export function createShares(now: () => number = () => performance.now()): Shares {
  // the key that asked last, and the last other key before it
  let last = { owner: '', at: Number.NEGATIVE_INFINITY };
  let other = last;
  return {
    note(owner) {
      if (owner !== last.owner) other = last;
      last = { owner, at: now() };
    },
    hasOthers(owner) {
      return now() - (owner === last.owner ? other : last).at < RECENT_MS;
    },
  };
}
