import { expect, test } from 'vitest';
import type { ClickHouse, Read, Shard } from '../../../common/clickhouse/clickhouse.ts';
import { sources } from '../../../common/sources.ts';
import { assertShard, chooseShard, createShardOf, findShard } from './shard.ts';

const SHARDS = ['s1', 's2', 's3'];

/** A cluster whose register of owners knows these claims, by `topic:partition`. */
function cluster(claims: ReadonlyMap<string, string>, reads: Read[] = []): ClickHouse {
  return {
    shards: SHARDS.map((shard) => ({ shard }) as Shard),
    read: async (read: Read) => {
      reads.push(read);
      const shard = claims.get(`${String(read.params!['topic'])}:${String(read.params!['partition'])}`);
      const body = Buffer.from(shard === undefined ? '' : JSON.stringify({ shard }));
      return { body, readRows: undefined, readBytes: undefined };
    },
  } as unknown as ClickHouse;
}

test('the partitions of a topic take turns, so that no shard has two more of them than another', () => {
  for (const topic of ['a', 'edge_logs', 'логи']) {
    const counts = SHARDS.map(
      (shard) => Array.from({ length: 16 }, (_, p) => chooseShard(topic, p, SHARDS)).filter((s) => s === shard).length,
    );
    expect(Math.max(...counts) - Math.min(...counts)).toBe(1);
  }
  // not all first partitions on the same one
  expect(new Set(sources.map(({ name }) => chooseShard(name, 0, SHARDS))).size).toBe(3);
});

test('a claimed partition keeps its shard, whatever shards there are now; another one is chosen', async () => {
  const reads: Read[] = [];
  const shardOf = createShardOf(cluster(new Map([['t:0', 's2']]), reads));
  expect(shardOf.nameOf('t', 0)).toBeUndefined();
  expect((await shardOf('t', 0)).shard).toBe('s2');
  expect(shardOf.nameOf('t', 0)).toBe('s2');
  expect((await shardOf('t', 1)).shard).toBe(chooseShard('t', 1, SHARDS));
  expect((await shardOf('t', 0)).shard).toBe('s2');
  expect(reads.map((r) => r.fresh?.tables)).toEqual([['partition_owners'], ['partition_owners']]);
});

test('a partition on a shard that the cluster does not have, or on none, is refused with what to do', async () => {
  await expect(findShard(cluster(new Map([['t:0', 's4']])), 't', 0)).rejects.toThrow(
    't partition 0 is on the shard s4, not on s1, s2, s3',
  );
  await expect(findShard(cluster(new Map([['t:0', '']])), 't', 0)).rejects.toThrow("UPDATE shard = 'S'");
  expect(() => assertShard('t', 0, 's1', 's2')).toThrow('t partition 0 is on the shard s1, not on s2');
  assertShard('t', 0, 's1', 's1');
  // without a cluster
  assertShard('t', 0, '', undefined);
});
