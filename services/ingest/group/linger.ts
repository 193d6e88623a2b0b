/** Inserts a second over all partitions that have traffic. The more of them trickle, the longer each waits. */
const INSERTS_PER_SECOND = 30;
/**
 * The same where partitions of a topic share inserts: an insert takes 10 to 47 ms of CPU, which is that of this process.
 * Each batch is announced by itself, so batches are bounded too.
 */
const SHARED_INSERTS_PER_SECOND = 12;
const SHARED_BATCHES_PER_SECOND = 120;
const TICK_MIN_MS = 250;
const TICK_MAX_MS = 10_000;
/** Longer than fetching a batch takes. A batch that is cut before it is whole costs more CPU an event. */
const FILLING_MS = 2_000;

export interface Waiting {
  /** when the first record of the batch was seen, monotonic milliseconds */
  readonly since: number;
  /** more of the partition is known to stand in Kafka, and it is its turn (group/turns.ts) */
  readonly isFilling: boolean;
  /** partitions that had traffic lately */
  readonly partitions: number;
  /** their topics, if partitions of a topic share an insert (delivery/joint.ts) */
  readonly topics: number | undefined;
  /** 0 to 1: where the ticks lie between those of others */
  readonly phase: number;
}

/**
 * When a batch is cut although it is not full, monotonic milliseconds. More records share what an insert costs by
 * itself. A partition that trickles is cut at the ticks of its own clock, or its topic's, so a record waits half a tick
 * on average.
 */
export function dueAt({ since, isFilling, partitions, topics, phase }: Waiting): number {
  const seconds =
    topics === undefined
      ? partitions / INSERTS_PER_SECOND
      : Math.max(topics / SHARED_INSERTS_PER_SECOND, partitions / SHARED_BATCHES_PER_SECOND);
  const tick = Math.min(TICK_MAX_MS, Math.max(TICK_MIN_MS, 1000 * seconds));
  if (isFilling) return since + Math.max(FILLING_MS, tick);
  return (Math.floor(since / tick - phase) + 1 + phase) * tick;
}
