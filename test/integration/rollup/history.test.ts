import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Statement } from '../../../common/clickhouse/clickhouse.ts';
import { loadMigrations, migrate } from '../../../common/clickhouse/migrations.ts';
import { createAudit } from '../../../services/rollup/audit.ts';
import { buildPeriod } from '../../../services/rollup/build.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { readCuts, readRollups } from '../../../services/rollup/catalogue.ts';
import { DAY, periodOf } from '../../../services/rollup/periods.ts';
import { admitNew, nextStep } from '../../../services/rollup/versions.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { edgeEvent, invocationEvent, openWorld, type World } from './world.ts';

const START = Date.parse('2028-02-27T10:20:00Z');
const REF = 'abcdefghijklmnopqrst';
const DAY_MS = DAY * 1000;

describe('history', { timeout: 120_000 }, () => {
  let world: World;
  let expected = 0;

  beforeAll(async () => {
    world = await openWorld({ now: START, migrated: false });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    expected = 0;
    await world.reset({ now: START, migrated: false });
    for (let day = 0; day < 4; day++) {
      await request(10);
      await request(5, { at: world.now - 2 * DAY_MS });
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 3_600_000;
  });

  async function request(count: number, { at = world.now, judgedAt = world.now }: { at?: number; judgedAt?: number } = {}): Promise<void> {
    await world.send('edge_logs', Array.from({ length: count }, (_, i) => edgeEvent(at - i * 1000, `https://${REF}.supabase.co/rest/v1/t`)), { judgedAt });
    expected += count;
  }

  async function makeRollups(): Promise<void> {
    await migrate(world.clickhouse, testLogger, loadMigrations());
    await admitNew(world.workshop);
  }

  /** what callers are told, over seven days */
  async function answered(now = world.now): Promise<number> {
    const rows = await world.ask('usage.api-counts', { project: REF, interval: 'daily' }, now);
    return rows.reduce((sum, row) => sum + Number(row['total_rest_requests']), 0);
  }

  const held = async (table: string): Promise<number> => (await world.select<{ n: number }>(`SELECT toUInt32(sum(requests)) AS n FROM ${table}`))[0]!.n;

  async function buildAll(each: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    for (let ms = await nextStep(world.workshop); ms !== undefined; ms = await nextStep(world.workshop)) {
      await world.workshop.wait(ms);
      await each();
    }
  }

  /** what callers are told, what the tables hold, and whether the audit finds all periods equal */
  async function outcome(): Promise<{ answered: number; minutes: number; hours: number; differences: number }> {
    const audit = createAudit(world.workshop);
    await audit.compareDays(10);
    return { answered: await answered(), minutes: await held('api_requests_1m_v1'), hours: await held('api_requests_1h_v1'), differences: audit.suspicions.length };
  }
  const right = (): Awaited<ReturnType<typeof outcome>> => ({ answered: expected, minutes: expected, hours: expected, differences: 0 });

  test('a batch that reached raw before the views were made, and is retried after, counts once', async () => {
    const half = world.announce('edge_logs', [edgeEvent(world.now - 1000, `https://${REF}.supabase.co/rest/v1/t`)]);
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

  test('a period waits for a batch that is not in the ledger; answers are right meanwhile and after', async () => {
    const unfinished = world.announce('edge_logs', [edgeEvent(world.now - 1000, `https://${REF}.supabase.co/rest/v1/t`)]);
    await unfinished.insert();
    expected++;
    await makeRollups();
    let waited = 0;
    await buildAll(async () => {
      expect(await answered()).toBe(expected);
      waited++;
      if (waited === 4) {
        expect((await readRollups(world.clickhouse))[0]).toMatchObject({ name: 'api_requests', state: 'building' });
        await unfinished.record();
      }
    });
    expect(waited).toBeGreaterThan(6);
    expect(await outcome()).toEqual(right());
  });

  test('a batch announced before the views were made, and written long after its period was built, counts once', async () => {
    const late = world.announce('edge_logs', [edgeEvent(world.now - DAY_MS, `https://${REF}.supabase.co/rest/v1/t`)], { judgedAt: world.now - DAY_MS });
    await makeRollups();
    await buildAll();
    await late.insert();
    await late.record();
    expected++;
    expect(await outcome()).toEqual(right());
  });

  test('late and future events, before and after the cut, are in every tier as soon as they are stored', async () => {
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

  test('killed at any point and started again, it goes on where it was', async () => {
    await makeRollups();
    let starts = 0;
    for (let done = false; !done;) {
      starts++;
      let statements = 0;
      const engine = world.clickhouse;
      // the process dies at its n-th writing statement, a later one each time
      const dying = { ...engine, execute: async (statement: Statement) => {
        if (++statements > starts * 4) throw new Error('killed');
        await engine.execute(statement);
      } };
      const workshop = { ...world.workshop, clickhouse: dying };
      try {
        await admitNew(workshop);
        for (let ms = await nextStep(workshop); ms !== undefined; ms = await nextStep(workshop)) await workshop.wait(ms);
        done = true;
      } catch (error) {
        expect((error as Error).message).toBe('killed');
      }
      expect(await answered(), `start ${starts}`).toBe(expected);
    }
    expect(starts).toBeGreaterThan(5);
    expect(await outcome()).toEqual(right());
  });

  test('building is throttled to its share of the time', async () => {
    await makeRollups();
    let [worked, paused] = [0, 0];
    const slow = { ...world.workshop, settings: { ...world.workshop.settings, ROLLUP_BUILD_PERCENT: 20 }, wait: (ms: number) => {
      paused += ms;
      return Promise.resolve();
    } };
    world.now += 120_000;
    for (let i = 0; i < 4; i++) {
      const since = performance.now();
      await nextStep(slow);
      worked += performance.now() - since;
    }
    // what is outside of the measured part (catalogue, publishing) makes the work a little longer
    expect(paused / worked).toBeGreaterThan(1);
    expect(paused / worked).toBeLessThan(4);
  });

  test('progress is in the catalogue and in the metrics', async () => {
    await makeRollups();
    const covered: number[] = [];
    const notes = new Set<string | undefined>();
    await buildAll(async () => {
      covered.push((await readRollups(world.clickhouse))[0]!.covered_from);
      notes.add((await rollupNote(world.clickhouse))?.note);
    });
    expect([...notes][0]).toMatch(/^api_requests version 1 is being built, events from 2028-03-01T\d\d:00:00.000Z on are in it$/);
    expect(notes.size).toBeGreaterThan(4);
    expect([...notes].at(-1)).toBeUndefined();
    expect(covered.filter((c) => c > 0)).toEqual(covered.filter((c) => c > 0).toSorted((a, b) => b - a));
    expect(new Set(covered).size).toBeGreaterThan(4);
    const metrics = await world.registry.metrics();
    expect(metrics).toContain('sluice_rollup_covered_from_seconds{rollup="api_requests",version="1"} 0');
    expect(metrics).toContain('sluice_rollup_build_periods_left{rollup="api_requests",version="1"} 0');
    expect(metrics).toContain(`sluice_rollup_build_rows_total{rollup="api_requests"} ${expected}`);
  });

  test('status codes outside 1xx to 5xx, missing times and duplicates of a bucket come out of tables, builds and raw alike', async () => {
    const kinds: readonly { status?: number | null; ms?: number | null }[] = [{}, { status: 99 }, { status: 600, ms: null }, { status: null, ms: 7 }, { status: 404, ms: null }, { status: 503, ms: 0 }, { status: 100, ms: 1.5 }, { status: 302, ms: 150_000 }];
    const send = async (): Promise<void> => { await world.send('function_edge_logs', kinds.map((kind, i) => invocationEvent(world.now - i, 'p', 'f', kind))); };
    const stats = (now: number): Promise<Record<string, unknown>[]> => world.ask('functions.invocation-stats', { project: 'p', interval: '1day' }, now);
    await send();
    await makeRollups();
    const raw = await stats(world.now);
    expect(raw.at(-1)).toMatchObject({ count: 8, error_count: 3, min_execution_time: 0, max_execution_time: 150_000, avg_execution_time: (5 + 5 + 7 + 0 + 1.5 + 150_000) / 6 });
    const now = world.now;
    await buildAll();
    expect(await stats(now)).toEqual(raw);
    world.now += 120_000;
    await send();
    const [minutes] = await world.select<Record<string, number>>(`SELECT sum(count) AS count, sum(error_count) AS errors, sum(status_1xx) AS s1, sum(status_2xx) AS s2, sum(status_3xx) AS s3, sum(status_4xx) AS s4, sum(status_5xx) AS s5, sum(execution_count) AS timed FROM function_invocations_1m WHERE project = 'p'`);
    expect(minutes).toEqual({ count: 16, errors: 6, s1: 2, s2: 2, s3: 2, s4: 2, s5: 2, timed: 12 });
  });

  test('a row added to raw while a period is built makes it be built again', async () => {
    await makeRollups();
    await buildAll();
    const period = periodOf(START / 1000, []);
    const engine = world.clickhouse;
    let added = false;
    const busy = { ...engine, execute: async (statement: Statement) => {
      if (!added && statement.sql.startsWith('INSERT INTO api_request_events_v1_build')) {
        added = true;
        await request(3, { at: START, judgedAt: START + 1 });
      }
      await engine.execute(statement);
    } };
    const rollup = (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;
    expect(await buildPeriod({ ...world.workshop, clickhouse: busy }, rollup, period)).toMatchObject({ kind: 'built' });
    expect(added).toBe(true);
    expect(await outcome()).toEqual(right());
  });

  test('a row added to raw between the count and the swap is found by the comparison, and the period is built again', async () => {
    await makeRollups();
    await buildAll();
    const period = periodOf(START / 1000, []);
    const engine = world.clickhouse;
    let swaps = 0;
    const busy = { ...engine, execute: async (statement: Statement) => {
      if (statement.sql.includes('REPLACE PARTITION') && swaps++ === 0) await request(3, { at: START, judgedAt: START + 1 });
      await engine.execute(statement);
    } };
    const rollup = (await readRollups(world.clickhouse)).find((r) => r.name === 'api_requests')!;
    expect(await buildPeriod({ ...world.workshop, clickhouse: busy }, rollup, period)).toMatchObject({ kind: 'built' });
    expect(swaps).toBeGreaterThan(4);
    expect(await outcome()).toEqual(right());
  });

  test('a fresh database needs no history', async () => {
    await world.reset({ now: START });
    await admitNew(world.workshop);
    expect((await readRollups(world.clickhouse)).map((r) => [r.state, r.covered_from])).toEqual([['serving', 0], ['serving', 0]]);
    expect(await readCuts(world.clickhouse)).toEqual([]);
    expect(await nextStep(world.workshop)).toBeUndefined();
  });
});
