import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createAudit, type Audit } from '../../../services/rollup/audit.ts';
import { rollupNote } from '../../../services/rollup/readiness.ts';
import { readCuts, readRollups, writeRollup } from '../../../services/rollup/catalogue.ts';
import { admitNew } from '../../../services/rollup/versions.ts';
import { edgeEvent, invocationEvent, openWorld, type World } from './world.ts';

const START = Date.parse('2028-02-28T22:00:00Z');
const REF = 'abcdefghijklmnopqrst';
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

/** lower-case letters in no order: as many distinct windows as they can have */
function letters(count: number): string {
  let state = 1;
  return Array.from({ length: count }, () => String.fromCharCode(97 + ((state = (state * 48_271) % 2_147_483_647) % 26))).join('');
}

describe('the audit', { timeout: 120_000 }, () => {
  let world: World;
  let audit: Audit;

  beforeAll(async () => {
    world = await openWorld({ now: START, migrated: false });
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    await world.reset({ now: START });
    await admitNew(world.workshop);
    audit = createAudit(world.workshop);
  });

  async function traffic(minutes: number): Promise<void> {
    for (let i = 0; i < minutes; i++) {
      await world.send('edge_logs', Array.from({ length: 20 }, (_, n) => edgeEvent(world.now - n * 500, `https://${REF}.supabase.co/rest/v1/t${n}/${n % 5 === 0 ? letters(120) : ''}`)));
      await world.send('function_edge_logs', Array.from({ length: 20 }, (_, n) => invocationEvent(world.now - n * 500, 'p', `f${n % 3}`, { ms: n / 8, status: n % 5 === 0 ? 500 : 200 })));
      world.now += MINUTE_MS;
    }
  }

  /** Rounds a minute apart, as the service makes them. */
  async function rounds(count: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      await audit.round();
      world.now += MINUTE_MS;
    }
  }

  const differences = async (): Promise<number[]> => (await readRollups(world.clickhouse)).map((r) => r.differences);
  const everything = async (): Promise<unknown> => [
    await world.ask('usage.api-counts', { project: REF, interval: '3hr' }, START + HOUR_MS), await world.ask('usage.api-counts', { project: REF, interval: 'daily' }, START + HOUR_MS),
    await world.ask('functions.invocation-stats', { project: 'p', interval: '1hr' }, START + HOUR_MS), await world.ask('functions.invocation-stats', { project: 'p', interval: '1day' }, START + HOUR_MS),
  ];

  test('finds nothing where nothing is wrong, and follows the closed minutes', async () => {
    await traffic(5);
    await rounds(3);
    expect(audit.suspicions).toEqual([]);
    const now = world.now;
    await audit.round();
    expect((await readRollups(world.clickhouse)).map((r) => r.audited_to)).toEqual([now, now].map((t) => Math.floor((t - 2 * MINUTE_MS) / MINUTE_MS) * 60));
    expect(await differences()).toEqual([0, 0]);
    expect(await world.registry.metrics()).toContain('sluice_rollup_differences{rollup="api_requests"} 0');
  });

  test.each([
    ['rows lost', "ALTER TABLE function_invocations_1m_v1 DELETE WHERE function_id = 'f1' SETTINGS mutations_sync = 1"],
    ['a count off by one', "ALTER TABLE function_invocations_1m_v1 UPDATE count = count + 1 WHERE function_id = 'f2' SETTINGS mutations_sync = 1"],
    ['counts swapped between functions', "ALTER TABLE function_invocations_1m_v1 UPDATE error_count = 4 - error_count WHERE 1 SETTINGS mutations_sync = 1"],
    ['a sum off', 'ALTER TABLE function_invocations_1m_v1 UPDATE execution_sum = execution_sum + 0.001 WHERE 1 SETTINGS mutations_sync = 1'],
    ['a least time off', 'ALTER TABLE function_invocations_1m_v1 UPDATE execution_min = 1 WHERE 1 SETTINGS mutations_sync = 1'],
    ['a row too many', "INSERT INTO function_invocations_1m_v1 (period, project, function_id, bucket, count) SELECT period, project, 'ghost', bucket, 1 FROM function_invocations_1m_v1 LIMIT 1"],
    ['a single event lost', 'ALTER TABLE api_request_events_v1 DELETE WHERE timestamp = (SELECT max(timestamp) FROM api_request_events_v1) SETTINGS mutations_sync = 1'],
    ['an overflowing event lost', 'ALTER TABLE api_requests_overflow_v1 DELETE WHERE 1 SETTINGS mutations_sync = 1'],
    ['a family moved', 'ALTER TABLE api_requests_1m_v1 UPDATE rest = auth, auth = rest WHERE 1 SETTINGS mutations_sync = 1'],
    ['a whole partition lost', "ALTER TABLE api_requests_1m_v1 DROP PARTITION '2028-02-28 00:00:00'"],
  ])('finds and mends %s in closed minutes, in a period that is still going on', async (_, damage) => {
    await traffic(4);
    const right = await everything();
    await world.clickhouse.execute({ sql: damage.replace(/ SETTINGS.*/, ''), settings: { mutations_sync: 1 } });
    world.now += 2 * MINUTE_MS;
    await audit.round();
    expect(audit.suspicions.length).toBeGreaterThan(0);
    expect(await differences()).toEqual([0, 0]);
    world.now += MINUTE_MS;
    let seen: number[] = [];
    let told: string | undefined;
    world.onWait = async () => {
      // while the repair waits for its cut, everybody is told
      if (seen.length === 0) {
        seen = await differences();
        told = (await rollupNote(world.clickhouse))?.note;
      }
      await world.send('edge_logs', [edgeEvent(world.now, 'https://another.example/auth/v1/t')]);
    };
    await audit.round();
    expect(Math.max(...seen)).toBeGreaterThan(0);
    expect(told).toMatch(/^(api_requests|function_invocations) differs from the raw table in \d+ minutes, from 2028-02-28T2/);
    expect(await rollupNote(world.clickhouse)).toBeUndefined();
    expect(audit.suspicions).toEqual([]);
    expect(await differences()).toEqual([0, 0]);
    expect(await readCuts(world.clickhouse)).toHaveLength(1);
    world.onWait = () => Promise.resolve();
    expect(await everything()).toEqual(right);
    world.now += HOUR_MS;
    await audit.compareDays(2);
    expect(audit.suspicions).toEqual([]);
  });

  test('finds and mends an hour tier that is off', async () => {
    await traffic(3);
    world.now = START + HOUR_MS + 3 * MINUTE_MS;
    const right = await everything();
    await world.clickhouse.execute({ sql: "ALTER TABLE function_invocations_1h_v1 UPDATE count = count + 1 WHERE function_id = 'f0'", settings: { mutations_sync: 1 } });
    await rounds(2);
    expect(audit.suspicions).toEqual([]);
    expect(await world.registry.metrics()).toContain('sluice_rollup_repairs_total{rollup="function_invocations"} 1');
    expect(await everything()).toEqual(right);
  });

  test('looks at the last days when it starts, where the one before it left something unmended', async () => {
    await traffic(3);
    await world.clickhouse.execute({ sql: 'ALTER TABLE api_requests_1m_v1 DELETE WHERE 1', settings: { mutations_sync: 1 } });
    world.now += HOUR_MS * 3;
    const [rollup] = await readRollups(world.clickhouse);
    await writeRollup(world.clickhouse, { ...rollup!, differences: 3, audited_to: world.now / 1000 });
    world.now += 86_400_000;
    await rounds(2);
    expect(await world.select('SELECT toUInt32(sum(requests)) AS n FROM api_requests_1m WHERE ref = \'abcdefghijklmnopqrst\'')).toEqual([{ n: 48 }]);
    expect(await differences()).toEqual([0, 0]);
  });

  test('finds at night what came late, by the period in which it was judged', async () => {
    await world.send('edge_logs', [edgeEvent(world.now - 40 * 86_400_000, `https://${REF}.supabase.co/rest/v1/t`)]);
    await traffic(1);
    await world.clickhouse.execute({ sql: "ALTER TABLE api_requests_1m_v1 DELETE WHERE bucket < '2028-02-01 00:00:00'", settings: { mutations_sync: 1 } });
    await rounds(3);
    expect(audit.suspicions).toEqual([]);
    // the first round after two in the morning
    world.now = Date.parse('2028-02-29T02:00:30Z');
    await audit.round();
    expect(audit.suspicions).toHaveLength(1);
    world.now += MINUTE_MS;
    await audit.round();
    expect(audit.suspicions).toEqual([]);
    expect(await world.select("SELECT toUInt32(sum(requests)) AS n FROM api_requests_1m WHERE bucket < '2028-02-01 00:00:00'")).toEqual([{ n: 1 }]);
  });

  test('forgives what is only under way: raw is written before the views', async () => {
    await traffic(1);
    await world.clickhouse.execute({ sql: 'DETACH TABLE api_requests_1m_v1_mv' });
    const batch = world.announce('edge_logs', [edgeEvent(world.now, `https://${REF}.supabase.co/rest/v1/t`)]);
    await batch.insert();
    await world.clickhouse.execute({ sql: 'ATTACH TABLE api_requests_1m_v1_mv' });
    world.now += 3 * MINUTE_MS;
    await audit.round();
    expect(audit.suspicions.length).toBeGreaterThan(0);
    await batch.insert();
    await batch.record();
    await rounds(2);
    expect(audit.suspicions).toEqual([]);
    expect(await world.registry.metrics()).not.toContain('sluice_rollup_repairs_total{rollup="api_requests"}');
  });

  test('says so, and stops trying, where building anew does not help', async () => {
    await traffic(2);
    // a view that never gives the same twice
    await world.clickhouse.execute({ sql: `ALTER TABLE api_requests_overflow_v1_mv MODIFY QUERY SELECT toStartOfDay(judged_at, 'UTC') AS period, timestamp, toString(generateUUIDv4()) AS url, families FROM edge_logs` });
    await world.send('edge_logs', [edgeEvent(world.now - 1000, 'https://x')]);
    world.now += 3 * MINUTE_MS;
    await rounds(6);
    expect(audit.suspicions[0]).toMatchObject({ confirmed: true, repairs: 3 });
    expect((await differences())[0]).toBeGreaterThan(0);
    expect(await readCuts(world.clickhouse)).toHaveLength(1);
  });
});
