import { hash, timingSafeEqual } from 'node:crypto';
import type { Definition } from '../definition/definition.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { Caller } from '../../../common/http/route.ts';

/**
 * Decides who may call what. Pure: time is an argument, and key-loader.ts provides the list of keys. A key is known
 * only by the SHA-256 of its text.
 */
export interface Key extends Caller {
  /** SHA-256, 32 bytes */
  readonly hash: Buffer;
}

/** How long keys stay valid while the list cannot be loaded. */
export const KEYS_TRUSTED_MS = 3_600_000;

/**
 * Returns the SHA-256 of a key, 32 bytes, which is all that is kept. A key has 256 random bits, so it needs no salt and
 * no slow hash.
 */
export function hashKey(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

export type KeyCheck = { readonly key: Key } | 'unauthorized' | 'unavailable';

export type KeyRing = ReturnType<typeof createKeyRing>;

/** `first` is valid without a list (API_KEY, or the key created on the first start). */
export function createKeyRing(first: Key) {
  const prefix = (of: Buffer): number => of.readUInt32LE(0);
  let listed = new Map<number, Key[]>();
  let loadedAt = Number.NEGATIVE_INFINITY;

  return {
    /**
     * Returns whose key it is. Keys are found by their hash, which reveals nothing about the key, and compared in
     * constant time. `unavailable` if the list was never loaded, or too long ago, because an unknown key may then be
     * valid.
     */
    check(presented: string, now: number): KeyCheck {
      const hashed = hashKey(presented);
      if (timingSafeEqual(first.hash, hashed)) return { key: first };
      if (now - loadedAt > KEYS_TRUSTED_MS) return 'unavailable';
      const key = listed.get(prefix(hashed))?.find((k) => timingSafeEqual(k.hash, hashed));
      return key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now) ? 'unauthorized' : { key };
    },
    /** Replaces the whole list as of `now`. */
    load(keys: readonly Key[], now: number): void {
      listed = Map.groupBy(keys, (k) => prefix(k.hash));
      loadedAt = now;
    },
  };
}

/** `admin` has every scope. */
export function hasScope(key: Key, scope: string): boolean {
  return key.scopes.includes('admin') || key.scopes.includes(scope);
}

/**
 * Throws ApiError unless the key may call an endpoint; `definition` is undefined if there is no such endpoint. A key
 * with the scope `query` learns that there is none. A key for some endpoints gets the same answer for a forbidden
 * endpoint and a missing one.
 */
export function assertMayCall(key: Key, definition: Definition | undefined): asserts definition is Definition {
  const all = hasScope(key, 'query');
  if (!all && (definition === undefined || !key.scopes.includes(`query:${definition.name}`)))
    throw new ApiError('forbidden', 'the key may not call this endpoint');
  if (definition === undefined) throw new ApiError('not_found', 'there is no such endpoint');
  if (key.projects.length > 0 && definition.project === undefined)
    throw new ApiError('forbidden', 'the key is limited to projects, and this endpoint has no project');
}

/** A project reference. As a pattern it matches only URLs that contain it; a shorter name would match everybody's. */
const REFERENCE = /^[a-z]{20}$/;

/**
 * Throws ApiError unless the key may see the project that a call names. The value must be one of its projects, byte for
 * byte. If the endpoint takes it as a pattern, it must also be a literal reference. An absent or
 * empty value passes: the parameter is required, so params.ts refuses it.
 */
export function assertMaySee(key: Key, definition: Definition, given: readonly string[]): void {
  if (key.projects.length === 0 || definition.project === undefined) return;
  const isPattern = definition.project.match === 'pattern';
  if (!given.every((value) => value === '' || (key.projects.includes(value) && (!isPattern || REFERENCE.test(value)))))
    throw new ApiError('forbidden', 'the key may not see this project');
}
