/**
 * What is kept, how long it may be served, when it is fetched anew, what is thrown out. Knows neither timers nor ClickHouse:
 * time is an argument, unix milliseconds. An entry is
 *   fresh    younger than its endpoint's cache_seconds: served
 *   expired  older, or of a future that a clock set back has left behind: served only while ClickHouse is away, until STALE_MS
 * and it is due for a requery when a caller asked for it within cache_seconds and it is older than requery_seconds (less some jitter).
 */
export const STALE_MS = 3_600_000;
/** entries that are kept warm at a time: the ones asked for last */
export const WARM_ENTRIES = 1_000;
/** after a requery that failed, the next one waits this long */
const RETRY_MS = 30_000;
/** part of requery_seconds by which a requery may come early, so that entries made together do not stay together */
const JITTER = 0.1;
/** one entry takes at most this part of the cache's bytes */
const LARGEST_PART = 8;

export interface Lifetime {
  readonly cacheSeconds: number;
  readonly requerySeconds: number;
}

interface Entry<T> {
  value: T;
  bytes: number;
  readonly lifetime: Lifetime;
  fetchedAt: number;
  dueAt: number;
  askedAt: number;
}

export interface Found<T> {
  readonly value: T;
  readonly fetchedAt: number;
  readonly state: 'fresh' | 'expired';
}

export interface Cache<T> {
  /** What a caller gets; counts as asked for. */
  ask(key: string, now: number): Found<T> | undefined;
  /** Keeps a value that is true for the instant `fetchedAt`; `asked` tells whether a caller waits for it. */
  put(key: string, value: T, bytes: number, lifetime: Lifetime, fetchedAt: number, asked: boolean): void;
  /** Adds to what an entry is accounted with (a compressed copy). */
  grow(key: string, value: T, bytes: number): void;
  /** What is to be fetched anew now, the longest overdue first. */
  due(now: number): T[];
  /** A requery failed: not again for a while. */
  failed(key: string, now: number): void;
  /** Throws out what may not even be served stale. */
  sweep(now: number): void;
  /** Throws out everything else. */
  drop(keep: (value: T) => boolean): void;
  readonly size: number;
  readonly bytes: number;
}

/** Of entries and bytes at most so many are kept, the ones asked for last; random: 0 to 1, for the jitter. */
export function createCache<T>(limits: { maxEntries: number; maxBytes: number }, random: () => number = Math.random): Cache<T> {
  // in the order in which they were asked for last
  const entries = new Map<string, Entry<T>>();
  let bytes = 0;

  const remove = (key: string, entry: Entry<T>): void => {
    entries.delete(key);
    bytes -= entry.bytes;
  };
  const dueAt = (lifetime: Lifetime, fetchedAt: number): number => (lifetime.requerySeconds > 0 ? fetchedAt + lifetime.requerySeconds * 1000 * (1 - JITTER * random()) : Infinity);
  const evict = (): void => {
    for (const [key, entry] of entries) {
      if (entries.size <= limits.maxEntries && bytes <= limits.maxBytes) return;
      remove(key, entry);
    }
  };

  return {
    ask(key, now) {
      const entry = entries.get(key);
      if (entry === undefined) return undefined;
      const age = now - entry.fetchedAt;
      if (age > STALE_MS) {
        remove(key, entry);
        return undefined;
      }
      entries.delete(key);
      entries.set(key, entry);
      entry.askedAt = now;
      return { value: entry.value, fetchedAt: entry.fetchedAt, state: age >= 0 && age < entry.lifetime.cacheSeconds * 1000 ? 'fresh' : 'expired' };
    },
    put(key, value, size, lifetime, fetchedAt, asked) {
      const before = entries.get(key);
      if (before !== undefined) {
        bytes -= before.bytes;
      } else if (!asked) return;
      if (before === undefined && size > limits.maxBytes / LARGEST_PART) return;
      const entry: Entry<T> = { value, bytes: size + key.length * 2, lifetime, fetchedAt, dueAt: dueAt(lifetime, fetchedAt), askedAt: asked ? fetchedAt : (before?.askedAt ?? fetchedAt) };
      if (before !== undefined && before.askedAt > entry.askedAt) entry.askedAt = before.askedAt;
      if (asked) entries.delete(key);
      entries.set(key, entry);
      bytes += entry.bytes;
      evict();
    },
    grow(key, value, size) {
      const entry = entries.get(key);
      if (entry?.value !== value) return;
      entry.bytes += size;
      bytes += size;
      evict();
    },
    due(now) {
      const found: Entry<T>[] = [];
      let warm = 0;
      for (const entry of [...entries.values()].toReversed()) {
        if (warm === WARM_ENTRIES) break;
        if (entry.lifetime.requerySeconds === 0 || now - entry.askedAt > entry.lifetime.cacheSeconds * 1000) continue;
        warm++;
        if (entry.dueAt <= now) found.push(entry);
      }
      return found.toSorted((a, b) => a.dueAt - b.dueAt).map((entry) => entry.value);
    },
    failed(key, now) {
      const entry = entries.get(key);
      if (entry !== undefined) entry.dueAt = now + RETRY_MS;
    },
    sweep(now) {
      for (const [key, entry] of entries) if (now - entry.fetchedAt > STALE_MS) remove(key, entry);
    },
    drop(keep) {
      for (const [key, entry] of entries) if (!keep(entry.value)) remove(key, entry);
    },
    get size() {
      return entries.size;
    },
    get bytes() {
      return bytes;
    },
  };
}
