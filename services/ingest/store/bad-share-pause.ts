import { fresh, freshly, select, type ClickHouse, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { BadShare } from '../delivery/ports.ts';
import { ofPartition, type ShardOf } from './shard.ts';
import { shared } from './shared-read.ts';
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

/**
 * Returns what creates the bad-share pause of a partition: more than `percent` of the last `window` messages are bad. If
 * a partition has fewer messages, the rest counts as good, so a few bad ones of a small topic pause nothing. Batches
 * count whole. The ledger is read only if the bad messages of the last look and all bad ones since may exceed the share.
 * Pauses stand in a table: they outlive the process, and commands find them. Partitions that are taken together share
 * one read of it.
 */
export function createBadShares(
  clickhouse: ClickHouse,
  shardOf: ShardOf,
  { percent, window, pauseSeconds }: BadShareLimits,
): (topic: string, partition: number) => BadShare {
  const readAll = shared(() => readPauses(clickhouse));
  return (topic, partition) => {
    const where = { topic, partition };
    const shard = ofPartition(clickhouse, shardOf, topic, partition);
    const ledger = fresh(shard, ['batches']);
    let last: Pause | undefined;
    /** of the last look; undefined before the first one: the last owner may have seen too many */
    let bad: number | undefined;
    let since = 0;

    return {
      async paused() {
        last = (await readAll()).find((p) => p.topic === topic && p.partition === partition);
        if (last === undefined || last.leftMs <= 0) return undefined;
        const { topic: _, partition: __, ...pause } = last;
        return pause;
      },

      add(deadLetters) {
        since += deadLetters;
      },

      async pauses(incarnation, next) {
        if (bad !== undefined && (since === 0 || (bad + since) * 100 <= percent * window)) return false;
        const from = last?.incarnation === incarnation ? last.next : 0;
        const of = { ...where, incarnation, from, window };
        const share = (await select<Pick<Pause, 'bad' | 'messages'>>(ledger, statements.badShare, of))[0]!;
        const isTooMuch = share.bad * 100 > percent * Math.max(share.messages, window);
        if (isTooMuch)
          await shard.execute({
            sql: statements.pausePartition,
            params: { ...where, incarnation, next, ...share, seconds: pauseSeconds },
            // the row's version is one above the last one: a replica that lags would repeat the version of a resume
            ...freshly(['paused_partitions']),
          });
        // nothing before a pause counts any more
        bad = isTooMuch ? 0 : share.bad;
        since = 0;
        return isTooMuch;
      },
    };
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
