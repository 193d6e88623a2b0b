import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ClickHouse, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { readRollups } from '../../../services/rollup/period/catalogue.ts';
import { DAY, floorTo } from '../../../services/rollup/period/time.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { differencesOf, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { edgeEvent, openWorld, unreadable, type World } from './world.ts';

const START = Date.parse('2028-01-31T12:00:00Z');
const REF = 'abcdefghijklmnopqrst';
const DAY_MS = DAY * 1000;

describe('retention', { timeout: 120_000 }, () => {
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: START, migrated: false });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    await world.reset({ now: START });
    await admitNew(world.context);
    // an event of each of the last 24 days, each judged when it happened, as one batch each
    const of24Days = `toDateTime64(${START / 1000}, 6, 'UTC') - toIntervalDay(24 - number) AS timestamp, toDateTime64(timestamp, 3, 'UTC') AS evaluated_at, toStartOfDay(timestamp - 3600, 'UTC') AS period, number AS kafka_offset, number AS batch_last`;
    for (const [source, columns, values] of [
      ['edge_logs', 'url, families, refs', `'https://${REF}.supabase.co/rest/v1/t', 1, ['${REF}']`],
      ['function_edge_logs', 'function_id, is_invocation', `'f', true`],
    ]) {
      await world.clickhouse.execute({
        sql: `INSERT INTO ${source} (project, timestamp, evaluated_at, period, kafka_offset, batch_last, kafka_topic, ${columns}) SELECT '${REF}', ${of24Days}, 'old', ${values} FROM numbers(24)`,
        settings: { max_partitions_per_insert_block: 0 },
      });
    }
    await world.clickhouse.execute({
      sql: `INSERT INTO batches (topic, first, last, source, stored, period, min_timestamp) SELECT 'old', batch_last, batch_last, 'edge_logs', 1, period, timestamp FROM edge_logs`,
      settings: { max_partitions_per_insert_block: 0 },
    });
    world.now = START;
  });

  const keeping = (raw: number, minutes: number, hours: number) => ({
    ...world.context,
    settings: {
      ...world.context.settings,
      RAW_RETENTION_DAYS: raw,
      ROLLUP_1M_RETENTION_DAYS: minutes,
      ROLLUP_1H_RETENTION_DAYS: hours,
    },
  });
  /** days back from now of the oldest event in each table */
  const oldest = async (): Promise<Record<string, number>> =>
    Object.fromEntries(
      (
        await world.select<{ name: string; days: number }>(
          [
            ['raw', 'edge_logs', 'timestamp', ''],
            ['invocations', 'function_edge_logs', 'timestamp', ''],
            ['minutes', 'api_requests', 'at', 'WHERE width = 60'],
            ['hours', 'api_requests', 'at', 'WHERE width = 3600'],
            ['events', 'api_requests', 'at', 'WHERE width = 0'],
            ['days', 'function_invocations', 'at', 'WHERE width = 86400'],
          ]
            .map(
              ([name, table, time, where]) =>
                `SELECT '${name}' AS name, dateDiff('day', min(${time}), toDateTime(${START / 1000}, 'UTC'), 'UTC') AS days FROM ${table} ${where}`,
            )
            .join(' UNION ALL '),
        )
      ).map((row) => [row.name, row.days]),
    );

  test('a shard that cannot be reached keeps no other shard from dropping its days', async () => {
    const lost = { ...world.clickhouse, shard: 'lost', read: () => Promise.reject(new Error('this shard is lost')) };
    const shards = [lost, { ...world.clickhouse, shard: 'here' }] as unknown as NonNullable<ClickHouse['shards']>;
    const context = keeping(10, 20, 20);
    await expect(dropExpired({ ...context, clickhouse: { ...world.clickhouse, shards } })).rejects.toThrow(
      'this shard is lost',
    );
    expect((await oldest())['raw']).toBe(10);
  });

  test('a partition that ClickHouse cannot drop or rewrite keeps no other', async () => {
    const engine = world.clickhouse;
    let refused = 0;
    const execute = async (s: Statement): Promise<void> => {
      const isOfOldest = s.sql.startsWith("ALTER TABLE edge_logs DROP PARTITION ID '20280107'");
      const isOfFirst = s.sql.startsWith('INSERT INTO api_requests_v1_build_') && refused++ === 0;
      if (isOfOldest || isOfFirst) throw unreadable();
      await engine.execute(s);
    };
    const context = keeping(10, 20, 400);
    const error = vi.spyOn(context.logger, 'error');
    // of two sources each: 14 raw days and 4 periods, without the two that are refused
    expect(await dropExpired({ ...context, clickhouse: { ...engine, execute } })).toBe(2 * (14 + 4) - 2);
    expect(error.mock.calls.map(([fields, event]) => [event, fields])).toMatchObject([
      ['rollup_work_failed', { work: 'retention', table: 'edge_logs', partition: '20280107' }],
      ['rollup_work_failed', { work: 'retention', rollup: 'api_requests' }],
    ]);
    error.mockRestore();
    expect(await oldest()).toMatchObject({ raw: 24, invocations: 10, minutes: 24 });
    expect(await dropExpired(context)).toBe(2);
    expect(await oldest()).toMatchObject({ raw: 10, invocations: 10, minutes: 20 });
  });

  test('raw days, minutes and hours each go when their own time has come', async () => {
    expect(await dropExpired(keeping(90, 90, 400))).toBe(0);
    expect(await oldest()).toEqual({ raw: 24, invocations: 24, minutes: 24, hours: 24, events: 24, days: 24 });
    // of two sources each: 16 raw days, the hours of 8 periods, the minutes of 12
    expect(await dropExpired(keeping(8, 4, 16))).toBe(2 * (16 + 8 + 12));
    // a day or period is dropped when its newest possible event is older than the retention
    expect(await oldest()).toEqual({ raw: 8, invocations: 8, minutes: 4, hours: 16, events: 4, days: 16 });
    expect(await dropExpired(keeping(8, 4, 16))).toBe(0);
  });

  test('says which batches, that nobody finishes, keep expired minutes', async () => {
    const at = START - 20 * DAY_MS;
    const batch = world.announce('edge_logs', [edgeEvent(at, `https://${REF}.supabase.co/rest/v1/t`)], {
      period: floorTo(at / 1000, DAY),
    });
    await batch.insert();
    const context = keeping(90, 12, 400);
    const warn = vi.spyOn(context.logger, 'warn');
    await dropExpired(context);
    const { partition, last } = batch;
    const line = {
      rollup: 'api_requests',
      period: new Date(floorTo(at, DAY_MS)).toISOString(),
      outcome: 'unfinished',
      batches: [{ topic: 'edge_logs', incarnation: 0, partition, last }],
    };
    expect(warn.mock.calls).toEqual([[line, 'expired_minutes_kept']]);
    world.now += DAY_MS;
    await batch.record();
    await dropExpired(context);
    expect(warn).toHaveBeenCalledTimes(1);
    warn.mockRestore();
    expect((await oldest())['minutes']).toBe(11);
  });

  test('a clock that is ahead of the other one drops nothing, whichever of the two it is', async () => {
    const ahead = START + 500 * DAY_MS;
    expect(await dropExpired({ ...keeping(90, 90, 400), clock: () => ahead })).toBe(0);
    expect(await dropExpired({ ...keeping(90, 90, 400), engineClock: () => Promise.resolve(ahead) })).toBe(0);
    expect(await oldest()).toEqual({ raw: 24, invocations: 24, minutes: 24, hours: 24, events: 24, days: 24 });
  });

  test('a repair by a clock that is ahead keeps the minutes of its period', async () => {
    const period = Math.floor((START - 24 * DAY_MS) / DAY_MS) * DAY;
    for (const wrong of [{ clock: () => START + 100 * DAY_MS }, { engineClock: async () => START + 100 * DAY_MS }]) {
      const repair = { source: 'edge_logs', period, from: period, to: period + DAY, accept_loss: false } as const;
      await requestRepair(world.context, { ...repair, reason: 'command' });
      expect(await repairOpen({ ...world.context, ...wrong })).toBe(0);
    }
    expect(await oldest()).toMatchObject({ minutes: 24, hours: 24 });
  });

  test('a shorter one takes effect at once, a longer one keeps what is left', async () => {
    await dropExpired(keeping(12, 12, 12));
    await dropExpired(keeping(5, 12, 12));
    expect(await oldest()).toMatchObject({ raw: 5, minutes: 12 });
    await dropExpired(keeping(90, 90, 90));
    expect(await oldest()).toMatchObject({ raw: 5, minutes: 12 });
    // what is gone is noted for the account, and no earlier day takes that back
    expect(
      await world.select(
        'SELECT source, toUnixTimestamp(max(before)) AS before FROM expired_days GROUP BY source ORDER BY source',
      ),
    ).toEqual(
      ['edge_logs', 'function_edge_logs'].map((source) => ({
        source,
        before: Math.floor(START / 1000 / DAY) * DAY - 5 * DAY,
      })),
    );
    world.now += 10 * DAY_MS;
    expect((await world.select('SELECT count() AS n FROM edge_logs'))[0]).toEqual({ n: 5 });
  });

  test('parts are dropped whole: nothing is merged, mutated or written for it', async () => {
    const parts = (): Promise<{ name: string }[]> =>
      world.select(
        `SELECT concat(table, ' ', name) AS name FROM system.parts WHERE database = currentDatabase() AND active AND table IN ('edge_logs', 'function_edge_logs') ORDER BY name`,
      );
    const before = await parts();
    await dropExpired(keeping(8, 12, 12));
    const after = await parts();
    expect(after.length).toBeLessThan(before.length);
    expect(before).toEqual(expect.arrayContaining(after));
    expect(
      await world.select(
        "SELECT count() AS n FROM system.mutations WHERE database = currentDatabase() AND table LIKE 'edge%'",
      ),
    ).toEqual([{ n: 0 }]);
  });

  test('late events stay as long as the period in which they were stored', async () => {
    await world.send('edge_logs', [edgeEvent(START - 36 * DAY_MS, `https://${REF}.supabase.co/auth/v1/t`)], {
      period: Math.floor(START / 1000 / DAY) * DAY - 6 * DAY,
    });
    const auth = async (): Promise<number> =>
      (await world.select<{ n: number }>('SELECT toUInt32(sum(auth)) AS n FROM api_requests WHERE width = 60'))[0]!.n;
    await dropExpired(keeping(90, 8, 8));
    expect(await auth()).toBe(1);
    world.now = START + 4 * DAY_MS;
    await dropExpired(keeping(90, 8, 8));
    expect(await auth()).toBe(0);
  });

  test('raw days stay while history is made of them', async () => {
    const rollup = (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;
    await world.clickhouse.execute({
      sql: `INSERT INTO rollups (name, version, source, state, pending, progress) VALUES ('api_requests', ${rollup.version + 1}, 'edge_logs', 'building', [0], 1)`,
    });
    await world.clickhouse.execute({ sql: 'CREATE TABLE api_requests_v2 AS api_requests_v1' });
    await dropExpired(keeping(8, 90, 400));
    expect(await oldest()).toMatchObject({ raw: 24, invocations: 8 });
  });

  test('what is built anew keeps the buckets that the raw tables no longer have', async () => {
    const total = async (width: number): Promise<number> =>
      (
        await world.select<{ n: number }>(
          `SELECT toUInt32(sum(requests)) AS n FROM api_requests WHERE width = ${width}`,
        )
      )[0]!.n;
    const context = keeping(2, 12, 400);
    await dropExpired(context);
    const before = [await total(60), await total(3600)];
    expect(before).toEqual([12, 24]);
    const today = Math.floor(START / 1000 / DAY) * DAY;
    for (let i = 0; i < 5; i++)
      await requestRepair(context, {
        source: 'edge_logs',
        period: today - i * DAY,
        from: today - 30 * DAY,
        to: today + DAY,
        reason: 'command',
        accept_loss: false,
      });
    expect(await repairOpen(context)).toBe(0);
    expect([await total(60), await total(3600)]).toEqual(before);
    const rollup = (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;
    expect(await differencesOf(context, rollup, undefined, { from: 0, to: 4_294_967_295 })).toEqual([]);
  });

  test('a batch that arrives as expired minutes are removed keeps its hours', async () => {
    const at = START - 20 * DAY_MS;
    const batch = world.announce('edge_logs', [edgeEvent(at, `https://${REF}.supabase.co/rest/v1/t`)]);
    const context = keeping(90, 12, 400);
    const engine = world.clickhouse;
    let isSent = false;
    const execute = async (s: Statement): Promise<void> => {
      if (!isSent && s.sql.includes(`REPLACE PARTITION ID '${floorTo(at / 1000, DAY)}'`)) {
        isSent = true;
        await batch.insert();
      }
      await engine.execute(s);
    };
    await dropExpired({ ...context, clickhouse: { ...engine, execute } });
    expect(isSent).toBe(true);
    await batch.record();
    await dropExpired(context);
    expect(
      await world.select('SELECT width, toUInt32(sum(requests)) AS n FROM api_requests GROUP BY width ORDER BY width'),
    ).toEqual([
      { width: 0, n: 12 },
      { width: 60, n: 12 },
      { width: 3600, n: 25 },
    ]);
  });
});
