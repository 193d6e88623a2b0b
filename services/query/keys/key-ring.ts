import { hash, timingSafeEqual } from 'node:crypto';
import type { Definition } from '../definition/definition.ts';
import { ApiError } from '../../../common/http/errors.ts';

/**
 * Who may call what. Pure: time is an argument, the list of keys is handed in by key-loader.ts.
 * A key is known by the SHA-256 of its text only.
 */
export interface Key {
  readonly id: string;
  readonly name: string;
  /** SHA-256, 32 bytes */
  readonly hash: Buffer;
  /** `admin` (all), `query`, `query:<endpoint name>`, `ingest` */
  readonly scopes: readonly string[];
  /** empty = all projects */
  readonly projects: readonly string[];
  /** unix milliseconds */
  readonly expiresAt: number | undefined;
}

/** Keys last seen valid go on this long while the list cannot be loaded. */
export const KEYS_TRUSTED_MS = 3_600_000;

/**
 * SHA-256, 32 bytes: all that is kept of a key. Nobody guesses 256 random bits, so no salt and no slow hash is needed.
 */
export function hashKey(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

export type Verdict = { readonly key: Key } | 'unauthorized' | 'unavailable';

export interface KeyRing {
  /**
   * Whose key it is. Keys are found by their hash, which tells nothing of the key, and compared in constant time.
   * `unavailable` where the list was never loaded, or too long ago, so that an unknown key may be a good one.
   */
  verdict(presented: string, now: number): Verdict;
  /** Takes the whole list as of `now`. */
  load(keys: readonly Key[], now: number): void;
}

/** `first`: keys that hold without a list (API_KEY, or the key made on the first start). */
export function createKeyRing(first: readonly Key[]): KeyRing {
  const bucket = (of: Buffer): number => of.readUInt32LE(0);
  const group = (keys: readonly Key[]): Map<number, Key[]> => Map.groupBy(keys, (k) => bucket(k.hash));
  const always = group(first);
  let listed = new Map<number, Key[]>();
  let loadedAt = Number.NEGATIVE_INFINITY;

  const find = (keys: Map<number, Key[]>, presented: Buffer): Key | undefined =>
    keys.get(bucket(presented))?.find((k) => timingSafeEqual(k.hash, presented));
  return {
    verdict(presented, now) {
      const hashed = hashKey(presented);
      const own = find(always, hashed);
      if (own !== undefined) return { key: own };
      if (now - loadedAt > KEYS_TRUSTED_MS) return 'unavailable';
      const key = find(listed, hashed);
      return key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now) ? 'unauthorized' : { key };
    },
    load(keys, now) {
      listed = group(keys);
      loadedAt = now;
    },
  };
}

/** `admin` has every scope. */
export function hasScope(key: Key, scope: string): boolean {
  return key.scopes.includes('admin') || key.scopes.includes(scope);
}

/**
 * Whether a key may call an endpoint at all; undefined = no such endpoint. A key that may call everything learns that
 * there is none;
 * one that may call some is told the same of an endpoint that it may not call and of one that does not exist.
 */
export function refuseEndpoint(key: Key, definition: Definition | undefined): ApiError | undefined {
  const all = hasScope(key, 'query');
  if (!all && (definition === undefined || !key.scopes.includes(`query:${definition.name}`)))
    return new ApiError('forbidden', 'the key may not call this endpoint');
  if (definition === undefined) return new ApiError('not_found', 'there is no such endpoint');
  if (key.projects.length > 0 && definition.project === undefined)
    return new ApiError('forbidden', 'the key is limited to projects and this endpoint has none');
  return undefined;
}

/** A project's reference: as a pattern it matches what names that project, where a shorter name matches everybody's. */
const REFERENCE = /^[a-z]{20}$/;

/**
 * Whether a key may see the project that a call names: the value must be one of its projects, byte for byte, and a
 * literal reference where the
 * endpoint takes it as a pattern.
 */
export function refuseProject(key: Key, definition: Definition, given: readonly string[]): ApiError | undefined {
  if (key.projects.length === 0 || definition.project === undefined) return undefined;
  const isPattern = definition.project.match === 'pattern';
  return given.every((value) => value === '' || (key.projects.includes(value) && (!isPattern || REFERENCE.test(value))))
    ? undefined
    : new ApiError('forbidden', 'the key may not see this project');
}
