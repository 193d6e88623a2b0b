import type { ApiError } from './errors.ts';
import { createTotals } from './totals.ts';

/**
 * Limits the bytes that several owners hold at a time. No owner can use them up: an owner may hold as many bytes as it
 * leaves free. Alone it has half, two owners have a third each, and the next owner always finds as much as each of the
 * present ones. `refuse` makes the error for an owner for whom nothing is left.
 */
export function createSharedBudget(limit: number, refuse: () => ApiError) {
  const held = createTotals();
  return {
    used: held.all,
    /**
     * Takes bytes for an owner until the returned function is called, which is idempotent. Throws ApiError if they
     * exceed the owner's share.
     */
    take: (owner: string, bytes: number): (() => void) => {
      if (held.of(owner) + bytes > limit - held.all() - bytes) throw refuse();
      return held.take(owner, bytes);
    },
  };
}
