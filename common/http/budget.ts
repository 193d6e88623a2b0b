import type { ApiError } from './errors.ts';

/**
 * Limits the bytes that several owners hold at a time. No owner can use them up: an owner may hold as many bytes as it
 * leaves free. Alone it has half, two owners have a third each, and the next owner always finds as much as each of the
 * present ones. `refuse` makes the error for an owner for whom nothing is left.
 */
export function createSharedBudget(limit: number, refuse: () => ApiError) {
  const held = new Map<string, number>();
  let used = 0;
  return {
    used: (): number => used,
    /**
     * Takes bytes for an owner until the returned function is called, which is idempotent. Throws ApiError if they
     * exceed the owner's share.
     */
    take: (owner: string, bytes: number): (() => void) => {
      const own = (held.get(owner) ?? 0) + bytes;
      if (own > limit - used - bytes) throw refuse();
      held.set(owner, own);
      used += bytes;
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        used -= bytes;
        const left = (held.get(owner) ?? 0) - bytes;
        if (left > 0) held.set(owner, left);
        else held.delete(owner);
      };
    },
  };
}
