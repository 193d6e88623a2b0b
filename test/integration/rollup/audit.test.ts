import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Read } from '../../../common/clickhouse/clickhouse.ts';
import { compareDays, createAudit } from '../../../services/rollup/audit.ts';
import { readRollups, statements } from '../../../services/rollup/period/catalogue.ts';
import { readRollupDefinition } from '../../../services/rollup/period/definition.ts';
import { differences, during, MOST_DIFFERENCES } from '../../../services/rollup/period/view-sql.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { differencesOf, readOpenRepairs, repairOpen } from '../../../services/rollup/repairs.ts';
import { edgeEvent, invocationEvent, openWorld, unreadable, type World } from './world.ts';

const START = Date.parse('2028-02-28T22:00:00Z');
const REF = 'abcdefghijklmnopqrst';
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const ALL = { from: 0, to: 4_294_967_295 };

/** lower-case letters in no order: as many distinct windows as they can have */
function letters(count: number): string {
  let state = 1;
  return Array.from({ length: count }, () =>
    String.fromCharCode(97 + ((state = (state * 48_271) % 2_147_483_647) % 26)),
  ).join('');
}

describe('the audit', { timeout: 240_000 }, () => {
  let world: World;
  let audit: ReturnType<typeof createAudit>;

  beforeAll(async () => {
    world = await openWorld({ now: START, migrated: false });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    await world.reset({ now: START });
    await beginToday(world.context);
    await admitNew(world.context);
    audit = createAudit(world.context);
  });

  async function traffic(minutes: number): Promise<void> {
    for (let i = 0; i < minutes; i++) {
      await world.send(
        'edge_logs',
        Array.from({ length: 20 }, (_, n) =>
          edgeEvent(world.now - n * 500, `https://${REF}.supabase.co/rest/v1/t${n}/${n % 5 === 0 ? letters(120) : ''}`),
        ),
      );
      await world.send(
        'function_edge_logs',
        Array.from({ length: 20 }, (_, n) =>
          invocationEvent(world.now - n * 500, 'p', `f${n % 3}`, { ms: n / 8, status: n % 5 === 0 ? 500 : 200 }),
        ),
      );
      world.now += MINUTE_MS;
    }
  }

  const damage = async (statements: string): Promise<void> => {
    for (const sql of statements.split('; ')) await world.clickhouse.execute({ sql, settings: { mutations_sync: 1 } });
  };
  const everything = async (): Promise<unknown> => [
    await world.ask('usage.api-counts', { project: REF, interval: '3hr' }, START + HOUR_MS),
    await world.ask('usage.api-counts', { project: REF, interval: 'daily' }, START + HOUR_MS),
    await world.ask('functions.invocation-stats', { project: 'p', interval: '1hr' }, START + HOUR_MS),
    await world.ask('functions.invocation-stats', { project: 'p', interval: '1day' }, START + HOUR_MS),
    await world.ask('functions.invocation-stats', { project: 'p', interval: '7day' }, START + HOUR_MS),
  ];
  const differing = async (): Promise<number> => {
    let found = 0;
    for (const rollup of await readRollups(world.clickhouse))
      found += (await differencesOf(world.context, rollup, undefined, ALL)).length;
    return found;
  };

  test('finds nothing where nothing is wrong, and follows the closed minutes', async () => {
    await traffic(5);
    expect(await audit()).toBe(0);
    world.now += MINUTE_MS;
    expect(await audit()).toBe(0);
    expect(await world.registry.metrics()).toContain(
      `sluice_rollup_audited_to_seconds{rollup="api_requests"} ${Math.floor((world.now - 2 * MINUTE_MS) / MINUTE_MS) * 60}`,
    );
    expect(await readOpenRepairs(world.clickhouse)).toEqual([]);
  });

  test.each([
    ['rows lost', "ALTER TABLE function_invocations_v1 DELETE WHERE function_id = 'f1'"],
    ['a count off by one', "ALTER TABLE function_invocations_v1 UPDATE count = count + 1 WHERE function_id = 'f2'"],
    [
      'counts swapped between functions',
      'ALTER TABLE function_invocations_v1 UPDATE error_count = 4 - error_count WHERE 1',
    ],
    ['a sum off', 'ALTER TABLE function_invocations_v1 UPDATE execution_sum = execution_sum + 0.001 WHERE 1'],
    ['a least time off', 'ALTER TABLE function_invocations_v1 UPDATE execution_min = 1 WHERE 1'],
    [
      'a row too many',
      "INSERT INTO function_invocations_v1 (period, width, project, function_id, at, count) SELECT period, width, project, 'ghost', at, 1 FROM function_invocations_v1 LIMIT 1",
    ],
    ['minutes lost', 'ALTER TABLE api_requests_v1 DELETE WHERE width = 60'],
    ['single events lost', "ALTER TABLE api_requests_v1 DELETE WHERE width = 0 AND ref != toFixedString('', 20)"],
    ['an overflowing event lost', "ALTER TABLE api_requests_v1 DELETE WHERE url != ''"],
    ['a family moved', 'ALTER TABLE api_requests_v1 UPDATE rest = auth, auth = rest WHERE 1'],
    ['a count of requests off by one', 'ALTER TABLE api_requests_v1 UPDATE requests = requests + 1 WHERE width = 60'],
    [
      'requests moved to another reference',
      "INSERT INTO api_requests_v1 SELECT period, width, toFixedString(reverse(ref), 20), at, url, requests, rest, storage, auth, realtime FROM api_requests_v1 WHERE width = 60; ALTER TABLE api_requests_v1 DELETE WHERE width = 60 AND ref LIKE 'abcde%'",
    ],
    [
      'requests moved to another moment of their minute',
      'INSERT INTO api_requests_v1 SELECT period, width, ref, at + INTERVAL 1 MICROSECOND, url, requests, rest, storage, auth, realtime FROM api_requests_v1 WHERE width = 0; ALTER TABLE api_requests_v1 DELETE WHERE width = 0 AND toUnixTimestamp64Micro(at) % 10 = 0',
    ],
    ['a whole partition lost', "ALTER TABLE api_requests_v1 DROP PARTITION '2028-02-28 00:00:00'"],
  ])('finds %s in closed minutes, and a repair puts it right in a period that is still open', async (_, statement) => {
    await traffic(4);
    const right = await everything();
    await damage(statement);
    world.now += 2 * MINUTE_MS;
    expect(await audit()).toBe(1);
    expect((await rollupNote(world.clickhouse))?.note).toMatch(
      /^rollups of (edge_logs|function_edge_logs) await repair from 2028-02-28T2/,
    );
    expect(await repairOpen(world.context)).toBe(0);
    expect(await rollupNote(world.clickhouse)).toBeUndefined();
    expect(await everything()).toEqual(right);
    expect(await differing()).toBe(0);
    expect(await world.registry.metrics()).toMatch(/sluice_rollup_repairs_total\{rollup="\w+"\} 1/);
  });

  test('an hour is compared without the parts that the engine knows to be older', async () => {
    const { clickhouse } = world;
    await traffic(1);
    // the engine keeps the times of a part once it has merged it
    await clickhouse.execute({ sql: 'OPTIMIZE TABLE api_requests_v1 FINAL' });
    const older = (await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM api_requests_v1'))[0]!.n;
    world.now += HOUR_MS;
    await traffic(1);
    const all = (await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM api_requests_v1'))[0]!.n;
    const rollup = (await readRollups(clickhouse)).find((r) => r.name === 'api_requests')!;
    const to = Math.ceil(world.now / MINUTE_MS) * 60;
    const held = during('at', { from: to - 600, to });
    const sql = differences(await readRollupDefinition(clickhouse, rollup), 'false', held, 60);
    const { readRows } = await clickhouse.read({ sql, format: 'JSONCompact' });
    // since 26.4 it skips parts by their statistics
    const [year = 0, month = 0] = clickhouse.version.split('.').map(Number);
    expect(readRows).toBe(year > 26 || (year === 26 && month >= 4) ? all - older : all);
  });

  test('after downtime it looks three hours back, and the night finds what is older', async () => {
    await traffic(3);
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 60');
    world.now = START + 3 * HOUR_MS + 10 * MINUTE_MS;
    await beginToday(world.context);
    expect(await audit()).toBe(0);
    world.now = START + 2 * HOUR_MS + 55 * MINUTE_MS;
    expect(await createAudit(world.context)()).toBe(1);
    world.now = START + 4 * HOUR_MS + MINUTE_MS;
    const info = vi.spyOn(world.context.logger, 'info');
    expect(await audit()).toBe(1);
    const compared = info.mock.calls.filter((call) => call.includes('rollup_days_compared'));
    expect(compared.map(([fields]) => fields)).toMatchObject([
      { rollup: 'api_requests', asked: 1 },
      { rollup: 'function_invocations', asked: 0 },
    ]);
    info.mockRestore();
  });

  test('finds at night what came late, by the period in which it was stored', async () => {
    await traffic(1);
    await world.send('edge_logs', [edgeEvent(world.now - 40 * DAY_MS, `https://${REF}.supabase.co/rest/v1/t`)]);
    await damage("ALTER TABLE api_requests_v1 DELETE WHERE at < '2028-02-01 00:00:00'");
    world.now += 5 * MINUTE_MS;
    expect(await audit()).toBe(0);
    // the first round after two in the morning
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    expect(await audit()).toBe(1);
    expect(await repairOpen(world.context)).toBe(0);
    expect(
      await world.select(
        "SELECT toUInt32(sum(requests)) AS n FROM api_requests WHERE width = 60 AND at < '2028-02-01 00:00:00'",
      ),
    ).toEqual([{ n: 1 }]);
  });

  test('compares at night after all if the engine was unavailable then', async () => {
    await traffic(1);
    const engine = world.clickhouse;
    let isAway = true;
    audit = createAudit({
      ...world.context,
      clickhouse: {
        ...engine,
        read: async (read: Read) => {
          if (isAway && read.sql === statements.closedPeriods) throw new Error('unavailable');
          return await engine.read(read);
        },
      },
    });
    expect(await audit()).toBe(0);
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 3600');
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    await expect(audit()).rejects.toThrow('unavailable');
    isAway = false;
    expect(await audit()).toBe(1);
  });

  const auditedTo = async (rollup: string): Promise<number> =>
    Number(new RegExp(`audited_to_seconds\\{rollup="${rollup}"\\} (\\d+)`).exec(await world.registry.metrics())?.[1]);

  test('minutes that ClickHouse cannot read keep no other rollup from being compared, and are read in the next round', async () => {
    await traffic(1);
    const engine = world.clickhouse;
    let isBroken = true;
    const read = async (of: Read) => {
      if (isBroken && of.sql.includes('is_held') && of.sql.includes('api_requests')) throw unreadable();
      return await engine.read(of);
    };
    const context = { ...world.context, clickhouse: { ...engine, read } };
    const error = vi.spyOn(context.logger, 'error');
    audit = createAudit(context);
    await audit();
    expect(error.mock.calls).toEqual([
      [
        { work: 'audit', rollup: 'api_requests', shard: undefined, err: expect.objectContaining({ code: 40 }) },
        'rollup_work_failed',
      ],
    ]);
    error.mockRestore();
    const begun = await auditedTo('api_requests');
    world.now += HOUR_MS;
    await audit();
    expect([await auditedTo('api_requests'), await auditedTo('function_invocations')]).toEqual([begun, begun + 3600]);
    isBroken = false;
    for (const hours of [2, 3]) {
      world.now += HOUR_MS;
      await audit();
      expect(await auditedTo('function_invocations')).toBe(begun + hours * 3600);
    }
    expect(await auditedTo('api_requests')).toBe(begun + 3 * 3600);
  });

  test('a closed period that ClickHouse cannot read keeps no other from being compared, and is tried again in an hour', async () => {
    await traffic(1);
    const broken = Math.floor(world.now / DAY_MS) * (DAY_MS / 1000);
    world.now += DAY_MS;
    await beginToday(world.context);
    await traffic(1);
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 3600');
    world.now = Date.parse('2028-03-01T01:55:00Z');
    await beginToday(world.context);
    const engine = world.clickhouse;
    let isBroken = true;
    let reads = 0;
    const read = async (of: Read) => {
      if (
        !of.sql.includes('is_held') ||
        !of.sql.includes(`period = toDateTime(${broken},`) ||
        !/api_requests/.test(of.sql)
      )
        return await engine.read(of);
      reads++;
      if (isBroken) throw unreadable();
      return await engine.read(of);
    };
    const context = { ...world.context, clickhouse: { ...engine, read } };
    const error = vi.spyOn(context.logger, 'error');
    audit = createAudit(context);
    await audit();
    const before = await auditedTo('api_requests');
    world.now = Date.parse('2028-03-01T02:00:30Z');
    expect([await audit(), reads]).toEqual([1, 1]);
    expect(error.mock.calls.filter((call) => call[1] === 'rollup_work_failed').map(([fields]) => fields)).toEqual([
      {
        work: 'audit',
        rollup: 'api_requests',
        period: new Date(broken * 1000).toISOString(),
        shard: undefined,
        err: expect.objectContaining({ code: 40 }),
      },
    ]);
    error.mockRestore();
    // who watches the audit sees that it is behind
    for (const hour of [1, 2]) {
      world.now += HOUR_MS;
      expect([await audit(), reads]).toEqual([0, 1 + hour]);
    }
    expect(await auditedTo('function_invocations')).toBeGreaterThan(before + 7200);
    expect(await auditedTo('api_requests')).toBeLessThan(before + 600);
    isBroken = false;
    world.now += HOUR_MS;
    expect(await audit()).toBe(1);
    world.now += HOUR_MS;
    expect([await audit(), await auditedTo('api_requests')]).toEqual([0, await auditedTo('function_invocations')]);
  });

  test('names batches that nobody finishes, and so keep a closed period from being compared', async () => {
    await traffic(1);
    // its topic is no longer read
    const url = `https://${REF}.supabase.co/rest/v1/t`;
    const abandoned = world.announce('edge_logs', [edgeEvent(world.now, url)], { partition: 7 });
    await abandoned.insert();
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 3600');
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    const error = vi.spyOn(world.context.logger, 'error');
    expect(await compareDays(world.context, 2)).toBe(0);
    expect(error.mock.calls).toEqual([
      [
        {
          rollup: 'api_requests',
          period: expect.any(String),
          unfinished: [{ topic: 'edge_logs', incarnation: 0, partition: 7, last: abandoned.last }],
        },
        'rollup_not_compared',
      ],
    ]);
    error.mockRestore();
    await abandoned.record();
    expect(await compareDays(world.context, 2)).toBe(1);
  });

  test('finds at night a day that is not what its hours are, and sums it anew', async () => {
    await traffic(2);
    const right = await everything();
    await damage('ALTER TABLE function_invocations_v1 UPDATE count = count + 1 WHERE width = 86400');
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    expect(await compareDays(world.context, 2)).toBe(1);
    expect(await repairOpen(world.context)).toBe(0);
    expect(await compareDays(world.context, 2)).toBe(0);
    expect(await everything()).toEqual(right);
  });

  test.each([
    ['of the next period, each time', 1],
    ['of the same period, once', 2],
  ])('finds at night what differs while rows arrive %s', async (_, questions) => {
    await traffic(2);
    // the day after a minute of the evening reaches into the next period
    await damage('ALTER TABLE function_invocations_v1 UPDATE count = count + 1 WHERE width = 60');
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    const engine = world.clickhouse;
    let asked = 0;
    const read = async (statement: Read) => {
      if (statement.sql === statements.unfinishedBatches && asked++ === 0 && questions === 2)
        await engine.execute({
          sql: 'INSERT INTO function_edge_logs SELECT * FROM function_edge_logs ORDER BY timestamp LIMIT 1',
          settings: { async_insert: 0, insert_deduplicate: 0 },
        });
      else if (statement.sql === statements.unfinishedBatches && questions === 1)
        await world.send('function_edge_logs', [invocationEvent(world.now, 'p', 'f')]);
      return await engine.read(statement);
    };
    expect([await compareDays({ ...world.context, clickhouse: { ...engine, read } }, 2), asked]).toEqual([
      1,
      questions,
    ]);
  });

  test('finds at night that raw has lost a whole period', async () => {
    await traffic(1);
    await damage('TRUNCATE TABLE edge_logs');
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await beginToday(world.context);
    expect(await compareDays(world.context, 2)).toBe(1);
    expect(await repairOpen(world.context)).toBe(1);
    expect((await readOpenRepairs(world.clickhouse)).map((r) => r.outcome)).toEqual(['incomplete']);
  });

  test('compares a period whose rows of the ledger have expired', async () => {
    await traffic(1);
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 3600; TRUNCATE TABLE batches');
    world.now += 410 * DAY_MS;
    await beginToday(world.context);
    const settings = { ...world.context.settings, ROLLUP_1H_RETENTION_DAYS: 3650 };
    expect(await compareDays({ ...world.context, settings }, 500)).toBe(1);
    expect(await repairOpen({ ...world.context, settings })).toBe(0);
  });

  test('ignores batches in flight: raw is written before the view', async () => {
    await traffic(1);
    await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
    const batch = world.announce('edge_logs', [edgeEvent(world.now, `https://${REF}.supabase.co/rest/v1/t`)]);
    await batch.insert();
    await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
    world.now += 3 * MINUTE_MS;
    expect(await audit()).toBe(0);
    await batch.insert();
    await batch.record();
    world.now += MINUTE_MS;
    expect(await audit()).toBe(0);
    // the minutes were not passed over: what is wrong in them is found now
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 60');
    audit = createAudit(world.context);
    expect(await audit()).toBe(1);
  });

  test.each([
    ['is in flight', false],
    ['finishes right after', true],
  ])('no two batches in flight, one at each look, are a difference: the second one %s', async (_, isFinished) => {
    await traffic(1);
    const url = `https://${REF}.supabase.co/rest/v1/t`;
    const batches = [0, 1].map((partition) => world.announce('edge_logs', [edgeEvent(world.now, url)], { partition }));
    const insertWithoutView = async (n: number): Promise<void> => {
      await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
      await batches[n]!.insert();
      await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
    };
    const finish = async (n: number): Promise<void> => {
      await batches[n]!.insert();
      await batches[n]!.record();
    };
    await insertWithoutView(0);
    world.now += 3 * MINUTE_MS;
    const engine = world.clickhouse;
    let looks = 0;
    audit = createAudit({
      ...world.context,
      clickhouse: {
        ...engine,
        read: async (read: Read) => {
          const isLook = read.sql.includes('is_held') && read.sql.includes('api_requests_v1');
          if (isLook && ++looks === 2) await insertWithoutView(1);
          if (read.sql === statements.unfinishedBatches && looks === 1) await finish(0);
          const result = await engine.read(read);
          if (isLook && looks === 2 && isFinished) await finish(1);
          return result;
        },
      },
    });
    expect([await audit(), looks]).toEqual([0, 2]);
    if (!isFinished) await finish(1);
    expect(await differing()).toBe(0);
    // the minutes were not passed over: what is wrong in them is found now
    await damage('ALTER TABLE api_requests_v1 DELETE WHERE width = 60');
    world.now += MINUTE_MS;
    expect(await audit()).toBe(1);
  });

  test('a night rebuilds a closed period in which more minutes differ than a comparison finds', async () => {
    const period = Date.parse('2028-02-28T00:00:00Z') / 1000;
    const minutes = 2 * MOST_DIFFERENCES + 1;
    // a backlog: an event in each minute before the period
    await world.clickhouse.execute({
      sql: `INSERT INTO edge_logs (project, timestamp, url, families, refs, kafka_topic, kafka_offset, batch_last, evaluated_at, period)
      SELECT 'p', toDateTime64(${period} - 60 * (number + 1), 6, 'UTC'), '/', 1, [toFixedString('${REF}', 20)], 'backlog', number, ${minutes - 1}, toDateTime64(${period}, 3, 'UTC'), toDateTime(${period}, 'UTC') FROM numbers(${minutes})`,
    });
    await world.clickhouse.execute({
      sql: `INSERT INTO batches (topic, partition, first, last, source, stored, evaluated_at, period, min_timestamp)
      SELECT 'backlog', 0, 0, ${minutes - 1}, 'edge_logs', ${minutes}, toDateTime64(${period}, 3, 'UTC'), toDateTime(${period}, 'UTC'), toDateTime64(${period} - 60 * ${minutes}, 6, 'UTC')`,
    });
    await damage(`ALTER TABLE api_requests_v1 DROP PARTITION ID '${period}'`);
    world.now += DAY_MS;
    await beginToday(world.context);
    expect(await differing()).toBeGreaterThanOrEqual(MOST_DIFFERENCES);
    expect(await compareDays(world.context, 2)).toBe(1);
    while ((await repairOpen(world.context)) > 0);
    expect(await differing()).toBe(0);
    expect(await world.select('SELECT toUInt32(sum(requests)) AS n FROM api_requests WHERE width = 60')).toEqual([
      { n: minutes },
    ]);
  });

  test('-0, NaN, infinities and the rounding of Float32 are no differences', async () => {
    await world.clickhouse.execute({
      sql: `CREATE TABLE odd_v1 (period DateTime('UTC'), width UInt32, at DateTime('UTC'), least SimpleAggregateFunction(min, Float64), total SimpleAggregateFunction(sum, Float64), small SimpleAggregateFunction(sumWithOverflow, Float32), most SimpleAggregateFunction(max, Nullable(Float32)))
      ENGINE = AggregatingMergeTree PARTITION BY period ORDER BY (width, at)`,
    });
    await world.clickhouse.execute({
      sql: `CREATE MATERIALIZED VIEW odd_v1_mv TO odd_v1 AS SELECT period, toUInt32(60) AS width, toStartOfMinute(timestamp, 'UTC') AS at,
      min(assumeNotNull(execution_time_ms)) AS least, sum(assumeNotNull(execution_time_ms)) AS total, toFloat32(sum(if(isFinite(execution_time_ms), assumeNotNull(execution_time_ms) / 3, 1 / 3))) AS small, max(toFloat32(execution_time_ms / 3)) AS most
      FROM function_edge_logs GROUP BY period, width, at`,
    });
    const rollup = {
      name: 'odd',
      version: 1,
      source: 'function_edge_logs',
      widest: 60,
      from_raw: 60,
      state: 'serving' as const,
      pending: [],
    };
    const values = [
      ['-0.', '0'],
      ['0', '-0.'],
      ['nan', 'nan'],
      ['inf', '1'],
      ['-inf', '2'],
      ['inf', '-inf'],
      ['0.1', '0.7'],
    ];
    for (const [minute, pair] of values.entries()) {
      for (const [i, value] of [...pair, ...pair].entries()) {
        await world.clickhouse.execute({
          sql: `INSERT INTO function_edge_logs (project, timestamp, is_invocation, execution_time_ms, period) VALUES ('p', '2028-02-28 22:${String(minute).padStart(2, '0')}:0${i}', true, ${value}, '2028-02-28 00:00:00')`,
        });
      }
    }
    expect(await world.select('SELECT toUInt32(count()) AS n FROM odd_v1')).not.toEqual([{ n: 0 }]);
    expect(await differencesOf(world.context, rollup, undefined, ALL)).toEqual([]);
    for (const wrong of [
      'UPDATE least = 0 WHERE toMinute(at) = 4',
      'UPDATE total = 5 WHERE toMinute(at) = 3',
      'UPDATE small = small + 0.01 WHERE toMinute(at) = 6',
    ]) {
      await damage(`ALTER TABLE odd_v1 ${wrong}`);
      expect(await differencesOf(world.context, rollup, undefined, ALL), wrong).not.toEqual([]);
    }
    await world.clickhouse.execute({ sql: 'DROP VIEW odd_v1_mv SYNC' });
    await world.clickhouse.execute({ sql: 'DROP TABLE odd_v1 SYNC' });
  });
});
