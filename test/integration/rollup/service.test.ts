import type * as timers from 'node:timers/promises';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { rollupCommand } from '../../../services/rollup/commands/rollup.ts';
import { argsOf } from '../../harness/command.ts';
import { readRollups, statements } from '../../../services/rollup/period/catalogue.ts';
import { startRollup, type RollupOptions, type RollupService } from '../../../services/rollup/service.ts';
import { WRITE_SETTINGS } from '../../../services/rollup/period/statement-settings.ts';
import { floorTo } from '../../../services/rollup/period/time.ts';
import { newestPeriod } from '../../../services/rollup/period/periods.ts';
import { readOpenRepairs, requestRepair } from '../../../services/rollup/repairs.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { SECOND_VERSION } from './second-version.ts';
import { edgeEvent, invocationEvent, openWorld, type World } from './world.ts';

// The service by the wall clock, with callers and ingest at work beside it.

const REF = 'abcdefghijklmnopqrst';
const MINUTE_MS = 60_000;
/** A service with little to do goes through its rounds that much faster. */
const SPEED = 4;

/**
 * Clocks of the service: how far they are ahead, how many times faster than time they run, and its longest wait, after
 * which it looks what is due.
 */
const time = vi.hoisted(() => ({ aheadMs: 0, speed: 1, longestWaitMs: Infinity }));
vi.mock('node:timers/promises', async (original) => {
  const real = await original<typeof timers>();
  const setTimeout: typeof timers.setTimeout = (ms, ...rest) =>
    real.setTimeout(Math.min((ms ?? 0) / time.speed, time.longestWaitMs), ...rest);
  return { ...real, setTimeout };
});
const sleep = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

