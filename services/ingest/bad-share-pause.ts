import { fresh, freshly, select, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import type { BadShare } from './delivery/ports.ts';
import { statements } from './statements.ts';

/** A pause of a partition because too many of its last messages were bad. */
export interface Pause {
  readonly topic: string;
  readonly partition: number;
  readonly incarnation: number;
  /** first offset that is not yet taken */
  readonly next: number;
  /** the decision's numbers: dead letters among the last messages, and how many messages those were */
  readonly bad: number;
  readonly messages: number;
  /** ISO 8601 */
  readonly paused_until: string;
  /** milliseconds; 0 = the pause is over */
  readonly leftMs: number;
}

interface BadShareLimits {
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
 * Decides whether more than `percent` of the last `window` messages are bad. If a partition has fewer messages, the rest
 * counts as good, so a few bad ones of a small topic pause nothing. Batches count whole. The ledger is read only if the
 * share may be exceeded: the bad messages of the last look, and all bad ones since.
 */
export function createShareCount({ percent, window }: Pick<BadShareLimits, 'percent' | 'window'>) {
  /** undefined before the first look: the last owner may have seen too many */
  let bad: number | undefined;
  let since = 0;
  return {
    add(deadLetters: number): void {
      since += deadLetters;
    },
    /** true = time to look */
    mayBeTooMuch: (): boolean => bad === undefined || (since > 0 && (bad + since) * 100 > percent * window),
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

/** The bad-share pause of one partition. Pauses stand in a table: they outlive the process, and commands find them. */
export function createBadShare(
  clickhouse: ClickHouse,
  topic: string,
  partition: number,
  limits: BadShareLimits,
): BadShare {
  const count = createShareCount(limits);
  const where = { topic, partition };
  let last: Pause | undefined;

  return {
    async paused() {
      [last] = await readPauses(clickhouse, where);
      if (last === undefined || last.leftMs <= 0) return undefined;
      const { topic: _, partition: __, ...pause } = last;
      return pause;
    },

    add: (deadLetters) => count.add(deadLetters),

    async pauses(incarnation, next) {
      if (!count.mayBeTooMuch()) return false;
      const from = last?.incarnation === incarnation ? last.next : 0;
      const [share] = await select<Share>(clickhouse, statements.badShare, {
        ...where,
        incarnation,
        from,
        window: limits.window,
      });
      if (!count.look(share!)) return false;
      await clickhouse.execute({
        sql: statements.pausePartition,
        params: { ...where, incarnation, next, ...share!, seconds: limits.pauseSeconds },
      });
      count.reset();
      return true;
    },
  };
}

/** The last pause of each partition, or of one. */
export async function readPauses(
  clickhouse: Reader,
  one?: { readonly topic: string; readonly partition: number },
): Promise<Pause[]> {
  return select<Pause>(fresh(clickhouse, ['paused_partitions']), statements.pausedPartitions, {
    topic: one?.topic ?? '',
    partition: one?.partition ?? 0,
  });
}

/** Resumes a paused partition; ingest looks every two seconds. */
export async function resumePartition(clickhouse: ClickHouse, topic: string, partition: number): Promise<void> {
  await clickhouse.execute({
    sql: statements.resumePartition,
    params: { topic, partition },
    ...freshly(['paused_partitions']),
  });
}
