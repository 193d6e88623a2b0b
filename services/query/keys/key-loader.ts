import { setTimeout as sleep } from 'node:timers/promises';
import type { ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { within } from '../../../common/lifecycle/within.ts';
import type { Logger } from '../../../common/logger.ts';
import { noteUses, readKeys } from './key-table.ts';
import { KEYS_TRUSTED_MS, type Key, type KeyRing } from './key-ring.ts';

/**
 * Keeps the key ring equal to the table. It loads every few seconds, so a revocation takes effect everywhere within
 * 10 s. It also loads at once when a caller has an unknown key.
 */
const LOAD_EVERY_MS = 5_000;
/** loads on demand begin at most this often */
const LOAD_SPACING_MS = 250;
/** a caller with an unknown key waits at most this long for a load */
const PATIENCE_MS = 1_000;
const NOTE_USES_EVERY_MS = 60_000;

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export type KeyLoader = ReturnType<typeof startKeyLoader>;

interface KeyLoaderOptions {
  readonly clickhouse: ClickHouse;
  readonly ring: KeyRing;
  readonly clock: Clock;
  readonly logger: Logger;
  /** resolves when there is a table of keys; loads that begin before may fail, which is not reported */
  readonly schema: Promise<unknown>;
}

/**
 * Starts loading at once. Until the first list arrives, the ring answers `unavailable` for keys that it does not know.
 */
export function startKeyLoader({ clickhouse, ring, clock, logger, schema }: KeyLoaderOptions) {
  let known = new Set<string>();
  /** when each key was used last, since the last save */
  let uses = new Map<string, number>();
  const { promise: loaded, resolve: onFirstLoad } = Promise.withResolvers<void>();
  let loadedAt = Number.NEGATIVE_INFINITY;
  let hasTable = false;
  schema.then(
    () => (hasTable = true),
    () => undefined,
  );
  /** failed loads since the last list */
  let failures = 0;
  /** the load that was asked for last */
  let last: Promise<void> = Promise.resolve();
  /** the same until it begins */
  let next: Promise<void> | undefined;
  let beganAt = Number.NEGATIVE_INFINITY;

  async function load(): Promise<void> {
    const asOf = clock();
    const mustLoad = hasTable;
    try {
      const keys = await readKeys(clickhouse, asOf);
      known = new Set(keys.map(({ id }) => id));
      ring.load(keys, asOf);
      if (failures > 0) logger.info('keys_load_recovered');
      failures = 0;
      loadedAt = asOf;
      hasTable = true;
      onFirstLoad();
    } catch (error) {
      if (mustLoad && ++failures === 1) logger.warn({ reason: reasonOf(error) }, 'keys_load_failed');
    }
  }
  /** Returns the load that begins next. Loads run one at a time, so an old list never replaces a newer one. */
  function loadNext(): Promise<void> {
    next ??= last.then(async () => {
      const wait = beganAt + LOAD_SPACING_MS - performance.now();
      if (wait > 0) await sleep(wait);
      next = undefined;
      beganAt = performance.now();
      return await load();
    });
    last = next;
    return next;
  }
  /** Saves the last uses of the keys that are known. */
  async function saveUses(): Promise<void> {
    const used = [...uses].filter(([id]) => known.has(id));
    uses = new Map();
    if (used.length === 0) return;
    try {
      await noteUses(clickhouse, used);
    } catch (error) {
      logger.warn({ reason: reasonOf(error) }, 'key_use_update_failed');
    }
  }
  void loadNext();
  const loadTimer = setInterval(() => void loadNext(), LOAD_EVERY_MS);
  const useTimer = setInterval(() => void saveUses(), NOTE_USES_EVERY_MS);
  return {
    /** Waits for a load that begins after this call. Resolves when it ends, even if it failed, or after a second. */
    refresh: (): Promise<void> => within(PATIENCE_MS, loadNext(), undefined),
    noteUse: (key: Key, now: number): void => void uses.set(key.id, now),
    /** resolves with the first list that is loaded */
    loaded,
    /** Undefined while the list counts, else what is wrong. */
    async check(): Promise<string | undefined> {
      if (clock() - loadedAt <= KEYS_TRUSTED_MS) return undefined;
      return loadedAt === Number.NEGATIVE_INFINITY ? 'are not loaded yet' : 'could not be loaded for an hour';
    },
    /** Saves the last uses and stops. */
    async stop(): Promise<void> {
      clearInterval(loadTimer);
      clearInterval(useTimer);
      await last;
      await saveUses();
    },
  };
}