describe('the rollup service', { timeout: 240_000 }, () => {
  let world: World;
  let service: RollupService | undefined;

  beforeAll(() => {
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() * time.speed + time.aheadMs);
  });
  afterAll(() => vi.restoreAllMocks());
  beforeEach(async () => {
    world = await openWorld({ now: Date.now(), migrated: false });
  });
  afterEach(async () => {
    await service?.stop();
    service = undefined;
    Object.assign(time, { aheadMs: 0, speed: 1, longestWaitMs: Infinity });
    await world.close();
  });

  async function start(options: Partial<RollupOptions> = {}): Promise<RollupService> {
    service = await startRollup({
      clickhouse: world.clickhouse,
      settings: world.context.settings,
      logger: testLogger,
      registry: createRegistry(),
      ...options,
    });
    service.failed.catch((error: unknown) => expect(error).toBeUndefined());
    return service;
  }

  const states = async (name: string): Promise<string[]> =>
    (await readRollups(world.clickhouse)).filter((r) => r.name === name).map((r) => r.state);
  const count = async (width: number): Promise<number> =>
    (
      await world.select<{ n: number }>(
        `SELECT toUInt32(sum(count)) AS n FROM function_invocations WHERE width = ${width}`,
      )
    )[0]!.n;

  test('makes the schema of a fresh database, and stops at once', async () => {
    const running = await start();
    expect([await states('api_requests'), await states('function_invocations')]).toEqual([['serving'], ['serving']]);
    const since = performance.now();
    await running.stop();
    // well before its next work is due
    expect(performance.now() - since).toBeLessThan(10_000);
  });

  test('at rest it asks for open repairs with one statement, and for all views with another', async () => {
    const read: string[] = [];
    time.speed = SPEED;
    await start({
      clickhouse: {
        ...world.clickhouse,
        read: (of) => {
          read.push(of.sql);
          return world.clickhouse.read(of);
        },
      },
    });
    const repairs = (): number => read.filter((sql) => sql === statements.openRepairs).length;
    // the first round sets the gauges
    await waitFor(() => Promise.resolve(repairs() > 0), 20_000 * SPEED, 'the first round of repairs');
    // half of the time until the second one
    await sleep(600);
    read.length = 0;
    await waitFor(() => Promise.resolve(repairs() === 3), 30_000 * SPEED, 'three rounds of repairs');
    const times = (of: string): number => read.filter((sql) => sql === of).length;
    // three rounds of history, and one of publishing, which may fall into this time
    expect(times(statements.rollups)).toBeLessThanOrEqual(5);
    expect(times(statements.tables)).toBeLessThanOrEqual(1);
  });

  test('begins no period of the future if its clock is ahead of ClickHouse', async () => {
    let looked = 0;
    await start({
      clock: () => Date.now() + 100 * 24 * 60 * MINUTE_MS,
      clickhouse: {
        ...world.clickhouse,
        read: (of) => {
          if (of.sql === statements.engineClock) looked++;
          return world.clickhouse.read(of);
        },
      },
    });
    await waitFor(() => Promise.resolve(looked > 1), 20_000, 'a second look at the clock of ClickHouse');
    expect(
      await world.select('SELECT toUInt32(count()) AS n FROM rollup_periods WHERE begin > now() + toIntervalDay(1)'),
    ).toEqual([{ n: 0 }]);
  });

  test('compares closed minutes every hour, and not more often', async () => {
    time.longestWaitMs = 500;
    const registry = createRegistry();
    let turns = 0;
    await start({
      registry,
      clock: () => Date.now() + time.aheadMs,
      clickhouse: {
        ...world.clickhouse,
        read: async (of) => {
          if (of.sql === statements.tableSizes) turns++;
          if (of.sql !== statements.engineClock) return await world.clickhouse.read(of);
          return { body: Buffer.from(`{"now":${Date.now() + time.aheadMs}}\n`), readRows: 1, readBytes: 8 };
        },
      },
    });
    const audited = async (): Promise<string[]> =>
      (await registry.metrics()).match(/^sluice_rollup_audited_to_seconds\{.*$/gm) ?? [];
    await waitFor(async () => (await audited()).length === 2, 20_000, 'the first comparison of both rollups');
    // after the second one nothing is left of the round to wait for
    await sleep(1_000);
    const first = await audited();
    time.aheadMs = 58 * MINUTE_MS;
    turns = 0;
    // by then a comparison would have begun too
    await waitFor(() => Promise.resolve(turns > 0), 60_000, 'the tables are measured');
    await sleep(2_000);
    expect(await audited()).toEqual(first);
    time.aheadMs = 61 * MINUTE_MS;
    await waitFor(async () => (await audited()).every((line) => !first.includes(line)), 40_000, 'the second one');
  });

  test('while a build of history takes long, tables are measured and complete rollups compared', async () => {
    await world.send('function_edge_logs', [invocationEvent(Date.now(), 'p', 'f', { ms: 1 })]);
    const registry = createRegistry();
    const built = Promise.withResolvers<void>();
    let isBuilding = false;
    let measured = 0;
    time.longestWaitMs = 500;
    try {
      await start({
        registry,
        clickhouse: {
          ...world.clickhouse,
          execute: async (of) => {
            if (of.sql.startsWith('INSERT INTO function_invocations_v1_build_')) {
              isBuilding = true;
              await built.promise;
            }
            await world.clickhouse.execute(of);
          },
          read: (of) => {
            if (of.sql === statements.tableSizes) measured++;
            return world.clickhouse.read(of);
          },
        },
      });
      await waitFor(() => Promise.resolve(isBuilding), 20_000, 'history is being built');
      const compared = /^sluice_rollup_audited_to_seconds\{rollup="api_requests"\}/m;
      await waitFor(async () => compared.test(await registry.metrics()), 20_000, 'the complete rollup is compared');
      measured = 0;
      time.aheadMs = 31_000;
      await waitFor(() => Promise.resolve(measured > 0), 40_000, 'tables are measured again');
      expect(await states('function_invocations')).toEqual(['building']);
    } finally {
      built.resolve();
    }
  });

  test('while a comparison takes long, tables are measured', async () => {
    await world.makeRollups();
    await world.send('edge_logs', [edgeEvent(Date.now() - 10 * MINUTE_MS, `https://${REF}.supabase.co/rest/v1/t`)]);
    const registry = createRegistry();
    const compared = Promise.withResolvers<void>();
    let comparisons = 0;
    let measured = 0;
    time.longestWaitMs = 500;
    try {
      await start({
        registry,
        clickhouse: {
          ...world.clickhouse,
          read: async (of) => {
            if (of.sql === statements.tableSizes) measured++;
            if (of.sql.includes('is_held')) {
              comparisons++;
              await compared.promise;
            }
            return await world.clickhouse.read(of);
          },
        },
      });
      await waitFor(() => Promise.resolve(comparisons > 0), 20_000, 'rollups are compared');
      const shown = async (): Promise<boolean> => (await registry.metrics()).includes('sluice_rollup_table_rows{');
      await waitFor(shown, 20_000, 'tables are measured');
      measured = 0;
      time.aheadMs = 31_000;
      await waitFor(() => Promise.resolve(measured > 0), 20_000, 'tables are measured again');
      expect(comparisons).toBe(1);
    } finally {
      compared.resolve();
    }
  });

  test('a refused repair that another service ends is no longer told of', async () => {
    const registry = createRegistry();
    time.speed = SPEED;
    await start({ registry });
    const incomplete = async (): Promise<string | undefined> =>
      /sluice_rollup_source_incomplete\{rollup="api_requests"\} (\d)/.exec(await registry.metrics())?.[1];
    await waitFor(async () => (await incomplete()) === '0', 20_000 * SPEED, 'the first round of repairs');
    await world.send('edge_logs', [edgeEvent(world.now, `https://${REF}.supabase.co/rest/v1/t`)]);
    await world.clickhouse.execute({
      sql: 'ALTER TABLE edge_logs DELETE WHERE true',
      settings: { mutations_sync: 1 },
    });
    const from = floorTo(world.now / 1000, 3600);
    const period = await newestPeriod(world.context);
    await requestRepair(world.context, {
      source: 'edge_logs',
      period,
      from,
      to: from + 3600,
      reason: 'command',
      accept_loss: false,
    });
    await waitFor(async () => (await incomplete()) === '1', 20_000 * SPEED, 'the repair is refused');
    const [refused] = await readOpenRepairs(world.clickhouse);
    expect(refused?.outcome).toBe('incomplete');
    await world.clickhouse.execute({
      sql: statements.writeRepair,
      params: { ...refused!, done: true },
      settings: WRITE_SETTINGS,
    });
    await waitFor(async () => (await incomplete()) === '0', 20_000 * SPEED, 'the gauge is taken back');
  });

  test('a raw retention that gives tiers less than they are promised is said at the start', async () => {
    const told: string[] = [];
    const logger = pino(
      { level: 'warn' },
      {
        write: (line: string) => {
          told.push(line);
        },
      },
    );
    for (const RAW_RETENTION_DAYS of [90, 89]) {
      const running = await startRollup({
        clickhouse: world.clickhouse,
        settings: { ...world.context.settings, RAW_RETENTION_DAYS },
        logger,
        registry: createRegistry(),
      });
      await running.stop();
    }
    expect(
      told
        .filter((line) => line.includes('retention_below_tiers'))
        .map((line) => (JSON.parse(line) as { RAW_RETENTION_DAYS: number }).RAW_RETENTION_DAYS),
    ).toEqual([89]);
  });

  test('builds history, then swaps a new version in, while batches and queries go on: no query fails or is wrong, no insert fails for good', async () => {
    let sent = 0;
    let asked = 0;
    let ending = false;
    const failures: unknown[] = [];
    const send = async (partition: number): Promise<void> => {
      const now = Date.now();
      const batch = world.announce(
        'function_edge_logs',
        Array.from({ length: 10 }, (_, i) => invocationEvent(now - i * 3_600_000, 'p', `f${i % 3}`, { ms: i })),
        { evaluatedAt: now, partition },
      );
      await batch
        .insert()
        .catch((error: unknown) =>
          error instanceof ClickHouseError && error.kind === 'retry' ? batch.insert() : Promise.reject(error as Error),
        );
      await batch.record();
      sent += 10;
    };
    for (let i = 0; i < 5; i++) await send(0);

    const writers = [1, 2].map(async (partition) => {
      while (!ending) await send(partition).catch((error: unknown) => failures.push(error));
    });
    const running = await start();
    const readers = [1, 2].map(async () => {
      while (!ending) {
        const atLeast = sent;
        await (async () => {
          // everything that was sent before the question is in the answer, whatever it is made of at this moment
          const rows = await world.ask('functions.invocation-stats', { project: 'p', interval: '7day' }, Date.now());
          const answered = rows.reduce((sum, row) => sum + Number(row['count']), 0);
          if (answered < atLeast) failures.push(`${answered} of ${atLeast}`);
          asked++;
        })().catch((error: unknown) => failures.push(error));
      }
    });
    try {
      await waitFor(async () => (await states('function_invocations'))[0] === 'serving', 60_000, 'history is built');
      await running.stop();
      await start({ migrations: SECOND_VERSION });
      await waitFor(
        async () => (await states('function_invocations')).join() === 'retired,serving',
        60_000,
        'the second version serves',
      );
      await sleep(1_000);
    } finally {
      // a closed engine refuses at once: these loops would leave the event loop no turn
      ending = true;
      await Promise.all([...writers, ...readers]);
    }
    expect(failures).toEqual([]);
    expect(asked).toBeGreaterThan(20);
    for (const width of [60, 3600, 86_400]) expect(await count(width), String(width)).toBe(sent);
  });

  test('status and rebuild by hand', async () => {
    const kept = { ROLLUP_1M_RETENTION_DAYS: 3650, ROLLUP_1H_RETENTION_DAYS: 3650 };
    await start({ settings: { ...world.context.settings, ...kept } });
    const now = Date.now();
    await world.send('edge_logs', [edgeEvent(now - 86_400_000, `https://${REF}.supabase.co/rest/v1/t`)], {
      evaluatedAt: now - 86_400_000,
    });
    const context = {
      clickhouse: world.clickhouse,
      settings: world.context.settings,
      logger: testLogger,
    } as Parameters<typeof rollupCommand.run>[0];
    const status = await rollupCommand.run(context, argsOf(rollupCommand, 'status'));
    expect(rollupCommand.print(status)).toMatch(
      /^api_requests version 1 \(serving\): all events\nfunction_invocations version 1/,
    );
    expect(rollupCommand.exitCode?.(status)).toBe(0);

    await world.clickhouse.execute({
      sql: 'ALTER TABLE api_requests_v1 DELETE WHERE width = 3600',
      settings: { mutations_sync: 1 },
    });
    const day = (offset: number): string => new Date(now + offset * 86_400_000).toISOString().slice(0, 10);
    const rebuilt = await rollupCommand.run(
      context,
      argsOf(rollupCommand, 'rebuild', '--from', day(-2), '--to', day(0), '--rollup', 'api_requests'),
    );
    expect(rebuilt).toEqual({ rebuilt: [{ rollup: 'api_requests', periods: 1, built: 1, left: [] }] });
    expect(rollupCommand.print(rebuilt)).toBe('api_requests: 1 of 1 periods built\n');
    expect(await world.select('SELECT toUInt32(sum(requests)) AS n FROM api_requests WHERE width = 3600')).toEqual([
      { n: 1 },
    ]);
    // the process of the command does not know how long the service keeps what raw has lost
    const old = floorTo(now / 1000, 86_400) - 450 * 86_400;
    for (const width of [60, 3600])
      await world.clickhouse.execute({
        sql: `INSERT INTO api_requests_v1 (period, width, ref, at, requests) VALUES (${old}, ${width}, '${REF}', toDateTime64(${old + 3600}, 6, 'UTC'), 7)`,
      });
    await world.clickhouse.execute({
      sql: statements.writeExpiredDay,
      params: { source: 'edge_logs', before: old + 86_400, period: floorTo(now / 1000, 86_400) },
      settings: WRITE_SETTINGS,
    });
    await rollupCommand.run(context, argsOf(rollupCommand, 'rebuild', '--from', day(-451), '--to', day(-449)));
    expect(
      await world.select(
        `SELECT width, toUInt32(requests) AS n FROM api_requests WHERE period = toDateTime(${old}, 'UTC') ORDER BY width`,
      ),
    ).toEqual([
      { width: 60, n: 7 },
      { width: 3600, n: 7 },
    ]);
    await expect(
      rollupCommand.run(
        context,
        argsOf(rollupCommand, 'rebuild', '--from', day(-2), '--to', day(0), '--rollup', 'none'),
      ),
    ).rejects.toThrow(/no complete rollup none/);
  });
});

describe('the rollup command', () => {
  test.each([
    ['', 'Expected one of: status, rebuild --from TIME --to TIME'],
    ['again', 'Expected one of: status, rebuild --from TIME --to TIME'],
    ['rebuild --to 2026-03-01', '--from TIME is missing'],
    ['rebuild --from yesterday --to 2026-03-01', '--from is a day or an instant'],
    ['rebuild --from 2026-03-01 --to 2026-02-30T00:00', '--to is a day or an instant'],
    ['rebuild --from 2026-02-30 --to 2026-03-05', '--from is a day or an instant'],
    ['rebuild --from 2026-03-02 --to 2026-03-01', '--from must be before --to'],
  ])('refuses "%s"', (words, message) => {
    expect(() => argsOf(rollupCommand, ...words.split(' '))).toThrow(message);
  });
});
