import { afterAll, beforeAll, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { systemClock } from '../../../common/clock.ts';
import { readSettings, type Settings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { sources } from '../../../common/sources.ts';
import { reconcileCommand } from '../../../services/ingest/commands/reconcile.ts';
import { listDeadLetters, readDeadLetter, replayDeadLetter } from '../../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../../services/ingest/operate/reconcile.ts';
import { createDecoders, startIngest } from '../../../services/ingest/service.ts';
import { statements } from '../../../services/ingest/store/statements.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { beginToday, newestPeriod } from '../../../services/rollup/period/periods.ts';
import { readOpenRepairs, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { openTestClickHouse, testLogger, type TestClickHouse } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { testKafka, uniqueName } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: ingest completes a replay that was killed, whoever made it and whatever its topic: its row is there once, in
// every rollup, and keeps no period from being built.

const DAY = 86_400_000;
const REF = 'abcdefghijklmnopqrst';
const suffix = uniqueName('open-replays');
/** ingest does not read it */
const topic = `elsewhere.${suffix}`;
let engine: TestClickHouse;
let settings: Settings;
let rollup: Context;

beforeAll(async () => {
  engine = await openTestClickHouse();
  settings = readSettings({
    KAFKA_TOPICS: sources.map((s) => `${s.name}=${s.name}.${suffix}`).join(','),
    KAFKA_GROUP_ID: suffix,
    RAW_RETENTION_DAYS: '90',
    KAFKA_TOPIC_PARTITIONS: '1',
  });
  rollup = {
    clickhouse: engine.clickhouse,
    settings,
    logger: testLogger,
    metrics: createRollupMetrics(createRegistry()),
    clock: Date.now,
    engineClock: () => Promise.resolve(Date.now()),
    wait: () => Promise.resolve(),
  };
  await beginToday(rollup);
  await admitNew(rollup);
});
afterAll(() => engine.close());

const count = async (sql: string): Promise<number> =>
  (await select<{ n: number }>(engine.clickhouse, `SELECT toUInt32(${sql}) AS n`))[0]!.n;
const openLetters = async (): Promise<string[]> =>
  (await listDeadLetters(engine.clickhouse, { topic, open: true })).map((l) => l.offset);

/** A letter of each age, in days, that a retention of one day has made. The offset of each is its place. */
async function makeLetters(ages: readonly number[]): Promise<void> {
  const metadata = { request: { url: `https://${REF}.example/rest/v1/x`, path: '/rest/v1/x' } };
  const now = Date.now();
  await openTestStore(engine.clickhouse, { source: 'edge_logs', topic, retentionDays: 1 }).writeBatch({
    records: ages.map((age, offset) => ({
      offset,
      time: now,
      key: null,
      value: Buffer.from(JSON.stringify({ id: String(offset), project: 'p', timestamp: now - age * DAY, metadata })),
      headers: [],
    })),
  });
}

/** What a replay announces, so many minutes ago. */
async function announce(offset: number, period: number, minutes = 1): Promise<void> {
  await engine.clickhouse.execute({
    sql: `INSERT INTO dead_letter_replays (kafka_topic, kafka_partition, kafka_offset, done, evaluated_at, rules, period, timestamp, replayed_at)
      SELECT '${topic}', 0, ${offset}, false, now64(3, 'UTC'), 1, toDateTime(${period}, 'UTC'), now64(6, 'UTC'), now64(3, 'UTC') - INTERVAL ${minutes} MINUTE`,
  });
}

/** Replays a letter up to its mark. Its row comes without its views. */
async function replayUntilKilled(offset: string): Promise<void> {
  const { clickhouse } = engine;
  const execute: ClickHouse['execute'] = (statement) =>
    statement.sql === statements.markReplayed ? Promise.reject(new Error('killed')) : clickhouse.execute(statement);
  await clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
  const letter = (await readDeadLetter(clickhouse, { topic, partition: 0, offset }))!;
  const killed = replayDeadLetter(
    {
      clickhouse: { ...clickhouse, execute },
      decoders: createDecoders(settings),
      retentionDays: 90,
      maxEventBytes: settings.MAX_EVENT_BYTES,
      rawAvroTopics: [],
      clock: systemClock,
    },
    letter,
  );
  await expect(killed).rejects.toThrow('killed');
  await clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
}

test('ingest completes killed replays: their rows count once, and their period is built', async () => {
  // the last one is older than what ingest takes
  await makeLetters([2, 3, 200]);
  const period = await newestPeriod(rollup);
  for (const offset of [0, 1, 2]) await announce(offset, period);
  await replayUntilKilled('0');
  const seconds = Math.floor(Date.now() / 1000);
  const span = { from: seconds - 10 * 86_400, to: seconds };
  const repair = { source: 'edge_logs', period, ...span, reason: 'command', accept_loss: false } as const;
  await requestRepair(rollup, repair);
  expect(await repairOpen(rollup)).toBe(1);
  expect(await readOpenRepairs(engine.clickhouse)).toMatchObject([{ outcome: 'unfinished' }]);
  const account = await reconcile(engine.clickhouse, 365, 0);
  expect(account.faults).toEqual([expect.stringContaining('the replay of a dead letter is not done')]);
  expect(reconcileCommand.print(account)).toContain('The next start of ingest completes them');

  const ingest = await startIngest({
    clickhouse: engine.clickhouse,
    kafka: testKafka(),
    settings,
    logger: testLogger,
    registry: createRegistry(),
  });
  try {
    await waitFor(async () => (await openLetters()).length === 1, 20_000, 'the replays are done');
    expect(await openLetters()).toEqual(['2']);
    expect(await count(`(SELECT count() FROM edge_logs WHERE kafka_topic = '${topic}')`)).toBe(2);
    await waitFor(async () => (await repairOpen(rollup)) === 0, 20_000, 'the repairs are done');
    expect(await count('(SELECT sum(requests) FROM api_requests WHERE width = 3600)')).toBe(2);
    expect(await reconcile(engine.clickhouse, 365)).toMatchObject({ ok: true, faults: [] });
  } finally {
    await ingest.stop();
  }
});

test('a replay that may still run is left alone', async () => {
  await announce(9, 0, 0);
  const open = async (seconds: number): Promise<number[]> =>
    (await select<{ offset: number }>(engine.clickhouse, statements.openReplays, { seconds })).map((l) => l.offset);
  expect([(await open(30)).includes(9), (await open(0)).includes(9)]).toEqual([false, true]);
});
