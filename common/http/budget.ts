import type { ApiError } from './errors.ts';

/** Limits the bytes that several owners hold at a time. */
export interface SharedBudget {
  /**
   * Takes bytes for an owner until the returned function is called, which is idempotent. Throws ApiError if they exceed
   * the owner's share.
   */
  readonly take: (owner: string, bytes: number) => () => void;
  readonly used: () => number;
}

/**
 * Returns a budget that no owner can use up: an owner may hold as many bytes as it leaves free. Alone it has half, two
 * owners have a third each, and the next owner always finds as much as each of the present ones. `refuse` makes the
 * error for an owner for whom nothing is left.
 */
export function createSharedBudget(limit: number, refuse: () => ApiError): SharedBudget {
  const held = new Map<string, number>();
  let used = 0;
  return {
    used: () => used,
    take(owner, bytes) {
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
