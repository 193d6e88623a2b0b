/**
 * Who else is there. One key may use what nobody else asks for; while another key asks too, its share of slots, queue,
 * warm answers and memory is half.
 */
export interface Shares {
  /** Notes that a key asks. */
  note(owner: string): void;
  /** True if another key has asked within the last minute. */
  hasOthers(owner: string): boolean;
}

const RECENT_MS = 60_000;

/** `now`: milliseconds that never go back. */
export function createShares(now: () => number = () => performance.now()): Shares {
  // the key that asked last, and the last one before it that is another
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
