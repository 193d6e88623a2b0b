/** Takes a permit to write a batch into a table of a shard. Resolves to an idempotent release function. */
export type TakePermit = (table: string, shard?: string) => Promise<() => void>;

/** of one shard */
export interface PermitLimits {
  /** batches that are written at a time */
  readonly size: number;
  /** batches that are written at a time together with those that take longer than SLOW_MS */
  readonly most: number;
}

/** Other tables wait at most this long for an insert that hangs or is slow. */
const SLOW_MS = 1_000;

/**
 * Write permits of one process. Each shard has its own, because each has connections of its own: a shard that hangs
 * stops no other.
 */
export function createPermits(limits: PermitLimits): TakePermit {
  const shards = new Map<string | undefined, TakePermit>();
  return (table, shard) => {
    const take = shards.get(shard) ?? createPermitsOfShard(limits);
    shards.set(shard, take);
    return take(table);
  };
}

/**
 * First come, first served, within a table. A batch is cut when it has its permit, so it takes in what arrives while
 * others write. After a second, the holder of a permit no longer delays the next one. A table gets one only while it
 * holds fewer than are left, so one whose inserts hang leaves half of them, rounded down, to the others: of 63 permits
 * the seventh such table gets none, of 3 the third.
 */
function createPermitsOfShard({ size, most }: PermitLimits): TakePermit {
  const waiting: { readonly table: string; readonly begin: () => void }[] = [];
  const heldOf = new Map<string, number>();
  let held = 0;
  let slow = 0;

  function next(): void {
    while (held - slow < size) {
      const at = waiting.findIndex(({ table }) => (heldOf.get(table) ?? 0) < most - held);
      if (at < 0) return;
      waiting.splice(at, 1)[0]!.begin();
    }
  }

  function hold(table: string, more: 1 | -1): void {
    held += more;
    heldOf.set(table, (heldOf.get(table) ?? 0) + more);
  }

  function take(table: string): () => void {
    hold(table, 1);
    let isSlow = false;
    let isHeld = true;
    const timer = setTimeout(() => {
      isSlow = true;
      slow++;
      next();
    }, SLOW_MS);
    return () => {
      if (!isHeld) return;
      isHeld = false;
      clearTimeout(timer);
      hold(table, -1);
      if (isSlow) slow--;
      next();
    };
  }

  return (table) =>
    new Promise((resolve) => {
      waiting.push({ table, begin: () => resolve(take(table)) });
      next();
    });
}
