import { createTotals } from '../../../common/http/totals.ts';

/**
 * Decides what is kept, how long it is served, when it is queried again and what is evicted. It knows neither timers
 * nor ClickHouse: time is an argument, unix milliseconds. An entry is
 * - fresh if it is younger than its endpoint's cache_seconds: it is served.
 * - expired if it is older, or in the future because a clock was set back. It is served, until STALE_MS, only if the
 * query fails with `unavailable`: ClickHouse is unavailable, no slot or memory is left, or the service stops.
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

/** What is kept: an answer, and the endpoint that says for how long. */
interface Cached {
  readonly key: string;
  readonly definition: Lifetime;
  /** `fetchedAt`: the instant for which it is true */
  readonly answer: { readonly bytes: number; readonly fetchedAt: number };
}

/** Who waits for an answer, and since when. */
export interface Ask {
  /** the id of the API key that asks */
  readonly owner: string;
  /** unix milliseconds */
  readonly at: number;
}

interface Entry<T> {
  readonly value: T;
  bytes: number;
  dueAt: number;
  askedAt: number;
  owner: string;
}

interface Limits {
  readonly maxEntries: number;
  readonly maxBytes: number;
}

/** Entries in the order of their last use, and what each owner holds of them. */
function createShelf<T extends Cached>(limits: Limits) {
  const entries = new Map<string, Entry<T>>();
  const held = createTotals();
  const bytes = createTotals();

  function count(owner: string, more: number, moreBytes: number): void {
    held.add(owner, more);
    bytes.add(owner, moreBytes);
  }
  /** A new entry is the most recently used one. One that replaces another keeps its place in the order. */
  function add(entry: Entry<T>): void {
    entries.set(entry.value.key, entry);
    count(entry.owner, 1, entry.bytes);
  }
  function remove(entry: Entry<T>): void {
    entries.delete(entry.value.key);
    count(entry.owner, -1, -entry.bytes);
  }
  function isGreedy({ owner }: Entry<T>): boolean {
    return entries.size > limits.maxEntries
      ? held.of(owner) * 2 > limits.maxEntries
      : bytes.of(owner) * 2 > limits.maxBytes;
  }
  /**
   * Evicts what does not fit: first the least recently used entry of an owner that holds more than half, so that it
   * evicts its own.
   */
  function evict(): void {
    while (entries.size > limits.maxEntries || bytes.all() > limits.maxBytes) {
      let [found] = entries.values();
      for (const entry of entries.values()) {
        if (!isGreedy(entry)) continue;
        found = entry;
        break;
      }
      if (found === undefined) return;
      remove(found);
    }
  }
  return { entries, count, add, remove, evict, bytes: bytes.all };
}

/** Keeps the most recently used entries within the limits. `random` is 0 to 1, for the jitter. */
export function createCache<T extends Cached>(limits: Limits, random: () => number = Math.random) {
  const { entries, count, add, remove, evict, bytes } = createShelf<T>(limits);

  return {
    /**
     * Returns the value for a caller and counts as a use. One that is not fresh may be served only if the query fails
     * with `unavailable`.
     */
    ask(key: string, now: number, owner: string): { readonly value: T; readonly isFresh: boolean } | undefined {
      const entry = entries.get(key);
      if (entry === undefined) return undefined;
      remove(entry);
      const { definition, answer } = entry.value;
      const age = now - answer.fetchedAt;
      if (age > STALE_MS) return undefined;
      entry.askedAt = now;
      entry.owner = owner;
      add(entry);
      return { value: entry.value, isFresh: age >= 0 && age < definition.cacheSeconds * 1000 };
    },
    /**
     * Stores a value. Without an `ask` nobody waits for it, and the owner stays. `ask.at` may be long after
     * `fetchedAt`, if another process fetched the answer.
     */
    put(value: T, ask?: Ask): void {
      const { key, definition, answer } = value;
      const before = entries.get(key);
      const owner = ask?.owner ?? before?.owner;
      if (owner === undefined) return;
      if (before !== undefined) count(before.owner, -1, -before.bytes);
      else if (answer.bytes > limits.maxBytes * LARGEST_PART) return;
      const entry: Entry<T> = {
        value,
        bytes: answer.bytes + key.length * 2,
        dueAt: answer.fetchedAt + definition.requerySeconds * 1000 * (1 - JITTER * random()),
        askedAt: Math.max(ask?.at ?? Number.NEGATIVE_INFINITY, before?.askedAt ?? Number.NEGATIVE_INFINITY),
        owner,
      };
      add(entry);
      evict();
    },
    /** Adds to the bytes that an entry is charged (for a compressed copy or another form). */
    grow(value: T, size: number): void {
      const entry = entries.get(value.key);
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
          ({ value: { definition }, askedAt }) =>
            definition.requerySeconds > 0 && now - askedAt <= definition.cacheSeconds * 1000,
        );
      const found = warmOf(wanted).filter((entry) => entry.dueAt <= now);
      return found.toSorted((a, b) => a.dueAt - b.dueAt).map((entry) => entry.value);
    },
    /** Delays the next requery of an entry whose requery failed. */
    failed(key: string, now: number): void {
      const entry = entries.get(key);
      if (entry !== undefined) entry.dueAt = now + RETRY_MS;
    },
    /** Evicts what nobody may be served any more. */
    sweep(now: number): void {
      for (const entry of entries.values()) if (now - entry.value.answer.fetchedAt > STALE_MS) remove(entry);
    },
    size: (): number => entries.size,
    /** what the entries are charged */
    bytes,
  };
}
