import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Read, ReadResult, Shard, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { readRollups, statements, type Rollup } from '../../../services/rollup/period/catalogue.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { DAY, floorTo } from '../../../services/rollup/period/time.ts';
import { admitNew, nextStep } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { edgeEvent, openWorld, type World } from './world.ts';

// Guarantee: history that one of two shards has is pending, and a version serves when both shards have built it. A
// shard that is ready builds once, however long the other one takes.

const START = Date.parse('2028-02-27T10:20:00Z');
const PERIODS = [START, START + DAY * 1000].map((at) => floorTo(at / 1000, DAY)) as [number, number];

let world: World;
let context: Context;
/** Partitions of api_requests that each shard has swapped in. */
let swaps: Record<'s1' | 's2', number>;
/** Whether a batch of s2 is not in its ledger. */
let isUnfinished: boolean;

const answer = (...rows: readonly unknown[]): ReadResult => ({
  body: Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join('')),
  readRows: undefined,
  readBytes: undefined,
});
const eventsOf = (at: number): string[] => [edgeEvent(at, 'https://abcdefghijklmnopqrst.supabase.co/rest/v1/t')];

beforeAll(async () => {
  world = await openWorld({ now: START, migrated: false });
}, 60_000);
afterAll(() => world.close());

/** The engine is s1. s2 reads it too, and writes nothing. Each says that it holds one of the two periods. */
beforeEach(async () => {
  await world.reset({ now: START, migrated: false });
  await world.send('edge_logs', eventsOf(world.now), { period: PERIODS[0] });
  world.now += DAY * 1000;
  await world.send('edge_logs', eventsOf(world.now), { period: PERIODS[1] });
  await world.makeRollups();
  swaps = { s1: 0, s2: 0 };
  isUnfinished = true;
  const { clickhouse } = world;
  const shardOf = (shard: 's1' | 's2', read: (r: Read) => ReadResult | undefined): Shard => ({
    ...clickhouse,
    shard,
    read: async (r) => read(r) ?? (await clickhouse.read(r)),
    execute: async (statement: Statement) => {
      if (/^ALTER TABLE api_requests_v1 (REPLACE|MOVE) PARTITION/.test(statement.sql)) swaps[shard]++;
      if (shard === 's1') await clickhouse.execute(statement);
    },
  });
  const shards = [
    shardOf('s1', ({ sql }) => (sql === statements.periodsOf ? answer({ period: PERIODS[1] }) : undefined)),
    shardOf('s2', ({ sql }) => {
      if (sql === statements.periodsOf) return answer({ period: PERIODS[0] });
      return sql === statements.unfinishedBatches && isUnfinished ? answer({ topic: 't' }) : undefined;
    }),
  ];
  context = { ...world.context, clickhouse: { ...clickhouse, shards } };
  await beginToday(context);
  await admitNew(context);
});

const requests = async (): Promise<Rollup> =>
  (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;

async function finish(): Promise<void> {
  isUnfinished = false;
  while ((await nextStep(context)) !== undefined);
}

test('a version serves when all shards have built what any of them held, each of them once', async () => {
  expect((await requests()).pending).toEqual(PERIODS);
  for (let round = 0; round < 3; round++) await nextStep(context);
  expect(await requests()).toMatchObject({ state: 'building', pending: PERIODS });
  expect(swaps).toMatchObject({ s1: 2, s2: 0 });
  await finish();
  expect(await requests()).toMatchObject({ state: 'serving', pending: [] });
  expect(swaps).toEqual({ s1: 2, s2: 2 });
});

test('what is repaired on one shard while it waits for another one is repaired in the new version', async () => {
  await nextStep(context);
  // killed before its views, and recovered
  const batch = world.announce('edge_logs', eventsOf(world.now - 1000), { period: PERIODS[1] });
  await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
  await batch.insert();
  await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
  const span = { period: PERIODS[1], from: PERIODS[1], to: PERIODS[1] + DAY };
  await requestRepair(context, { source: 'edge_logs', ...span, reason: 'recovery', accept_loss: false });
  await batch.record();
  isUnfinished = false;
  expect(await repairOpen(context)).toBe(1);
  isUnfinished = true;
  await nextStep(context);
  await finish();
  for (let round = 0; (await repairOpen(context)) > 0; round++) expect(round).toBeLessThan(3);
  expect(await world.select('SELECT toUInt32(sum(requests)) AS n FROM api_requests_v1 WHERE width = 3600')).toEqual([
    { n: 3 },
  ]);
});

test('a shard builds again if a build of another service has failed there since', async () => {
  await nextStep(context);
  const side = `api_requests_v1_build_${PERIODS[1]}_0a1b2c3d`;
  await world.clickhouse.execute({ sql: `CREATE TABLE ${side} AS api_requests_v1` });
  await nextStep(context);
  expect(swaps.s1).toBe(3);
  await finish();
  expect(swaps.s1).toBe(3);
});
