/**
 * Inserts a second, over all partitions that have traffic: the more of them trickle, the longer each waits for company.
 */
const INSERTS_PER_SECOND = 40;
const LINGER_MAX_MS = 10_000;
/**
 * Measured over a backlog: 68 batches of 150,000 edge events became 50, and an event took 96 us of CPU instead of 113
 * (two busy cores).
 */
const FILLING_MS = 500;

export interface Waiting {
  /** more of the partition is known to stand in Kafka, and it is being fetched */
  readonly isFilling: boolean;
  /** partitions that had traffic lately */
  readonly active: number;
}

/**
 * How long the first record of a batch waits for company, milliseconds; a full batch does not wait. What an insert
 * costs by itself is shared by all its events.
 */
export function lingerMs({ isFilling, active }: Waiting): number {
  const trickle = Math.min(LINGER_MAX_MS, (active * 1000) / INSERTS_PER_SECOND);
  return isFilling ? Math.max(FILLING_MS, trickle) : trickle;
}
