import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { readRollups, statements } from '../../../services/rollup/period/catalogue.ts';
import { readRollupDefinition } from '../../../services/rollup/period/definition.ts';
import { publicView } from '../../../services/rollup/period/view-sql.ts';
import { DAY } from '../../../services/rollup/period/time.ts';
import { admitNew, nextStep, publish } from '../../../services/rollup/history.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { differencesOf, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { SECOND_VERSION } from './second-version.ts';
import { invocationEvent, openWorld, type World } from './world.ts';

const START = Date.parse('2028-01-10T12:30:00Z');
const DAY_MS = 86_400_000;
/** raw keeps less than the rollups do: what is older can only be carried over */
const RAW_DAYS = 5;

describe('a changed definition is built beside the old one and takes its place', { timeout: 240_000 }, () => {
  let world: World;
  let sent = 0;

  beforeAll(async () => {
    world = await openWorld({ now: START, settings: { RAW_RETENTION_DAYS: String(RAW_DAYS) } });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    sent = 0;
    await world.clickhouse.execute({ sql: 'DROP TABLE IF EXISTS function_invocations_v1 SYNC' });
    await world.reset({ now: START });
    await admitNew(world.context);
    for (let day = 0; day < 9; day++) {
      await beginToday(world.context);
      await send(30);
      await dropExpired(world.context);
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 60_000;
  });

  /** Now, a while ago, and as late as may be. */
  async function send(count: number): Promise<void> {
    const at = (i: number): number =>
      world.now - (i % 3 === 0 ? 0 : i % 3 === 1 ? i * 600_000 : (RAW_DAYS - 1) * DAY_MS);
    await world.send(
      'function_edge_logs',
      Array.from({ length: count }, (_, i) => invocationEvent(at(i), 'p', `f${i % 4}`, { ms: i })),
    );
    sent += count;
  }

  const answers = async (now: number): Promise<unknown> => {
    const rows: unknown[] = [];
    for (const interval of ['15min', '1hr', '1day', '7day'])
      rows.push(await world.ask('functions.invocation-stats', { project: 'p', interval }, now));
    return rows;
  };
  const total = async (width: number, table = 'function_invocations'): Promise<number> =>
    (await world.select<{ n: number }>(`SELECT toUInt32(sum(count)) AS n FROM ${table} WHERE width = ${width}`))[0]!.n;
  const newestPeriodOfRaw = async (): Promise<number> =>
    (await world.select<{ p: number }>('SELECT toUnixTimestamp(max(period)) AS p FROM function_edge_logs'))[0]!.p;
  const states = async (): Promise<[number, string][]> =>
    (await readRollups(world.clickhouse))
      .filter((r) => r.name === 'function_invocations')
      .map((r) => [r.version, r.state]);

  test('answers are right all along, and the old data is gone at the end', async () => {
    expect(await total(3600)).toBe(sent);
    expect(
      (await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM function_edge_logs'))[0]!.n,
    ).toBeLessThan(sent);
    const [now, before] = [world.now, await answers(world.now)];
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.context);
    expect(await states()).toEqual([
      [1, 'serving'],
      [2, 'building'],
    ]);
    let steps = 0;
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context)) {
      await world.context.wait(ms);
      expect(await answers(now), `step ${steps}`).toEqual(before);
      expect(await total(3600)).toBe(sent);
      steps++;
    }
    expect(steps).toBeGreaterThan(9);
    expect(await states()).toEqual([
      [1, 'retired'],
      [2, 'serving'],
    ]);
    expect(
      await world.select(
        "SELECT name, engine FROM system.tables WHERE database = currentDatabase() AND name LIKE 'function_invocations_v1%'",
      ),
    ).toEqual([{ name: 'function_invocations_v1', engine: 'View' }]);

    // what raw no longer has was carried over, with the widths that there were
    for (const width of [60, 3600, 86_400]) expect(await total(width), String(width)).toBe(sent);
    const [row] = await world.select<Record<string, number>>(
      'SELECT sum(execution_squares) AS squares, max(execution_max) AS longest FROM function_invocations',
    );
    expect(row!['squares']).toBeGreaterThan(0);
    expect(row!['longest']).toBe(29);

    // the new version goes on by itself, and equals raw
    world.now += DAY_MS;
    await beginToday(world.context);
    await send(30);
    expect([await total(60), await total(3600), await total(86_400)]).toEqual([sent, sent, sent]);
    const rollup = (await readRollups(world.clickhouse)).findLast((r) => r.name === 'function_invocations')!;
    expect(await differencesOf(world.context, rollup, undefined, { from: 0, to: 4_294_967_295 })).toEqual([]);

    // a second start finds nothing to do
    const catalogue = await readRollups(world.clickhouse);
    await admitNew(world.context);
    expect(await nextStep(world.context)).toBeUndefined();
    expect(await readRollups(world.clickhouse)).toEqual(catalogue);
  });

  test('a new version waits for raw rows that are lost, and is completed without them once their loss is accepted', async () => {
    await world.clickhouse.execute({
      sql: `ALTER TABLE function_edge_logs DELETE WHERE kafka_offset >= ${sent - 30} AND kafka_offset % 3 = 0`,
      settings: { mutations_sync: 1 },
    });
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.context);
    const take = async (steps: number): Promise<void> => {
      for (let step = 0; step < steps && (await nextStep(world.context)) !== undefined; step++);
    };
    await take(20);
    expect(await states()).toEqual([
      [1, 'serving'],
      [2, 'building'],
    ]);
    const told = async (metric: string): Promise<string[]> =>
      (await world.registry.metrics()).split('\n').filter((line) => line.startsWith(`sluice_rollup_${metric}{`));
    const second = '{rollup="function_invocations",version="2"}';
    expect(await told('build_periods_left')).toContain(`sluice_rollup_build_periods_left${second} 1`);
    expect(await told('source_incomplete')).toContain(`sluice_rollup_source_incomplete${second} 1`);
    expect(await total(3600)).toBe(sent);
    const period = await newestPeriodOfRaw();
    await requestRepair(world.context, {
      source: 'function_edge_logs',
      period,
      from: 0,
      to: 4_294_967_295,
      reason: 'command',
      accept_loss: true,
    });
    // it stays open until the new version has the period
    expect(await repairOpen(world.context)).toBe(1);
    expect(await total(3600)).toBe(sent - 10);
    await take(20);
    expect(await repairOpen(world.context)).toBe(0);
    expect(await states()).toEqual([
      [1, 'retired'],
      [2, 'serving'],
    ]);
    expect(await told('build_periods_left')).toContain(`sluice_rollup_build_periods_left${second} 0`);
    expect(await told('source_incomplete')).toContain(`sluice_rollup_source_incomplete${second} 0`);
    expect(await total(3600)).toBe(sent - 10);
  });

  test.each(['CREATE TABLE', 'TRUNCATE TABLE', 'REPLACE PARTITION'])(
    'a repair of a version that is replaced before its %s fails nothing, and the new version is repaired',
    async (statement) => {
      await migrate(world.clickhouse, testLogger, SECOND_VERSION);
      await admitNew(world.context);
      for (const back of [0, 1]) {
        const period = (await newestPeriodOfRaw()) - back * DAY;
        const span = { from: period, to: period + DAY };
        const request = { source: 'function_edge_logs', period, ...span, accept_loss: false } as const;
        await requestRepair(world.context, { ...request, reason: 'recovery' });
      }
      const engine = world.clickhouse;
      let isReplaced = false;
      const execute = async (s: Statement): Promise<void> => {
        if (!isReplaced && s.sql.includes(statement) && s.sql.includes('function_invocations_v1_repair')) {
          isReplaced = true;
          for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context))
            await world.context.wait(ms);
        }
        await engine.execute(s);
      };
      expect(await repairOpen({ ...world.context, clickhouse: { ...engine, execute } })).toBeGreaterThan(0);
      expect(await states()).toEqual([
        [1, 'retired'],
        [2, 'serving'],
      ]);
      expect(await repairOpen(world.context)).toBe(0);
      expect(await total(3600)).toBe(sent);
      expect(
        await world.select(
          "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'function_invocations_v1%'",
        ),
      ).toEqual([{ name: 'function_invocations_v1' }]);
    },
  );

  test('a retirement waits for inserts that began before, also after a restart, and other work goes on', async () => {
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.context);
    const engine = world.clickhouse;
    let running = ['stranger'];
    /** The view is on a node that is not the current one: only a read of every node sees it. */
    let isBack = false;
    const view = 'function_invocations_v1_mv';
    const [{ sql: viewSql }] = (await world.select<{ sql: string }>(
      `SELECT create_table_query AS sql FROM system.tables WHERE database = currentDatabase() AND name = '${view}'`,
    )) as [{ sql: string }];
    const read = async (of: Read) => {
      if (of.sql === statements.runningInserts)
        return { body: Buffer.from(running.map((id) => `{"query_id":"${id}"}\n`).join('')), readRows: 0, readBytes: 0 };
      const isOfView = of.sql === statements.tables && isDeepStrictEqual(of.params?.['names'], [view]);
      return isOfView && isBack && of.everyNode !== true
        ? { body: Buffer.of(), readRows: 0, readBytes: 0 }
        : await engine.read(of);
    };
    let waits = 0;
    const wait = async (ms: number): Promise<void> => {
      if (++waits > 100) throw new Error('it waits without end');
      await world.context.wait(ms);
    };
    const start = () => ({ ...world.context, wait, clickhouse: { ...engine, read } });
    const tables = (): Promise<{ name: string; engine: string }[]> =>
      world.select(
        "SELECT name, engine FROM system.tables WHERE database = currentDatabase() AND name LIKE 'function_invocations_v1%'",
      );
    const kept = [{ name: 'function_invocations_v1', engine: 'AggregatingMergeTree' }];
    const context = start();
    let ms = await nextStep(context);
    while (ms === 0) ms = await nextStep(context);
    expect(ms).toBeGreaterThan(0);
    expect(await tables()).toEqual(kept);
    expect(await dropExpired({ ...context, settings: { ...context.settings, RAW_RETENTION_DAYS: 1 } })).toBeGreaterThan(
      0,
    );
    const restarted = start();
    running = ['stranger', 'later'];
    expect(await nextStep(context)).toBeGreaterThan(0);
    // a replica that missed the drop comes back, and inserts fill its view
    await world.clickhouse.execute({ sql: viewSql });
    isBack = true;
    running = ['fills the view'];
    expect(await nextStep(context)).toBeGreaterThan(0);
    expect(await tables()).toEqual(kept);
    running = ['stranger', 'of the restart'];
    expect(await nextStep(restarted)).toBeGreaterThan(0);
    running = ['of the restart'];
    expect(await nextStep(restarted)).toBeGreaterThan(0);
    expect(await tables()).toEqual(kept);
    expect(await nextStep(context)).toBe(0);
    expect(await nextStep(restarted)).toBeUndefined();
    expect(await tables()).toEqual([{ name: 'function_invocations_v1', engine: 'View' }]);
    expect(await states()).toEqual([
      [1, 'retired'],
      [2, 'serving'],
    ]);
    expect(await total(3600)).toBe(sent);
  });

  test('what another service builds is no batch that is waited for', async () => {
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.context);
    const engine = world.clickhouse;
    let isTaken = false;
    const read = async (of: Read) => {
      if (of.sql !== statements.runningFills) return await engine.read(of);
      isTaken = true;
      return { body: Buffer.from('{"query_id":"other"}\n'), readRows: 0, readBytes: 0 };
    };
    const info = vi.spyOn(world.context.logger, 'info');
    expect(await nextStep({ ...world.context, clickhouse: { ...engine, read } })).toBeGreaterThan(0);
    expect(isTaken).toBe(true);
    expect(info.mock.calls.map((call: unknown[]) => call[1])).not.toContain('rollup_waits_for_batches');
    info.mockRestore();
  });

  test('side tables of a retired version are removed from every node of a cluster', async () => {
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.context);
    // what a killed build left on a node that is not the current one: only a read of every node sees it
    const side = 'function_invocations_v1_build_1830000000_0a1b2c3d';
    await world.clickhouse.execute({ sql: `CREATE TABLE ${side} AS function_invocations_v1` });
    const engine = world.clickhouse;
    const clickhouse: typeof engine = {
      ...engine,
      read: async (read) =>
        read.sql === statements.tablesLike && read.everyNode !== true
          ? { body: Buffer.of(), readRows: undefined, readBytes: undefined }
          : await engine.read(read),
    };
    for (let ms = 0 as number | undefined; ms !== undefined; ms = await nextStep({ ...world.context, clickhouse }))
      await world.context.wait(ms);
    expect(await states()).toEqual([
      [1, 'retired'],
      [2, 'serving'],
    ]);
    expect(
      await world.select(`SELECT name FROM system.tables WHERE database = currentDatabase() AND name = '${side}'`),
    ).toEqual([]);
  });

  test('a service that publishes what it read long ago does not bring a dropped version back', async () => {
    const now = world.now;
    const before = await answers(now);
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    const [, first] = await readRollups(world.clickhouse);
    const stale = publicView(await readRollupDefinition(world.clickhouse, first!), [], 'version 1, raw for []');
    await admitNew(world.context);
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context))
      await world.context.wait(ms);
    // its name stands for the newer version, so it is right at once; the next look publishes the newer version itself
    await world.clickhouse.execute({ sql: stale });
    expect(await answers(now)).toEqual(before);
    await publish(world.context);
    expect(await answers(now)).toEqual(before);
    expect(
      (
        await world.select<{ as_select: string }>(
          "SELECT as_select FROM system.tables WHERE database = currentDatabase() AND name = 'function_invocations'",
        )
      )[0]!.as_select,
    ).toContain('function_invocations_v2');
  });

  test('killed at any statement of the way to the new version, and with a second service beside it, answers stay right', async () => {
    const now = world.now;
    const before = await answers(now);
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    const engine = world.clickhouse;
    let kills = 0;
    for (
      let at = 1;
      (await states()).some(([version, state]) => version === 1 && state !== 'retired');
      at = (at % 9) + 1
    ) {
      let statements = 0;
      const dying = {
        ...world.context,
        clickhouse: {
          ...engine,
          execute: async (s: Statement) => {
            if (++statements === at) throw new Error('killed');
            await engine.execute(s);
          },
        },
      };
      const killed = (async () => {
        await admitNew(dying);
        await nextStep(dying);
        await nextStep(dying);
      })().catch((error: unknown) => {
        expect((error as Error).message).toBe('killed');
        kills++;
      });
      await Promise.all([killed, kills % 3 === 0 ? nextStep(world.context) : undefined]);
      expect(await answers(now), `after kill ${kills}`).toEqual(before);
      expect(kills).toBeLessThan(200);
    }
    expect(kills).toBeGreaterThan(5);
    expect(await states()).toEqual([
      [1, 'retired'],
      [2, 'serving'],
    ]);
    expect(await total(3600)).toBe(sent);
  });
});
