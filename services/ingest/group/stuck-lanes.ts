import type { Partition } from './turns.ts';

/** A batch that is not written for this long is late, milliseconds. Inserts into a busy ClickHouse end sooner. */
export const STUCK_MS = 10_000;

interface UnwrittenBatch {
  readonly first: number;
  /** when it was first seen, monotonic milliseconds */
  readonly since: number;
}

/**
 * Lanes whose batch is not written, whatever the reason: inserts into their table fail, or their shard does not answer.
 * What these lanes hold cannot be written for now, so it must not use up the memory of the others (turns.ts). A target
 * (a topic on one shard) is stuck if a batch of it is late and nothing of it was stored meanwhile.
 * Knows only inboxes, and only of the partitions of the last look: a lane that ended leaves nothing behind.
 */
export class StuckLanes<P extends Partition> {
  #batches: ReadonlyMap<P, UnwrittenBatch> = new Map();
  #late: ReadonlySet<P> = new Set();
  /** the targets that are stuck */
  targets: ReadonlySet<string> = new Set();
  /** when a batch of a target was last stored, monotonic milliseconds */
  readonly #storedAt = new Map<string, number>();
  #now = 0;

  /** To be called whenever a batch was cut or stored, and now and then. */
  look(all: readonly P[], now: number): void {
    const batches = new Map<P, UnwrittenBatch>();
    for (const partition of all) {
      const { written, next } = partition.lane.inbox;
      const before = this.#batches.get(partition);
      if (before !== undefined && written > before.first) this.#storedAt.set(partition.target, now);
      if (written === next) continue;
      batches.set(partition, before?.first === written ? before : { first: written, since: now });
    }
    this.#batches = batches;
    this.#now = now;
    this.#late = new Set([...batches].flatMap(([p, { since }]) => (now - since < STUCK_MS ? [] : [p])));
    this.targets = new Set([...this.#late].map((p) => p.target).filter((target) => !this.works(target)));
  }

  get isAny(): boolean {
    return this.#late.size > 0;
  }

  /** The lane's own batch is late. */
  isLate(partition: P): boolean {
    return this.#late.has(partition);
  }

  /** What the lane holds cannot be written for now. */
  has(partition: P): boolean {
    return this.#late.has(partition) || this.targets.has(partition.target);
  }

  /** Something of the target was stored lately. */
  works(target: string): boolean {
    return this.#now - (this.#storedAt.get(target) ?? -Infinity) < STUCK_MS;
  }
}
