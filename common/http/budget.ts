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
      return () => { used -= bytes; };
    },
  };
}
