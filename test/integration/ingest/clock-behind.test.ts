import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { select } from '../../../common/clickhouse/clickhouse.ts';
import { reconcile } from '../../../services/ingest/reconcile.ts';
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
