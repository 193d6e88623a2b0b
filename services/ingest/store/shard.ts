import { crc32 } from 'node:zlib';
import { fresh, select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { createLimit } from '../../../common/clickhouse/pool.ts';
import { StartError } from '../../../common/errors.ts';
import { keyOf } from '../../../common/kafka/partition.ts';
import { statements } from './statements.ts';

/**
 * A process takes all its partitions at once. Of more reads than this the client would refuse some, callers' queries
 * too (READ_QUEUE in common/clickhouse/pool.ts).
 */
export const TAKEOVER_READS = 16;

/**
 * Where the rows of a partition are. In a cluster of several shards, all that is written of one partition of Kafka is on
 * one shard: rows, dead letters, replays, ledger. Its first claim (partition_owners) names the shard for ever. So a
 * cluster that gets another shard sends only partitions there that nobody has claimed before.
 */
export type ShardOf = ReturnType<typeof createShardOf>;

/** Returns the shard of a partition that nobody has claimed. The partitions of a topic take turns. */
export function chooseShard(topic: string, partition: number, shards: readonly string[]): string {
  return shards[(crc32(topic) + partition) % shards.length]!;
}

/** Returns chooseShard as SQL. Parameters: shards. */
export function chosenShardSql(topic: string, partition: string): string {
  return `arrayElement({shards:Array(String)}, toUInt32((CRC32(${topic}) + ${partition}) % length({shards:Array(String)})) + 1)`;
}

/** Returns the shard of a partition. Throws StartError if it is none of the cluster's. */
export async function findShard(clickhouse: ClickHouse, topic: string, partition: number): Promise<ClickHouse> {
  const { shards } = clickhouse;
  if (shards === undefined) return clickhouse;
  const [claimed] = await select<{ shard: string }>(
    fresh(clickhouse, ['partition_owners']),
    statements.shardOfPartition,
    { topic, partition },
  );
  const names = shards.map(({ shard }) => shard);
  const name = claimed?.shard ?? chooseShard(topic, partition, names);
  const found = shards.find(({ shard }) => shard === name);
  if (found === undefined) throw wrongShard(topic, partition, name, names.join(', '));
  return found;
}

/** Finds each shard once: it never changes. */
export function createShardOf(clickhouse: ClickHouse) {
  const known = new Map<string, ClickHouse>();
  const few = createLimit(TAKEOVER_READS);
  return Object.assign(
    async (topic: string, partition: number): Promise<ClickHouse> => {
      const place = keyOf(topic, partition);
      const shard = known.get(place) ?? (await few.use('', () => findShard(clickhouse, topic, partition)));
      known.set(place, shard);
      return shard;
    },
    {
      /** Returns the shard's name. Undefined before it was found, and without shards. */
      nameOf: (topic: string, partition: number): string | undefined => known.get(keyOf(topic, partition))?.shard,
    },
  );
}

/** Returns the ClickHouse of one partition: each of its statements runs on the shard of the partition. */
export function ofPartition(clickhouse: ClickHouse, shardOf: ShardOf, topic: string, partition: number): ClickHouse {
  if (clickhouse.shards === undefined) return clickhouse;
  const shard = (): Promise<ClickHouse> => shardOf(topic, partition);
  return {
    ...clickhouse,
    read: async (read) => await (await shard()).read(read),
    execute: async (statement) => await (await shard()).execute(statement),
    insertRows: async (rows) => await (await shard()).insertRows(rows),
    killInsert: async (queryId) => await (await shard()).killInsert(queryId),
  };
}

/**
 * Throws StartError if a partition was claimed for another shard than `shard`: the cluster had other shards then, or
 * another process names others now. Nothing is written before this is known.
 */
export function assertShard(topic: string, partition: number, claimed: string, shard: string | undefined): void {
  if (shard !== undefined && claimed !== shard) throw wrongShard(topic, partition, claimed, shard);
}

function wrongShard(topic: string, partition: number, claimed: string, here: string): StartError {
  return new StartError(
    claimed === ''
      ? `${topic} partition ${partition} was claimed outside of a cluster; if the shard that has its rows is S, run ALTER TABLE partition_owners UPDATE shard = 'S' WHERE shard = ''`
      : `${topic} partition ${partition} is on the shard ${claimed}, not on ${here}: CLICKHOUSE_URL must name the nodes of all shards, and no shard may be removed`,
  );
}
