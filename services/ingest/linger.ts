const TICK_MIN_MS = 250;
const TICK_MAX_MS = 10_000;
/** Longer than fetching a batch takes. A batch that is cut before it is whole costs more CPU an event. */
const FILLING_MS = 2_000;

export interface Waiting {
  /** when the first record of the batch was seen, monotonic milliseconds */
  readonly since: number;
  /** more of the partition is known to stand in Kafka, and it is its turn (group/turns.ts) */
  readonly isFilling: boolean;
  /** partitions that had traffic lately, or topics where their partitions share an insert */
  readonly active: number;
  /** inserts over all of them: the more of them trickle, the longer each waits */
  readonly perSecond: number;
  /** 0 to 1: where the ticks lie between those of others */
  readonly phase: number;
}

/**
 * When a batch is cut that is not full by then, monotonic milliseconds. More records share what an insert costs by
 * itself. A partition that trickles is cut at the ticks of its own clock, so a record waits half a tick on average.
 */
export function dueAt({ since, isFilling, active, perSecond, phase }: Waiting): number {
  const tick = Math.min(TICK_MAX_MS, Math.max(TICK_MIN_MS, (active * 1000) / perSecond));
  if (isFilling) return since + Math.max(FILLING_MS, tick);
  return (Math.floor(since / tick - phase) + 1 + phase) * tick;
}
