import { afterAll, beforeAll, expect, test } from 'vitest';
import { select } from '../../../common/clickhouse/clickhouse.ts';
import { systemClock } from '../../../common/clock.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import {
  announceReplay,
  readDeadLetter,
  replayAll,
  replayDeadLetter,
  type ReplayOptions,
  type ReplayOutcome,
} from '../../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import { createDecoders } from '../../../services/ingest/service.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { repairOpen } from '../../../services/rollup/repairs.ts';
import { openTestClickHouse, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { uniqueName } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: of two replays of one letter at once, by commands or over HTTP, each finds the letter a row, once, in its
// table and in every rollup; and no replay is lost with an announcement of which only the token survived.

const DAY = 86_400_000;
const REF = 'abcdefghijklmnopqrst';
let engine: TestClickHouse;
let replaying: ReplayOptions;
let context: Context;

beforeAll(async () => {
  engine = await openTestClickHouse();
  const { clickhouse } = engine;
  const settings = readSettings({});
  replaying = {
    clickhouse,
    decoders: createDecoders(settings),
    retentionDays: 365,
    maxEventBytes: settings.MAX_EVENT_BYTES,
    rawAvroTopics: [],
    clock: systemClock,
  };
  context = {
    clickhouse,
    settings,
    logger: testLogger,
    metrics: createRollupMetrics(createRegistry()),
    clock: Date.now,
    engineClock: () => Promise.resolve(Date.now()),
    wait: () => Promise.resolve(),
  };
  await clickhouse.execute({ sql: 'CREATE TABLE slowness (seconds Float64) ENGINE = Memory' });
  await sleepInView(0);
  // the view of the rollup, with a sleep in it
  const [view] = await select<{ query: string }>(
    clickhouse,
    "SELECT as_select AS query FROM system.tables WHERE database = currentDatabase() AND name = 'api_requests_v1_mv'",
  );
  await clickhouse.execute({
    sql: `ALTER TABLE api_requests_v1_mv MODIFY QUERY ${view!.query} WHERE sleepEachRow((SELECT max(seconds) FROM slowness)) = 0`,
  });
  await beginToday(context);
  await admitNew(context);
});
afterAll(() => engine.close());

/** A letter that the rules of today take. Returns its topic. */
async function makeLetter(id: string): Promise<string> {
  const topic = `edge_logs.${uniqueName('at-once')}`;
  const time = Date.now() - 2 * DAY;
  const metadata = { request: { url: `https://${REF}.example/rest/v1/x`, path: '/rest/v1/x' } };
  const value = Buffer.from(JSON.stringify({ id, project: 'p', timestamp: time, metadata }));
  await openTestStore(engine.clickhouse, { source: 'edge_logs', topic, retentionDays: 1 }).writeBatch({
    records: [{ offset: 0, time, key: null, value, headers: [] }],
  });
  return topic;
}

async function replay(topic: string): Promise<ReplayOutcome> {
  const letter = await readDeadLetter(engine.clickhouse, { topic, partition: 0, offset: '0' });
  return await replayDeadLetter(replaying, letter!);
}

async function count(sql: string): Promise<number> {
  return (await select<{ n: number }>(engine.clickhouse, `SELECT toUInt32(${sql}) AS n`))[0]!.n;
}
const rowsOf = (topic: string): Promise<number> =>
  count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${topic}')`);
const requests = (): Promise<number> => count(`(SELECT sum(requests) FROM api_requests WHERE width = 3600)`);

/** How long an insert of one row works between raw and the rollup from now on. */
async function sleepInView(seconds: number): Promise<void> {
  await engine.clickhouse.execute({ sql: 'TRUNCATE TABLE slowness' });
  await engine.clickhouse.execute({ sql: `INSERT INTO slowness VALUES (${seconds})` });
}

async function repaired(): Promise<void> {
  await waitFor(async () => (await repairOpen(context)) === 0, 20_000, 'the repairs are done');
}

test('many replays of one letter at once store it once', async () => {
  const topic = await makeLetter('quick');
  const before = await requests();
  expect(new Set(await Promise.all(Array.from({ length: 12 }, () => replay(topic))))).toEqual(new Set(['stored']));
  await repaired();
  expect({ rows: await rowsOf(topic), requests: await requests() }).toEqual({ rows: 1, requests: before + 1 });
});

test('a replay that meets the row of another one, whose views are not filled yet, lets no rebuilt rollup count it twice', async () => {
  const topic = await makeLetter('slow');
  const before = await requests();
  await sleepInView(2.5);
  const slow = replay(topic);
  await waitFor(async () => (await rowsOf(topic)) === 1, 10_000, 'the row is there');
  expect(await requests()).toBe(before);
  await sleepInView(0);
  expect(await replay(topic)).toBe('stored');
  await repaired();
  expect(await slow).toBe('stored');
  await repaired();
  expect({ rows: await rowsOf(topic), requests: await requests() }).toEqual({ rows: 1, requests: before + 1 });
  expect((await reconcile(engine.clickhouse, 365)).faults).toEqual([]);
});

test('an announcement of which only the token is there keeps no letter from being replayed', async () => {
  const topic = await makeLetter('announced');
  const place = { topic, incarnation: 0, partition: 0, offset: '0' };
  await announceReplay(engine.clickhouse, place, { evaluatedAt: Date.now(), version: 1, period: 0 }, undefined);
  // as a machine without power loses a part, and not the token that was noted before it
  await engine.clickhouse.execute({
    sql: `ALTER TABLE dead_letter_replays DELETE WHERE kafka_topic = '${topic}'`,
    settings: { mutations_sync: 1 },
  });
  expect((await replayAll(replaying, { topic })).replayed).toEqual({ stored: 1 });
  expect(await rowsOf(topic)).toBe(1);
});
