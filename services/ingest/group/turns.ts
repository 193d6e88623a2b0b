import type { Lane } from '../delivery/lane.ts';
import type { CutLimits } from '../inbox.ts';

/** If nothing came in a turn for this long, another one begins beside it. */
export const TURN_MS = 1_000;

/** A partition that was assigned to this process. */
export interface Partition {
  readonly lane: Pick<Lane, 'state' | 'isRecovering'> & {
    readonly inbox: Pick<Lane['inbox'], 'next' | 'end' | 'bytes' | 'size' | 'heldBytes'>;
  };
  /** one after its last readable offset in Kafka, as the last fetch said; 0 before the first one */
  readonly end: number;
  readonly lastFetch: { readonly bytes: number; readonly records: number };
}

/** More of the partition is known to stand in Kafka. */
export function isBehind({ end, lane }: Partition): boolean {
  return end > lane.inbox.end;
}

/** Lanes in other states ask for records themselves. */
export function isRunning({ lane }: Partition): boolean {
  return lane.state === 'running';
}

/**
 * Which partitions may be fetched. Those at the end of their log always may, within the limits of memory. Of those that
 * are behind one may at a time, until it has a whole batch: together they would share the memory, and each batch and
 * each part would be small. A turn in which nothing comes (a slow fetch, a broker that is away) goes on, and the next
 * one begins beside it. Pure: knows neither Kafka nor timers.
 */
export class Turns<P extends Partition> {
  readonly #limits: CutLimits;
  readonly #monotonic: () => number;
  readonly #turns = new Map<P, Turn>();
  /** whose turn began last */
  #latest: P | undefined;

  /** `limits`: of one batch */
  constructor(limits: CutLimits, monotonic: () => number) {
    this.#limits = limits;
    this.#monotonic = monotonic;
  }

  has(partition: P): boolean {
    return this.#turns.has(partition);
  }

  /** Something was fetched of the partition. */
  fetched(partition: P): void {
    const turn = this.#turns.get(partition);
    if (turn !== undefined) turn.lastAt = this.#monotonic();
  }

  /**
   * Ends turns with a whole batch, at the end of the log, or when the batch was cut. Where none is left in which
   * something comes, the next one begins. Returns those whose turn has ended.
   */
  pass(all: readonly P[]): P[] {
    const ended = [...this.#turns].flatMap(([p, { next }]) =>
      all.includes(p) && this.#wantsMore(p) && p.lane.inbox.next === next ? [] : [p],
    );
    for (const partition of ended) this.#turns.delete(partition);
    const now = this.#monotonic();
    if ([...this.#turns.values()].some(({ lastAt }) => now - lastAt < TURN_MS)) return ended;
    const at = this.#latest === undefined ? 0 : all.indexOf(this.#latest) + 1;
    const next = [...all.slice(at), ...all.slice(0, at)].find((p) => !this.has(p) && this.#wantsMore(p));
    if (next !== undefined) {
      this.#turns.set(next, { next: next.lane.inbox.next, lastAt: now });
      this.#latest = next;
    }
    return ended;
  }

  /** It is behind, and its next fetch fits into the batch that it gathers. */
  #wantsMore(partition: P): boolean {
    const { maxBytes, maxRecords } = this.#limits;
    const { lastFetch, lane } = partition;
    const { bytes, size } = lane.inbox;
    const fits = bytes + lastFetch.bytes <= maxBytes && size + lastFetch.records <= maxRecords;
    return isRunning(partition) && isBehind(partition) && (size === 0 || fits);
  }

  /**
   * Together the partitions hold three batches: two that are written and one that is gathered. With two, the engine
   * waits for the next batch a fifth of the time. A partition that holds nothing may fetch up to four: an insert that
   * hangs keeps its own batch, the next one and a fetch, and must not stop the others.
   * `share`: of the limits. A paused partition waits for more room than a running one.
   */
  mayFetch(partition: P, all: Iterable<P>, share: number): boolean {
    const { inbox, isRecovering } = partition.lane;
    if (isRecovering) return true;
    if (isBehind(partition) && !this.has(partition)) return false;
    const { maxBytes } = this.#limits;
    let total = 0;
    for (const { lane } of all) total += lane.inbox.heldBytes;
    // the batch that is gathered beside the one being written is one batch at most
    return inbox.bytes < maxBytes * share && total < maxBytes * (inbox.heldBytes === 0 ? 4 : 3 * share);
  }
}

interface Turn {
  /** first offset of the batch that is gathered */
  readonly next: number;
  /** of the last fetch in this turn, or of its beginning; monotonic milliseconds */
  lastAt: number;
}
