import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Read, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { build } from '../../../services/rollup/period/build.ts';
import { readRollups, statements, writeRollup, type Rollup } from '../../../services/rollup/period/catalogue.ts';
import { DAY, floorTo } from '../../../services/rollup/period/time.ts';
import { admitNew, nextStep } from '../../../services/rollup/history.ts';
import { beginToday, newestPeriod } from '../../../services/rollup/period/periods.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { differencesOf, repairOpen, requestRepair } from '../../../services/rollup/repairs.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { edgeEvent, invocationEvent, openWorld, unreadable, type Batch, type World } from './world.ts';

const START = Date.parse('2028-02-27T10:20:00Z');
const REF = 'abcdefghijklmnopqrst';
const URL_OF_REF = `https://${REF}.supabase.co/rest/v1/t`;
const DAY_MS = DAY * 1000;
const ALL = { from: 0, to: 4_294_967_295 };

describe('history', { timeout: 240_000 }, () => {
  let world: World;
  let expected = 0;

  beforeAll(async () => {
    // minutes are kept: hosts with a clock of 100 days ago write to periods of then
    world = await openWorld({ now: START, migrated: false, settings: { ROLLUP_1M_RETENTION_DAYS: '400' } });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    expected = 0;
    await world.reset({ now: START, migrated: false });
    for (let day = 0; day < 4; day++) {
      const period = floorTo(world.now / 1000, DAY);
      await request(10, { period });
      await request(5, { at: world.now - 2 * DAY_MS, period });
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 3_600_000;
  });

  const eventsOf = (count: number, at: number): string[] =>
    Array.from({ length: count }, (_, i) => edgeEvent(at - i * 1000, URL_OF_REF));

  async function request(
    count: number,
    { at = world.now, ...options }: { at?: number; period?: number; evaluatedAt?: number } = {},
  ): Promise<void> {
    await world.send('edge_logs', eventsOf(count, at), options);
    expected += count;
  }

  async function makeRollups(): Promise<void> {
    await world.makeRollups();
    await beginToday(world.context);
    await admitNew(world.context);
  }

  /** what callers are told, over seven days */
  async function answered(now = world.now): Promise<number> {
    const rows = await world.ask('usage.api-counts', { project: REF, interval: 'daily' }, now);
    return rows.reduce((sum, row) => sum + Number(row['total_rest_requests']), 0);
  }

  const held = async (width: number): Promise<number> =>
    (
      await world.select<{ n: number }>(
        `SELECT toUInt32(sum(requests)) AS n FROM api_requests_v1 WHERE width = ${width}`,
      )
    )[0]!.n;
  const requests = async (): Promise<Rollup> =>
    (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;

  async function buildAll(each: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    for (let ms = await nextStep(world.context); ms !== undefined; ms = await nextStep(world.context)) {
      await world.context.wait(ms);
      await each();
    }
  }

  /** what callers are told, what the table holds, and in how many minutes it differs from raw */
  async function outcome(): Promise<{
    answered: number;
    minutes: number;
    hours: number;
    single: number;
    differences: number;
  }> {
    return {
      answered: await answered(),
      minutes: await held(60),
      hours: await held(3600),
      single: await held(0),
      differences: (await differencesOf(world.context, await requests(), undefined, ALL)).length,
    };
  }
  const right = (): Awaited<ReturnType<typeof outcome>> => ({
    answered: expected,
    minutes: expected,
    hours: expected,
    single: expected,
    differences: 0,
  });

  test('a batch that reached raw before the view was made, and is retried after, counts once', async () => {
    const half = world.announce('edge_logs', [edgeEvent(world.now - 1000, URL_OF_REF)]);
    await half.insert();
    expected++;
    await makeRollups();
    await half.insert();
    expect(await answered()).toBe(expected);
    await half.record();
    await buildAll(async () => expect(await answered()).toBe(expected));
    await half.insert();
    expect(await outcome()).toEqual(right());
  });

  test('a period waits for a batch that is not in the ledger; answers are right meanwhile, and the other periods are built', async () => {
    const unfinished = world.announce('edge_logs', [edgeEvent(world.now - 1000, URL_OF_REF)]);
    await unfinished.insert();
    expected++;
    await makeRollups();
    let waited = 0;
    await buildAll(async () => {
      expect(await answered()).toBe(expected);
      if (++waited === 6) {
        expect((await requests()).pending).toHaveLength(1);
        await unfinished.record();
      }
    });
    expect(waited).toBeGreaterThan(6);
    expect(await outcome()).toEqual(right());
  });

  test('a batch announced before the view was made, and written long after its period was built, counts once', async () => {
    const late = world.announce('edge_logs', [edgeEvent(world.now - DAY_MS, URL_OF_REF)], {
      period: floorTo(START / 1000, DAY),
    });
    await makeRollups();
    await buildAll();
    await late.insert();
    await late.record();
    expected++;
    expect(await outcome()).toEqual(right());
  });

  test('late and future events are in every width as soon as they are stored, while history is built and after', async () => {
    await makeRollups();
    await buildAll(async () => {
      await request(2, { at: world.now - 3 * DAY_MS });
      await request(2, { at: world.now + 3_000_000 });
      await request(2);
      expect(await answered()).toBe(expected);
    });
    world.now += 3_600_000;
    expect(await outcome()).toEqual(right());
  });

  test.each([
    ['5 minutes ahead', 300_000],
    ['2 days ahead', 2 * DAY_MS],
    ['100 days ahead', 100 * DAY_MS],
    ['5 minutes behind', -300_000],
    ['100 days behind', -100 * DAY_MS],
  ])('with the clock of an ingest host %s, nothing is missing or doubled', async (_, ms) => {
    // what such a host writes before, while and after history is built; the times of its events are off as much, and
    // near the border between two periods
    const strange = async (): Promise<void> => {
      for (const at of [world.now + ms, floorTo((world.now + ms) / 1000, DAY) * 1000 + 3_600_000])
        await world.send('edge_logs', eventsOf(3, at), { evaluatedAt: world.now + ms, partition: 1 });
      // ingest refuses what is more than an hour ahead of its clock
      if (ms >= -3_600_000) await request(2, { evaluatedAt: world.now + ms });
    };
    const whole = async (): Promise<number[]> =>
      (
        await world.select<{ width: number; n: number }>(
          'SELECT width, toUInt32(sum(requests)) AS n FROM api_requests GROUP BY width ORDER BY width',
        )
      ).map((r) => r.n);
    const raw = async (): Promise<number> =>
      (await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM edge_logs'))[0]!.n;
    await strange();
    await makeRollups();
    await buildAll(async () => {
      await strange();
      expect(await whole()).toEqual([await raw(), await raw(), await raw()]);
      world.now += 1000;
    });
    await strange();
    expect(await whole()).toEqual([await raw(), await raw(), await raw()]);
    expect((await requests()).state).toBe('serving');
    expect(await differencesOf(world.context, await requests(), undefined, ALL)).toEqual([]);
  });

  test('killed at any statement and started again, it goes on where it was', async () => {
    await makeRollups();
    let starts = 0;
    for (let done = false; !done;) {
      starts++;
      let statements = 0;
      const engine = world.clickhouse;
      // the process dies at its n-th writing statement, a later one each time
      const dying = {
        ...engine,
        execute: async (statement: Statement) => {
          if (++statements > starts) throw new Error('killed');
          await engine.execute(statement);
        },
      };
      const context = { ...world.context, clickhouse: dying };
      try {
        await admitNew(context);
        for (let ms = await nextStep(context); ms !== undefined; ms = await nextStep(context)) await context.wait(ms);
        done = true;
      } catch (error) {
        expect((error as Error).message).toBe('killed');
      }
      if (starts % 4 === 0) expect(await answered(), `start ${starts}`).toBe(expected);
    }
    expect(starts).toBeGreaterThan(8);
    expect(await outcome()).toEqual(right());
    expect(
      await world.select(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE '%\\_build\\_%'",
      ),
    ).toEqual([]);
  });

  test('building is throttled to its share of the time', async () => {
    await makeRollups();
    let [worked, paused] = [0, 0];
    const slow = {
      ...world.context,
      settings: { ...world.context.settings, ROLLUP_BUILD_PERCENT: 20 },
      wait: (ms: number) => {
        paused += ms;
        return Promise.resolve();
      },
    };
    for (let i = 0; i < 4; i++) {
      const since = performance.now();
      await nextStep(slow);
      worked += performance.now() - since;
    }
    // what is outside of the measured part (catalogue, publishing) makes the work a little longer
    expect(paused / worked).toBeGreaterThan(1);
    expect(paused / worked).toBeLessThan(5);
  });

  test('a period that ClickHouse cannot read delays no other, is told of, and is built once it can be read', async () => {
    await makeRollups();
    const engine = world.clickhouse;
    const broken = floorTo(START / 1000, DAY) + 2 * DAY;
    let isBroken = true;
    let reads = 0;
    const read = async (of: Read) => {
      if (of.sql !== statements.periodState || of.params?.['period'] !== broken) return await engine.read(of);
      reads++;
      if (isBroken) throw unreadable();
      return await engine.read(of);
    };
    const context = { ...world.context, clickhouse: { ...engine, read } };
    const error = vi.spyOn(context.logger, 'error');
    while ((await nextStep(context)) === 0);
    expect((await requests()).pending).toEqual([broken]);
    expect(error.mock.calls).toEqual([
      [
        {
          work: 'history',
          rollup: 'api_requests',
          version: 1,
          period: new Date(broken * 1000).toISOString(),
          shard: undefined,
          err: expect.objectContaining({ code: 40 }),
        },
        'rollup_work_failed',
      ],
    ]);
    error.mockRestore();
    const metrics = await world.registry.metrics();
    expect(metrics).toContain('sluice_rollup_source_incomplete{rollup="api_requests",version="1"} 1');
    expect(metrics).toContain('sluice_rollup_failures_total{work="history"} 1');
    isBroken = false;
    const before = reads;
    expect(await nextStep(context)).toBeGreaterThan(0);
    expect(reads).toBe(before);
    const later = performance.now() + 61_000;
    const clock = vi.spyOn(performance, 'now').mockReturnValue(later);
    while ((await nextStep(context)) !== undefined);
    clock.mockRestore();
    expect(await outcome()).toEqual(right());
    expect(await world.registry.metrics()).toContain(
      'sluice_rollup_source_incomplete{rollup="api_requests",version="1"} 0',
    );
  });

  test('a period that cannot be built yet is looked at again within the share of the time that builds have', async () => {
    const unfinished = world.announce('edge_logs', [edgeEvent(world.now - 1000, URL_OF_REF)]);
    await unfinished.insert();
    await makeRollups();
    const engine = world.clickhouse;
    const newest = (await requests()).pending.at(-1);
    let looks = 0;
    const read = async (of: Read) => {
      if (of.sql === statements.unfinishedBatches && of.params?.['period'] === newest) looks++;
      return await engine.read(of);
    };
    // an attempt may take a hundredth of the time
    const settings = { ...world.context.settings, ROLLUP_BUILD_PERCENT: 1 };
    const context = { ...world.context, settings, clickhouse: { ...engine, read } };
    expect(await nextStep(context)).toBe(0);
    expect(await nextStep(context)).toBe(0);
    expect(looks).toBe(1);
    const later = performance.now() + 3_600_000;
    const clock = vi.spyOn(performance, 'now').mockReturnValue(later);
    await nextStep(context);
    clock.mockRestore();
    expect(looks).toBe(2);
  });

  test('progress is in the catalogue and in the metrics', async () => {
    await makeRollups();
    const left: number[] = [(await requests()).pending.length];
    const notes = new Set<string | undefined>();
    await buildAll(async () => {
      left.push((await requests()).pending.length);
      notes.add((await rollupNote(world.clickhouse))?.note);
    });
    expect([...notes][0]).toMatch(/^api_requests version 1 is building, \d+ periods left$/);
    expect([...notes].at(-1)).toBeUndefined();
    expect([...new Set(left)]).toEqual([4, 3, 2, 1, 0]);
    const metrics = await world.registry.metrics();
    expect(metrics).toContain('sluice_rollup_build_periods_left{rollup="api_requests",version="1"} 0');
    expect(metrics).toContain(`sluice_rollup_build_rows_total{rollup="api_requests"} ${expected}`);
  });

  test('status codes outside 1xx to 5xx, missing times and duplicates of a bucket come out of tables, builds and raw alike', async () => {
    const kinds: readonly { status?: number | null; ms?: number | null }[] = [
      {},
      { status: 99 },
      { status: 600, ms: null },
      { status: null, ms: 7 },
      { status: 404, ms: null },
      { status: 503, ms: 0 },
      { status: 100, ms: 1.5 },
      { status: 302, ms: 150_000 },
    ];
    const send = async (): Promise<void> => {
      await world.send(
        'function_edge_logs',
        kinds.map((kind, i) => invocationEvent(world.now - i, 'p', 'f', kind)),
      );
    };
    const stats = (now: number): Promise<Record<string, unknown>[]> =>
      world.ask('functions.invocation-stats', { project: 'p', interval: '1day' }, now);
    await send();
    await makeRollups();
    const raw = await stats(world.now);
    expect(raw.at(-1)).toMatchObject({
      count: 8,
      error_count: 3,
      min_execution_time: 0,
      max_execution_time: 150_000,
      avg_execution_time: (5 + 5 + 7 + 0 + 1.5 + 150_000) / 6,
    });
    const now = world.now;
    await buildAll();
    expect(await stats(now)).toEqual(raw);
    world.now += 120_000;
    await send();
    const [minutes] = await world.select<Record<string, number>>(
      `SELECT sum(count) AS count, sum(error_count) AS errors, sum(status_1xx) AS s1, sum(status_2xx) AS s2, sum(status_3xx) AS s3, sum(status_4xx) AS s4, sum(status_5xx) AS s5, sum(execution_count) AS timed FROM function_invocations WHERE project = 'p' AND width = 60`,
    );
    expect(minutes).toEqual({ count: 16, errors: 6, s1: 2, s2: 2, s3: 2, s4: 2, s5: 2, timed: 12 });
  });

  test('a fresh database needs no history, and its current period stays open', async () => {
    await world.reset({ now: START });
    await beginToday(world.context);
    await admitNew(world.context);
    expect((await readRollups(world.clickhouse)).map((r) => [r.state, r.pending])).toEqual([
      ['serving', []],
      ['serving', []],
    ]);
    expect(await newestPeriod(world.context)).toBe(floorTo(START / 1000, DAY));
    expect(await nextStep(world.context)).toBeUndefined();
  });

  test('an insert that began before the view was made is waited for: its rows come to raw without the view', async () => {
    await world.makeRollups();
    const engine = world.clickhouse;
    let inserted = false;
    let looks = 0;
    // stands for an insert that is still running while the first looks are taken, and has not looked the view up
    const late = {
      ...engine,
      read: async (r: Parameters<typeof engine.read>[0]) => {
        if (!r.sql.includes('system.processes') || !r.sql.startsWith('-- Inserts that run now'))
          return await engine.read(r);
        if (++looks < 3)
          return { body: Buffer.from('{"query_id":"slow"}\n'), readRows: undefined, readBytes: undefined };
        if (!inserted) {
          inserted = true;
          await engine.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
          await request(3, { period: floorTo(world.now / 1000, DAY) });
          await engine.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
        }
        return await engine.read(r);
      },
    };
    await beginToday(world.context);
    await admitNew({ ...world.context, clickhouse: late });
    expect(inserted).toBe(true);
    expect(await answered()).toBe(expected);
    await buildAll();
    expect(await outcome()).toEqual(right());
  });

  test('inserts that are waited for are named once they have run for ten seconds, then once an hour', async () => {
    await world.makeRollups();
    await beginToday(world.context);
    const engine = world.clickhouse;
    const since = world.now;
    const insert = () => ({
      query_id: 'slow',
      user: 'other',
      database: 'elsewhere',
      seconds: Math.floor((world.now - since) / 1000),
    });
    let left = 18_100;
    const read = async (of: Read) => {
      if (of.sql !== statements.runningInserts || left-- <= 0) return await engine.read(of);
      return { body: Buffer.from(JSON.stringify(insert())), readRows: undefined, readBytes: undefined };
    };
    const waited: number[] = [];
    const warn = vi.spyOn(world.context.logger, 'warn').mockImplementation((...call: unknown[]) => {
      expect(call).toEqual([{ inserts: [insert()] }, 'rollup_waits_for_inserts']);
      waited.push(world.now - since);
    });
    await admitNew({ ...world.context, clickhouse: { ...engine, read } });
    warn.mockRestore();
    expect(waited).toEqual([10_000, 3_610_000]);
  });

  // Every statement of a build, and before each of them one batch: whole, or killed between raw and the view and
  // finished later.
  describe('a batch that comes at any statement of a build counts once', () => {
    interface Meeting {
      readonly at: number;
      readonly batch: Batch;
      done: boolean;
    }

    async function buildBeside(
      at: number,
      come: (batch: Batch) => Promise<void>,
    ): Promise<{ statements: number; met: Meeting }> {
      const batch = world.announce('edge_logs', eventsOf(3, START + 7_000), { period: floorTo(START / 1000, DAY) });
      const met: Meeting = { at, batch, done: false };
      const engine = world.clickhouse;
      let statements = 0;
      const before = async (): Promise<void> => {
        if (statements++ !== at) return;
        met.done = true;
        await come(batch);
      };
      const beside = {
        ...engine,
        execute: async (s: Statement) => {
          await before();
          await engine.execute(s);
        },
        read: async (r: Parameters<typeof engine.read>[0]) => {
          await before();
          return await engine.read(r);
        },
      };
      await build({ ...world.context, clickhouse: beside }, await requests(), floorTo(START / 1000, DAY));
      return { statements, met };
    }

    async function finish(): Promise<void> {
      let built = await build(world.context, await requests(), floorTo(START / 1000, DAY));
      for (let i = 0; built.kind !== 'built' && i < 3; i++)
        built = await build(world.context, await requests(), floorTo(START / 1000, DAY));
      expect(built.kind).toBe('built');
    }

    test('whole', async () => {
      await makeRollups();
      await buildAll();
      for (let at = 0, statements = 1; at < statements; at++) {
        const run = await buildBeside(at, async (batch) => {
          await batch.insert();
          await batch.record();
          expected += 3;
        });
        statements = run.met.done ? Math.max(statements, at + 2) : 0;
        expect(await held(60), `before statement ${at}`).toBe(expected);
      }
      expect(await outcome()).toEqual(right());
    });

    test('killed between raw and the view, and retried after the build', async () => {
      await makeRollups();
      await buildAll();
      for (let at = 0, more = true; more; at++) {
        const { met } = await buildBeside(at, async (batch) => {
          await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
          await batch.insert();
          await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
          expected += 3;
        });
        more = met.done;
        if (!more) break;
        await met.batch.insert();
        await met.batch.record();
        expect(await held(60), `before statement ${at}`).toBe(expected);
      }
      expect(await outcome()).toEqual(right());
    });

    test('and the build is killed right after it', async () => {
      await makeRollups();
      await buildAll();
      for (let at = 0, more = true; more; at++) {
        more = false;
        await buildBeside(at, async (batch) => {
          more = true;
          await batch.insert();
          await batch.record();
          expected += 3;
          throw new Error('killed');
        }).catch((error: unknown) => expect((error as Error).message).toBe('killed'));
        // whoever asked for the build asks again: the request is not done
        await finish();
        expect(await held(60), `before statement ${at}`).toBe(expected);
      }
      expect(await outcome()).toEqual(right());
    });
  });

  describe('a repair of a period that history builds stays open, and reaches the version that is built', () => {
    /**
     * Called when the newest period is built and the catalogue does not say so yet: a batch is killed before its views,
     * and recovered.
     */
    async function recoverBatch(): Promise<void> {
      const period = floorTo(world.now / 1000, DAY);
      const batch = world.announce('edge_logs', eventsOf(3, world.now), { period });
      await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
      await batch.insert();
      await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
      await requestRepair(world.context, {
        source: 'edge_logs',
        period,
        from: period,
        to: period + DAY,
        reason: 'recovery',
        accept_loss: false,
      });
      await batch.record();
      expected += 3;
    }

    /** Builds the rest, and takes what repairs are left. */
    async function atEnd(): ReturnType<typeof outcome> {
      await buildAll();
      for (let round = 0; (await repairOpen(world.context)) > 0; round++) expect(round).toBeLessThan(3);
      return await outcome();
    }

    test('if it is tried before the catalogue says that the period is built', async () => {
      await makeRollups();
      world.onWait = async () => {
        world.onWait = () => Promise.resolve();
        await recoverBatch();
        expect(await repairOpen(world.context)).toBe(1);
      };
      expect(await atEnd()).toEqual(right());
    });

    test('if history is killed right after the catalogue says that the period is built', async () => {
      await makeRollups();
      world.onWait = async () => {
        world.onWait = () => Promise.resolve();
        await recoverBatch();
        expect(await repairOpen(world.context)).toBe(1);
      };
      const engine = world.clickhouse;
      let isKilled = false;
      const execute = async (statement: Statement): Promise<void> => {
        if (isKilled) throw new Error('killed');
        isKilled = statement.sql === statements.writeRollup;
        await engine.execute(statement);
      };
      await expect(nextStep({ ...world.context, clickhouse: { ...engine, execute } })).rejects.toThrow('killed');
      expect(await atEnd()).toEqual(right());
    });

    /** History ends the build before statement `at` of the repair, and the repair goes on. */
    async function endBefore(at: number): Promise<void> {
      await makeRollups();
      const engine = world.clickhouse;
      const [reached, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      let repairing: Promise<unknown> | undefined;
      let met = 0;
      const hold = async (): Promise<void> => {
        if (++met !== at) return;
        reached.resolve();
        await ended.promise;
      };
      const held: typeof engine = {
        ...engine,
        read: async (read) => {
          await hold();
          return await engine.read(read);
        },
        execute: async (statement) => {
          await hold();
          await engine.execute(statement);
        },
      };
      world.onWait = async () => {
        world.onWait = () => Promise.resolve();
        await recoverBatch();
        repairing = repairOpen({ ...world.context, clickhouse: held });
        await Promise.race([reached.promise, repairing]);
      };
      await nextStep(world.context);
      ended.resolve();
      await repairing;
    }

    test.each([1, 2, 3, 4])('if history ends the build before statement %i of the repair', async (at) => {
      await endBefore(at);
      expect(await atEnd()).toEqual(right());
    });
  });

  test('a repair that is done while a new version is admitted reaches that version', async () => {
    world.now += DAY_MS;
    await world.makeRollups();
    await beginToday(world.context);
    const engine = world.clickhouse;
    const period = floorTo(world.now / 1000, DAY);
    let isAdmitted = false;
    // raw was looked at before this batch, so its period is not pending
    const execute = async (statement: Statement): Promise<void> => {
      if (!isAdmitted && statement.sql === statements.writeRollup && statement.params?.['name'] === 'api_requests') {
        isAdmitted = true;
        const batch = world.announce('edge_logs', eventsOf(3, world.now));
        await engine.execute({ sql: 'DETACH TABLE api_requests_v1_mv' });
        await batch.insert();
        await engine.execute({ sql: 'ATTACH TABLE api_requests_v1_mv' });
        const span = { from: period, to: period + DAY };
        const request = { source: 'edge_logs', period, ...span, accept_loss: false } as const;
        await requestRepair(world.context, { ...request, reason: 'recovery' });
        await batch.record();
        expected += 3;
        expect(await repairOpen(world.context)).toBe(0);
      }
      await engine.execute(statement);
    };
    await admitNew({ ...world.context, clickhouse: { ...engine, execute } });
    expect((await requests()).pending).not.toContain(period);
    await buildAll();
    expect(await repairOpen(world.context)).toBe(0);
    expect(await outcome()).toEqual(right());
  });

  test('two services at once, one of them killed at any statement, build what one would', async () => {
    await makeRollups();
    const engine = world.clickhouse;
    for (let at = 1; at < 40; at += 3) {
      let statements = 0;
      const dying = {
        ...engine,
        execute: async (statement: Statement) => {
          if (++statements >= at) throw new Error('killed');
          await engine.execute(statement);
        },
      };
      const one = (async () => {
        await nextStep({ ...world.context, clickhouse: dying });
      })().catch((error: unknown) => expect((error as Error).message).toBe('killed'));
      const other = nextStep(world.context);
      await Promise.all([one, other]);
      expect(await answered(), `killed at ${at}`).toBe(expected);
    }
    await buildAll();
    expect(await outcome()).toEqual(right());
  });

  test('a service whose side table another one has dropped takes nothing from what that one built', async () => {
    await makeRollups();
    const engine = world.clickhouse;
    let meanwhile = 0;
    // the first service has filled its side table, and has not yet looked at what is in it
    const late: typeof engine = {
      ...engine,
      read: async (read) => {
        if (
          read.sql === statements.partitions &&
          String(read.params?.['tables']).includes('_build_') &&
          meanwhile++ === 0
        )
          await nextStep(world.context);
        return engine.read(read);
      },
    };
    await nextStep({ ...world.context, clickhouse: late });
    expect(meanwhile).toBeGreaterThan(0);
    expect(await answered()).toBe(expected);
    await buildAll();
    expect(await outcome()).toEqual(right());
  });

  test.each(['CREATE TABLE', 'INSERT INTO'])(
    'a service that goes on at its %s, after another has built the period and raw days have expired, loses none',
    async (statement) => {
      await makeRollups();
      const rollup = await requests();
      const period = rollup.pending.at(-1)!;
      expect(await build(world.context, rollup, period)).toMatchObject({ kind: 'built' });
      const engine = world.clickhouse;
      let isHeld = false;
      const execute = async (s: Statement): Promise<void> => {
        if (!isHeld && s.sql.startsWith(`${statement} api_requests_v1_build_`)) {
          isHeld = true;
          await writeRollup(engine, { ...rollup, pending: rollup.pending.filter((p) => p !== period) });
          await buildAll();
          const settings = { ...world.context.settings, RAW_RETENTION_DAYS: 1 };
          expect(await dropExpired({ ...world.context, settings })).toBeGreaterThan(0);
        }
        await engine.execute(s);
      };
      await nextStep({ ...world.context, clickhouse: { ...engine, execute } });
      expect(isHeld).toBe(true);
      expect(await outcome()).toEqual(right());
    },
  );
});
