import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { select } from '../../../common/clickhouse/clickhouse.ts';
import { createShardOf } from '../../../services/ingest/store/shard.ts';
import { createBadShares, readPauses, resumePartition } from '../../../services/ingest/store/bad-share-pause.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';

// A host judges by its clock. One that starts in 1970, until NTP sets it, makes dead letters of all events; they are
// replayed when the clock is right (docs/runbook.md, SluiceClockDiffers).

let engine: TestClickHouse;

beforeAll(async () => {
  engine = await openTestClickHouse();
});
afterAll(() => engine.close());

const letters = async (topic: string): Promise<number> =>
  (
    await select<{ letters: number }>(
      engine.clickhouse,
      'SELECT toUInt32(count()) AS letters FROM dead_letters WHERE kafka_topic = {topic:String}',
      { topic },
    )
  )[0]!.letters;

test.each([
  ['1970', 60_000],
  ['500 days behind', Date.now() - 500 * 86_400_000],
])('dead letters of a clock %s are kept, and accounted for', async (topic, evaluatedAt) => {
  const store = openTestStore(engine.clickhouse, { source: 'auth_logs', topic });
  const value = Buffer.from(JSON.stringify({ id: 'a', timestamp: new Date().toISOString(), project: 'p' }));
  const records = [0, 1, 2].map((offset) => ({ offset, time: Date.now(), key: null, value, headers: [] }));
  await store.writeBatch({ evaluatedAt, records });
  // the engine drops a part that has expired at once
  await sleep(1_000);
  await engine.clickhouse.execute({ sql: 'OPTIMIZE TABLE dead_letters FINAL' });
  expect(await letters(topic)).toBe(3);
  expect((await reconcile(engine.clickhouse, 90, 0)).faults).toEqual([]);
  await engine.clickhouse.execute({
    sql: `ALTER TABLE dead_letters DELETE WHERE kafka_topic = '${topic}'`,
    settings: { mutations_sync: 1 },
  });
  expect((await reconcile(engine.clickhouse, 90, 0)).faults).toEqual([
    expect.stringContaining('dead letters differ from the ledger'),
  ]);
  await engine.clickhouse.execute({
    sql: `ALTER TABLE batches DELETE WHERE topic = '${topic}'`,
    settings: { mutations_sync: 1 },
  });
});

// Pauses end by ClickHouse's clock.
test.each([
  ['an hour ahead, and was set back', 3_600],
  ['a day ahead, and was set back', 86_400],
])('a pause that began while the clock of ClickHouse was %s, ends', async (topic, aheadSeconds) => {
  const { clickhouse } = engine;
  const pause = async (ahead: number): Promise<number | undefined> => {
    await clickhouse.execute({
      sql: `INSERT INTO paused_partitions SELECT '${topic}', 0, 0, 5, 9, 9, now64(3, 'UTC') + ${ahead} AS at, at + 300, 1 + (SELECT max(version) FROM paused_partitions)`,
    });
    const badShare = createBadShares(clickhouse, createShardOf(clickhouse), {
      percent: 50,
      window: 9,
      pauseSeconds: 300,
    })(topic, 0);
    return (await badShare.paused())?.leftMs;
  };
  expect(await pause(aheadSeconds)).toBeUndefined();
  // a node of a cluster is a little ahead of another one
  expect(await pause(2)).toBeGreaterThan(290_000);
  expect(await pause(0)).toBeGreaterThan(290_000);
  await resumePartition(clickhouse, topic, 0);
  expect(await readPauses(clickhouse, { topic, partition: 0 })).toMatchObject([{ leftMs: 0 }]);
});

test('of the claims of a partition the one with the highest epoch counts, whatever the clock of ClickHouse said', async () => {
  const topic = 'auth_logs.claims';
  const claim = (epoch: number, group: string, aheadSeconds: number): Promise<void> =>
    engine.clickhouse.execute({
      sql: `INSERT INTO partition_owners (topic, partition, epoch, consumer_group, claimed_at) SELECT '${topic}', 0, ${epoch}, '${group}', now64(3, 'UTC') + ${aheadSeconds}`,
    });
  await claim(1, 'theirs', 86_400);
  await claim(2, 'ours', -86_400);
  await claim(3, 'ours', 0);
  const store = openTestStore(engine.clickhouse, { source: 'auth_logs', topic, group: 'ours' });
  expect((await store.register(true)).owner).toEqual({ group: 'ours', epoch: 3, former: 'theirs', isSettled: true });
});
