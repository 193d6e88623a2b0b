import { select, shardsOf, type ClickHouse, type Param, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { SHARED_TABLES } from '../../../common/clickhouse/cluster/cluster.ts';
import { chosenShardSql } from '../store/shard.ts';
import { statements } from '../store/statements.ts';

/** The rows of a table that a move copies to one place. */
export interface Share {
  readonly to: ClickHouse;
  /** a condition on the rows, and its parameters beside `shards` */
  readonly where: string;
  readonly params?: Readonly<Record<string, Param>>;
  /** true if they are copied when the views are there, which make the rollups of them */
  readonly isViewed?: true;
}

/** Returns the shares of a table by its name and columns. */
type SharesOf = (table: string, columns: readonly string[]) => readonly Share[];

/** Its first row of a partition names the shard (shard.ts). A restore begins with it. */
export const CLAIMS = 'partition_owners';
/** Created last: until it is there, services wait for their schema. */
export const LAST = 'migrations';
/** A table of each shard that says the same on all of them. */
const REPEATED = 'expired_days';

/** Returns the names of the shards; one of '' without a cluster. */
export function shardNames(clickhouse: ClickHouse): readonly string[] {
  return shardsOf(clickhouse).map(({ shard }) => shard ?? '');
}

/**
 * Decides where the rows of each table go. A single place gets all of them. Of several shards:
 * - Each gets what was written of its partitions of Kafka: rows, dead letters, replays, ledger.
 * - Views fill the rollups of each shard from its rows. Of days that raw no longer has, only the rollups are left, which
 * do not know the partitions. They go to the first shard, because answers add up all shards.
 * - What the shards share, or belongs to no partition, is written once, through the first shard.
 */
export async function readShares(from: Reader, to: ClickHouse): Promise<SharesOf> {
  const { shards } = to;
  if (shards === undefined) return () => [{ to, where: 'true' }];
  const rollups = await select<{ table: string; source: string; horizon: number }>(from, statements.rollupsToMove);
  return (table, columns) => {
    if (table === REPEATED) return shards.map((to) => ({ to, where: 'true' }));
    const rollup = rollups.find((r) => r.table === table);
    if (rollup !== undefined) return [{ to: shards[0]!, where: before('at'), params: { horizon: rollup.horizon } }];
    const [topic, partition] = columns.includes('kafka_topic')
      ? (['kafka_topic', 'kafka_partition'] as const)
      : (['topic', 'partition'] as const);
    if (SHARED_TABLES.has(table) || !columns.includes(topic)) return [{ to: shards[0]!, where: 'true' }];
    const own = `${chosenShardSql(topic, partition)} = {shard:String}`;
    const horizon = rollups.find((r) => r.source === table)?.horizon;
    return shards.flatMap((to): Share[] => {
      const params = { shard: to.shard };
      if (horizon === undefined) return [{ to, where: own, params }];
      return [
        { to, where: `${own} AND ${before('timestamp')}`, params: { ...params, horizon } },
        { to, where: `${own} AND NOT (${before('timestamp')})`, params: { ...params, horizon }, isViewed: true },
      ];
    });
  };
}

/** A condition on events and buckets of days that raw no longer has whole. Parameters: horizon. */
function before(column: 'timestamp' | 'at'): string {
  return `${column} < toDateTime64({horizon:UInt32}, 6, 'UTC')`;
}
