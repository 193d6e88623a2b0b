import { select, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { statements } from './statements.ts';

/** A pause of a partition because too many of its last messages were bad. */
export interface Pause {
  readonly topic: string;
  readonly partition: number;
  readonly incarnation: number;
  /** first offset that is not yet taken */
  readonly next: number;
  /** what it was decided by: dead letters of the last messages, and how many those were */
  readonly bad: number;
  readonly messages: number;
  /** ISO 8601 */
  readonly pausedUntil: string;
  /** milliseconds; 0 = it is over */
  readonly leftMs: number;
}

/** The brake of one partition. Errors with `kind: 'retry'` are tried again, as those of Store. */
export interface Brake {
  /** undefined = the partition is not paused */
  paused(): Promise<Pause | undefined>;
  /** To be told of each batch in the ledger. True = too many of the last messages are bad, and the partition is paused from here on. */
  applies(batch: { readonly incarnation: number; readonly last: number }, messages: number): Promise<boolean>;
}

export interface BrakeLimits {
  /** more than this share of the last messages, percent; 100 = never */
  readonly percent: number;
  /** how many messages the last ones are */
  readonly window: number;
  readonly pauseSeconds: number;
}

export interface Share {
  readonly bad: number;
  readonly messages: number;
}

/**
 * The decision: are more than `percent` of the last `window` messages bad? A partition with fewer than that counts as if the rest were good, so that a
 * few bad ones of a small topic pause nothing. Batches count whole. What is bad stands in the ledger alone, and is looked up only when it may be
 * too much by now: what was bad at the last look and every message since.
 */
export function createShareCount({ percent, window }: Pick<BrakeLimits, 'percent' | 'window'>) {
  let bad = 0;
  let since = 0;
  return {
    /** true = time to look */
    add(messages: number): boolean {
      since += messages;
      return (bad + since) * 100 > percent * window;
    },
    /** true = too many */
    look(share: Share): boolean {
      bad = share.bad;
      since = 0;
      return share.bad * 100 > percent * Math.max(share.messages, window);
    },
    /** nothing before counts any more */
    reset(): void {
      bad = 0;
      since = 0;
    },
  };
}

/** The brake of one partition, with its pauses in a table: they outlive the process, and commands find them. */
export function createBrake(clickhouse: ClickHouse, topic: string, partition: number, limits: BrakeLimits): Brake {
  const count = createShareCount(limits);
  const where = { topic, partition };
  let last: Pause | undefined;
  // a partition just taken may be in the middle of it
  let isKnown = false;

  return {
    async paused() {
      [last] = await readPauses(clickhouse, where);
      return last !== undefined && last.leftMs > 0 ? last : undefined;
    },

    async applies(batch, messages) {
      if (!count.add(messages) && isKnown) return false;
      const { incarnation } = batch;
      const from = last?.incarnation === incarnation ? last.next : 0;
      const [share] = await select<Share>(clickhouse, statements.badShare, { ...where, incarnation, from, window: limits.window });
      isKnown = true;
      if (!count.look(share!)) return false;
      await clickhouse.execute({ sql: statements.pausePartition, params: { ...where, incarnation, next: batch.last + 1, ...share!, seconds: limits.pauseSeconds }, settings: { async_insert: 0 } });
      count.reset();
      return true;
    },
  };
}

/** The last pause of each partition, or of one. */
export async function readPauses(clickhouse: Reader, one?: { readonly topic: string; readonly partition: number }): Promise<Pause[]> {
  type Row = Omit<Pause, 'pausedUntil' | 'leftMs'> & { paused_until: string; left_ms: number };
  const found = await select<Row>(clickhouse, statements.pausedPartitions, { topic: one?.topic ?? '', partition: one?.partition ?? 0 });
  return found.map(({ paused_until: pausedUntil, left_ms: leftMs, ...pause }) => ({ ...pause, pausedUntil, leftMs }));
}

/** Lets a paused partition go on; ingest looks every two seconds. */
export async function resumePartition(clickhouse: ClickHouse, topic: string, partition: number): Promise<void> {
  await clickhouse.execute({ sql: statements.resumePartition, params: { topic, partition }, settings: { async_insert: 0 } });
}
