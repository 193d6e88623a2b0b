import { expect, test } from 'vitest';
import type { ClickHouse, Shard } from '../../../common/clickhouse/clickhouse.ts';
import { SHARED_TABLES } from '../../../common/clickhouse/cluster/cluster.ts';
import { readShares } from './shares.ts';

/** A source with one rollup, of whose raw table retention has dropped the days before 86,400. */
const from = {
  read: () =>
    Promise.resolve({
      body: Buffer.from('{"table":"api_requests_v1","source":"edge_logs","horizon":86400}\n'),
      readRows: undefined,
      readBytes: undefined,
    }),
};
const SHARDS = ['s1', 's2'].map((shard) => ({ shard }) as Shard);
const KAFKA = ['kafka_topic', 'kafka_partition', 'kafka_offset', 'timestamp'];

async function sharesOf(table: string, columns: readonly string[], shards?: readonly Shard[]): Promise<string[]> {
  const shares = (await readShares(from, { shards, shard: 'alone' } as unknown as ClickHouse))(table, columns);
  return shares.map(({ to, where, params, isViewed }) =>
    [to.shard, where.replace(/^arrayElement\(.*\) \+ 1\)/, 'CHOSEN'), JSON.stringify(params ?? {}), isViewed ?? '']
      .join(' ')
      .trim(),
  );
}

test('a single place gets all rows of every table', async () => {
  for (const table of ['edge_logs', 'api_requests_v1', 'expired_days', 'batches'])
    expect(await sharesOf(table, KAFKA)).toEqual(['alone true {}']);
});

test('of several shards each gets its partitions, and its views get the rows whose days raw still has', async () => {
  const own = (shard: string): string => `${shard} CHOSEN = {shard:String} {"shard":"${shard}"}`;
  expect(await sharesOf('auth_logs', KAFKA, SHARDS)).toEqual([own('s1'), own('s2')]);
  expect(await sharesOf('batches', ['topic', 'incarnation', 'partition'], SHARDS)).toEqual([own('s1'), own('s2')]);
  const before = "timestamp < toDateTime64({horizon:UInt32}, 6, 'UTC')";
  expect(await sharesOf('edge_logs', KAFKA, SHARDS)).toEqual(
    ['s1', 's2'].flatMap((shard) => [
      `${shard} CHOSEN = {shard:String} AND ${before} {"shard":"${shard}","horizon":86400}`,
      `${shard} CHOSEN = {shard:String} AND NOT (${before}) {"shard":"${shard}","horizon":86400} true`,
    ]),
  );
});

test('what names no partition goes to the first shard, shared tables once, and expired days to all', async () => {
  expect(await sharesOf('api_requests_v1', ['period', 'width', 'at'], SHARDS)).toEqual([
    `s1 at < toDateTime64({horizon:UInt32}, 6, 'UTC') {"horizon":86400}`,
  ]);
  for (const table of [...SHARED_TABLES, 'canary'])
    expect(await sharesOf(table, SHARED_TABLES.has(table) ? ['topic', 'partition'] : ['attempt'], SHARDS)).toEqual([
      's1 true {}',
    ]);
  expect(await sharesOf('expired_days', ['source', 'before'], SHARDS)).toEqual(['s1 true {}', 's2 true {}']);
});
