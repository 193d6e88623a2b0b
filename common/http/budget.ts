import type { ApiError } from './errors.ts';

/** Bytes that may be held at a time. */
export interface Budget {
  /** Takes them until the function that it gives is called. Throws ApiError where they are more than is left. */
  readonly take: (bytes: number) => () => void;
  readonly used: () => number;
}

/** `refuse`: what a caller is told for whom nothing is left. */
export function createBudget(limit: number, refuse: () => ApiError): Budget {
  let used = 0;
  return {
    used: () => used,
    take(bytes) {
      if (used + bytes > limit) throw refuse();
      used += bytes;
      return () => {
        used -= bytes;
      };
    },
  };
}

/** Bytes that may be held at a time, shared by several owners. */
export interface SharedBudget {
  /**
   * Takes them for an owner until the function returned is called, which is idempotent. Throws ApiError where they are
   * more than the owner's share.
   */
  readonly take: (owner: string, bytes: number) => () => void;
  readonly used: () => number;
}

/**
 * A budget of which nobody takes all: an owner may hold as many bytes as it leaves free. Alone it has half, two have a
 * third each, and whoever
 * comes next always finds as much as each of those who are there. `refuse`: what an owner is told for whom nothing is
 * left.
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
