import type { Lane } from '../delivery/lane.ts';
import type { CutLimits } from '../delivery/inbox.ts';
import { StuckLanes } from './stuck-lanes.ts';

/** If nothing came in a turn for this long, another one begins beside it. */
export const TURN_MS = 1_000;

/** A partition that was assigned to this process. */
export interface Partition {
  readonly lane: Pick<Lane, 'state' | 'isRecovering'> & {
    readonly inbox: Pick<Lane['inbox'], 'next' | 'written' | 'end' | 'bytes' | 'size' | 'heldBytes'>;
  };
  /** where its rows go: its topic, on its shard */
  readonly target: string;
  /**
   * One after the last readable offset, as of the last fetch; 0 before the first one. After a fetch that reached the
   * log's end: the inbox's end, because the inbox lacks the offsets without a record that may stand there.
   */
  readonly end: number;
  readonly lastFetch: { readonly bytes: number; readonly records: number };
}

/** More of the partition is known to stand in Kafka. */
export function isBehind({ end, lane }: Partition): boolean {
  return end > lane.inbox.end;
}

/** Only these are paused and resumed by arrange (assignment.ts). Lanes in other states use fetchFrom (ports.ts). */
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
  /** as of the last pass() */
  readonly stuck = new StuckLanes<P>();
  readonly #limits: CutLimits;
  readonly #monotonic: () => number;
  readonly #turns = new Map<P, Turn>();
  /** whose turn began last */
  #latest: P | undefined;
  /**
   * What is held as of the last pass(): bytes in total, and while a batch is late also bytes of stuck targets, and the
   * targets that hold something in running lanes that are not late.
   */
  #held = { total: 0, ofStuck: 0, targets: new Set<string>() };

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
   * Ends a turn when its batch is whole or was cut, or when the end of the log is reached. Where none is left in which
   * something comes, the next one begins. Returns those whose turn has ended.
   */
  pass(all: readonly P[]): P[] {
    const now = this.#monotonic();
    this.stuck.look(all, now);
    this.#held = this.#sum(all);
    const ended = [...this.#turns].flatMap(([p, { next }]) =>
      all.includes(p) && this.#wantsMore(p) && p.lane.inbox.next === next ? [] : [p],
    );
    for (const partition of ended) this.#turns.delete(partition);
    if ([...this.#turns.values()].some(({ lastAt }) => now - lastAt < TURN_MS)) return ended;
    const at = this.#latest === undefined ? 0 : all.indexOf(this.#latest) + 1;
    const next = [...all.slice(at), ...all.slice(0, at)].find((p) => !this.has(p) && this.#wantsMore(p));
    if (next !== undefined) {
      this.#turns.set(next, { next: next.lane.inbox.next, lastAt: now });
      this.#latest = next;
    }
    return ended;
  }

  #sum(all: readonly P[]) {
    const { stuck } = this;
    let total = 0;
    let ofStuck = 0;
    const targets = new Set<string>();
    for (const partition of all) {
      const { heldBytes } = partition.lane.inbox;
      total += heldBytes;
      if (!stuck.isAny || heldBytes === 0) continue;
      if (stuck.has(partition)) ofStuck += heldBytes;
      if (isRunning(partition) && !stuck.isLate(partition)) targets.add(partition.target);
    }
    return { total, ofStuck, targets };
  }

  /** It is behind, and its next fetch fits into the batch that it gathers. */
  #wantsMore(partition: P): boolean {
    const { maxBytes, maxRecords } = this.#limits;
    const { lastFetch, lane } = partition;
    const { bytes, size } = lane.inbox;
    const fits = bytes + lastFetch.bytes <= maxBytes && size + lastFetch.records <= maxRecords;
    if (!isRunning(partition) || !isBehind(partition) || (size > 0 && !fits)) return false;
    // a turn that nobody can use would delay the others
    return !this.stuck.has(partition) || this.#hasRoom(partition, 1);
  }

  /**
   * `share`: the part of the limits that may be used. It is 1 for a partition that is fetched, and less for one that
   * the client has paused, so that it begins again later (arrange in assignment.ts). `paused` of the lane is something
   * else. To be asked after pass(), which sums up what is held: a sum for each partition would take 84 % of a core with
   * 360 of them.
   */
  mayFetch(partition: P, share: number): boolean {
    // it waits for the rest of an announced batch (lane.ts)
    if (partition.lane.isRecovering) return true;
    return (!isBehind(partition) || this.has(partition)) && this.#hasRoom(partition, share);
  }

  /**
   * Together the partitions hold three batches: two that are written and one that is gathered. If they held two, the
   * engine would wait for the next batch a fifth of the time. A partition that holds nothing may fetch while all
   * together hold less than four batches. Stuck batches count as two at most, so they never stop the targets that
   * work. While any batch is stuck, only recovering lanes fetch once all together hold eight.
   */
  #hasRoom(partition: P, share: number): boolean {
    const { stuck } = this;
    const { ofStuck, targets } = this.#held;
    let { total } = this.#held;
    const { inbox } = partition.lane;
    const { maxBytes } = this.#limits;
    const isEmpty = inbox.heldBytes === 0;
    if (stuck.isAny) {
      if (stuck.isLate(partition)) return false;
      // A target that stored nothing lately may be stuck too: one fetch at a time shows it. A target that is known to
      // be stuck begins none once all together hold four batches.
      const { target } = partition;
      if (!stuck.works(target))
        return isEmpty && !targets.has(target) && total < maxBytes * (stuck.targets.has(target) ? 4 : 8);
      if (total >= maxBytes * 8) return false;
      total -= Math.max(0, ofStuck - 2 * maxBytes);
    }
    // the batch that is gathered beside the one being written is one batch at most
    return inbox.bytes < maxBytes * share && total < maxBytes * (isEmpty ? 4 : 3 * share);
  }
}

interface Turn {
  /** first offset of the batch that is gathered */
  readonly next: number;
  /** of the last fetch in this turn, or of its beginning; monotonic milliseconds */
  lastAt: number;
}
