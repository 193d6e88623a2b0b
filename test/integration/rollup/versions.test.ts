import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrate } from '../../../common/clickhouse/migrations.ts';
import { createAudit } from '../../../services/rollup/audit.ts';
import { readRollups } from '../../../services/rollup/catalogue.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { admitNew, nextStep } from '../../../services/rollup/versions.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { SECOND_VERSION } from './second-version.ts';
import { invocationEvent, openWorld, type World } from './world.ts';

const START = Date.parse('2028-01-10T12:30:00Z');
const DAY_MS = 86_400_000;
/** raw keeps less than the rollups do: what is older can only be carried over */
const RAW_DAYS = 5;

describe('a changed definition is built beside the old one and takes its place', { timeout: 120_000 }, () => {
  let world: World;
  let sent = 0;

  beforeAll(async () => {
    world = await openWorld({ now: START, settings: { RAW_RETENTION_DAYS: String(RAW_DAYS) } });
    await admitNew(world.workshop);
    for (let day = 0; day < 9; day++) {
      await send(30);
      await dropExpired(world.workshop);
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 60_000;
  });
  afterAll(() => world.close());

  /** Now, a while ago, and as late as may be. */
  async function send(count: number): Promise<void> {
    const at = (i: number): number => world.now - (i % 3 === 0 ? 0 : i % 3 === 1 ? i * 600_000 : (RAW_DAYS - 1) * DAY_MS);
    await world.send('function_edge_logs', Array.from({ length: count }, (_, i) => invocationEvent(at(i), 'p', `f${i % 4}`, { ms: i })));
    sent += count;
  }

  const answers = async (now: number): Promise<unknown> => {
    const rows: unknown[] = [];
    for (const interval of ['15min', '1hr', '1day', '7day']) rows.push(await world.ask('functions.invocation-stats', { project: 'p', interval }, now));
    return rows;
  };
  const total = async (table: string): Promise<number> => (await world.select<{ n: number }>(`SELECT toUInt32(sum(count)) AS n FROM ${table}`))[0]!.n;

  test('answers are right all along, and the old tables are gone at the end', async () => {
    expect(await total('function_invocations_1h')).toBe(sent);
    expect((await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM function_edge_logs'))[0]!.n).toBeLessThan(sent);
    const [now, before] = [world.now, await answers(world.now)];
    await migrate(world.clickhouse, testLogger, SECOND_VERSION);
    await admitNew(world.workshop);
    expect((await readRollups(world.clickhouse)).filter((r) => r.name === 'function_invocations').map((r) => [r.version, r.state])).toEqual([[1, 'serving'], [2, 'building']]);
    let steps = 0;
    for (let ms = await nextStep(world.workshop); ms !== undefined; ms = await nextStep(world.workshop)) {
      await world.workshop.wait(ms);
      expect(await answers(now), `step ${steps}`).toEqual(before);
      expect(await total('function_invocations_1h')).toBe(sent);
      // the tier that only the new version has: from its tables and from raw, as far as raw goes back
      if (steps === 3) {
        const days = await world.select<{ n: number }>(`SELECT toUInt32(sum(count)) AS n FROM function_invocations_1d`);
        const raw = await world.select<{ n: number }>('SELECT toUInt32(count()) AS n FROM function_edge_logs');
        expect(days[0]!.n).toBeGreaterThanOrEqual(raw[0]!.n);
      }
      steps++;
    }
    expect(steps).toBeGreaterThan(9);
    expect((await readRollups(world.clickhouse)).filter((r) => r.name === 'function_invocations').map((r) => [r.version, r.state])).toEqual([[1, 'retired'], [2, 'serving']]);
    expect(await world.select("SELECT name FROM system.tables WHERE database = currentDatabase() AND name LIKE 'function_invocations%v1%'")).toEqual([]);
  });

  test('history that raw no longer has was carried over, into every tier', async () => {
    for (const tier of ['1m', '1h', '1d']) expect(await total(`function_invocations_${tier}`), tier).toBe(sent);
    const [row] = await world.select<Record<string, number>>(`SELECT sum(execution_squares) AS squares, max(execution_max) AS longest FROM function_invocations_1d`);
    expect(row!['squares']).toBeGreaterThan(0);
    expect(row!['longest']).toBe(29);
  });

  test('the new version goes on by itself and equals raw', async () => {
    world.now += DAY_MS;
    await send(30);
    for (const tier of ['1m', '1h', '1d']) expect(await total(`function_invocations_${tier}`), tier).toBe(sent);
    world.now += DAY_MS;
    const audit = createAudit(world.workshop);
    await audit.compareDays(12);
    expect(audit.suspicions).toEqual([]);
  });

  test('a second start finds nothing to do', async () => {
    const before = await readRollups(world.clickhouse);
    await admitNew(world.workshop);
    expect(await nextStep(world.workshop)).toBeUndefined();
    expect(await readRollups(world.clickhouse)).toEqual(before);
  });
});
