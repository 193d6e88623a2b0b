import { createTotals } from '../../../common/http/totals.ts';

/**
 * Decides what is kept, how long it is served, when it is queried again and what is evicted. It knows neither timers
 * nor ClickHouse: time is an argument, unix milliseconds. An entry is
 * - fresh if it is younger than its endpoint's cache_seconds: it is served.
 * - expired if it is older, or in the future because a clock was set back. It is served, until STALE_MS, only if the
 * query fails with `unavailable`: ClickHouse is away, no slot or memory is left, or the service stops.
 * - due for a requery if a caller asked for it within cache_seconds and it is older than requery_seconds (less some
 * jitter).
 * The owner of an entry is the API key that asked for it last; `key` is the cache key.
 */
export const STALE_MS = 3_600_000;
/** entries that are kept warm at a time: the most recently used ones */
export const WARM_ENTRIES = 1_000;
/** the delay before the next requery after a failed one */
const RETRY_MS = 30_000;
/** the part of requery_seconds by which a requery may come early, so that entries made together spread out */
const JITTER = 0.1;
/** A new answer larger than this part of the cache's bytes is not kept. A replaced or grown entry may exceed it. */
const LARGEST_PART = 1 / 8;

/**
 * Returns the most recently used of the wanted entries. No owner has more than half of them while others want some.
 */
function warmOf<E extends { readonly owner: string }>(wanted: readonly E[]): E[] {
  const counts = new Map<string, number>();
  const [within, beyond]: [E[], E[]] = [[], []];
  for (const entry of wanted) {
    const count = (counts.get(entry.owner) ?? 0) + 1;
    counts.set(entry.owner, count);
    (count <= WARM_ENTRIES / 2 ? within : beyond).push(entry);
  }
  return [...within, ...beyond].slice(0, WARM_ENTRIES);
}

interface Lifetime {
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
  owner: string;
}

interface Found<T> {
  readonly value: T;
  /** false: it may be served only if the query fails with `unavailable` */
  readonly isFresh: boolean;
}

interface Limits {
  readonly maxEntries: number;
  readonly maxBytes: number;
}

/** Entries in the order of their last use, and what each owner holds of them. */
function createShelf<T>(limits: Limits) {
  const entries = new Map<string, Entry<T>>();
  const held = createTotals();
  const bytes = createTotals();

  function count(owner: string, more: number, moreBytes: number): void {
    held.add(owner, more);
    bytes.add(owner, moreBytes);
  }
  function remove(key: string, entry: Entry<T>): void {
    entries.delete(key);
    count(entry.owner, -1, -entry.bytes);
  }
  function isGreedy({ owner }: Entry<T>): boolean {
    return entries.size > limits.maxEntries
      ? held.of(owner) * 2 > limits.maxEntries
      : bytes.of(owner) * 2 > limits.maxBytes;
  }
  /** Evicts what does not fit: first the least recently used entry of an owner that holds more than half. */
  function evict(): void {
    while (entries.size > limits.maxEntries || bytes.all() > limits.maxBytes) {
      let [found] = entries;
      for (const one of entries) {
        if (!isGreedy(one[1])) continue;
        found = one;
        break;
      }
      if (found === undefined) return;
      remove(...found);
    }
  }
  return { entries, count, remove, evict, bytes: bytes.all };
}

export type Cache<T> = ReturnType<typeof createCache<T>>;

/**
 * Keeps at most the given number of entries and bytes, the most recently used ones. When they do not fit, entries of an
 * owner with more than half of them are evicted first, so it evicts its own. No owner has more than half of the warm
 * entries while others want them. `random` is 0 to 1, for the jitter.
 */
export function createCache<T>(limits: Limits, random: () => number = Math.random) {
  const { entries, count, remove, evict, bytes } = createShelf<T>(limits);
  const dueAt = (lifetime: Lifetime, fetchedAt: number): number =>
    fetchedAt + lifetime.requerySeconds * 1000 * (1 - JITTER * random());

  return {
    /** Returns the entry for a caller and counts as a use. */
    ask(key: string, now: number, owner: string): Found<T> | undefined {
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
      count(entry.owner, -1, -entry.bytes);
      entry.owner = owner;
      count(owner, 1, entry.bytes);
      return { value: entry.value, isFresh: age >= 0 && age < entry.lifetime.cacheSeconds * 1000 };
    },
    /**
     * Stores a value that is true for the instant `fetchedAt`. `askedBy` is the API key of the waiting caller.
     * If nobody waits, it is undefined and the owner stays. `at` is when it asked: another process may have fetched the
     * value long before.
     */
    put(key: string, value: T, size: number, lifetime: Lifetime, fetchedAt: number, askedBy?: string, at = fetchedAt) {
      const before = entries.get(key);
      const owner = askedBy ?? before?.owner;
      if (owner === undefined) return;
      if (before !== undefined) count(before.owner, -1, -before.bytes);
      else if (size > limits.maxBytes * LARGEST_PART) return;
      const askedBefore = before?.askedAt ?? Number.NEGATIVE_INFINITY;
      const entry: Entry<T> = {
        value,
        bytes: size + key.length * 2,
        lifetime,
        fetchedAt,
        dueAt: dueAt(lifetime, fetchedAt),
        askedAt: askedBy === undefined ? askedBefore : Math.max(at, askedBefore),
        owner,
      };
      entries.set(key, entry);
      count(owner, 1, entry.bytes);
      evict();
    },
    /** Adds to the bytes that an entry is charged (for a compressed copy or another form). */
    grow(key: string, value: T, size: number): void {
      const entry = entries.get(key);
      if (entry?.value !== value) return;
      entry.bytes += size;
      count(entry.owner, 0, size);
      evict();
    },
    /** Returns what must be queried again now, the longest overdue first. */
    due(now: number): T[] {
      const wanted = [...entries.values()]
        .toReversed()
        .filter(
          ({ lifetime, askedAt }) => lifetime.requerySeconds > 0 && now - askedAt <= lifetime.cacheSeconds * 1000,
        );
      const found = warmOf(wanted).filter((entry) => entry.dueAt <= now);
      return found.toSorted((a, b) => a.dueAt - b.dueAt).map((entry) => entry.value);
    },
    /** Delays the next requery of an entry whose requery failed. */
    failed(key: string, now: number): void {
      const entry = entries.get(key);
      if (entry !== undefined) entry.dueAt = now + RETRY_MS;
    },
    /** Evicts what may not even be served stale. */
    sweep(now: number): void {
      for (const [key, entry] of entries) if (now - entry.fetchedAt > STALE_MS) remove(key, entry);
    },
    /** Evicts every value that `keep` rejects. */
    drop(keep: (value: T) => boolean): void {
      for (const [key, entry] of entries) if (!keep(entry.value)) remove(key, entry);
    },
    get size(): number {
      return entries.size;
    },
    get bytes(): number {
      return bytes();
    },
  };
}
