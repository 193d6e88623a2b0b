import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Migration } from '../../../common/clickhouse/migrations.ts';
import { loadMigrations, migrate } from '../../../common/clickhouse/migrations.ts';
import { splitStatements } from '../../../common/clickhouse/sql.ts';
import { createAudit } from '../../../services/rollup/audit.ts';
import { readRollups } from '../../../services/rollup/catalogue.ts';
import { dropExpired } from '../../../services/rollup/retention.ts';
import { admitNew, buildNext } from '../../../services/rollup/versions.ts';
import { testLogger } from '../../harness/clickhouse.ts';
import { invocationEvent, openWorld, type World } from './world.ts';

const START = Date.parse('2028-01-10T12:30:00Z');
const DAY_MS = 86_400_000;
/** raw keeps less than the rollups do: what is older can only be carried over */
const RAW_DAYS = 5;

/**
 * What a change of a rollup looks like: a new column in the minute and hour tiers (the sum of the squares of the times), and a tier of days.
 * Everything else of it is as in the first version.
 */
const SECOND_VERSION = `
CREATE TABLE function_invocations_1m_v2 AS function_invocations_1m_v1;
ALTER TABLE function_invocations_1m_v2 ADD COLUMN execution_squares SimpleAggregateFunction(sum, Float64);
CREATE TABLE function_invocations_1h_v2 AS function_invocations_1m_v2;
CREATE TABLE function_invocations_1d_v2 AS function_invocations_1m_v2;

CREATE MATERIALIZED VIEW function_invocations_1m_v2_mv TO function_invocations_1m_v2 AS
WITH (SELECT groupArray(at) FROM rollup_cuts) AS cuts
SELECT
    arrayMax(arrayFilter(c -> c <= judged_at, arrayPushBack(cuts, toStartOfDay(judged_at, 'UTC')))) AS period,
    project, function_id, toStartOfMinute(timestamp, 'UTC') AS bucket,
    count() AS count, countIf(status_code >= 400) AS error_count,
    countIf(status_code >= 100 AND status_code < 200) AS status_1xx, countIf(status_code >= 200 AND status_code < 300) AS status_2xx,
    countIf(status_code >= 300 AND status_code < 400) AS status_3xx, countIf(status_code >= 400 AND status_code < 500) AS status_4xx,
    countIf(status_code >= 500 AND status_code < 600) AS status_5xx,
    count(execution_time_ms) AS execution_count, ifNull(sum(execution_time_ms), 0) AS execution_sum, ifNull(sum(execution_time_ms * execution_time_ms), 0) AS execution_squares,
    min(execution_time_ms) AS execution_min, max(execution_time_ms) AS execution_max, quantilesTDigestState(0.95, 0.99)(execution_time_ms) AS execution_quantiles
FROM function_edge_logs
WHERE is_invocation
GROUP BY period, project, function_id, bucket;

CREATE MATERIALIZED VIEW function_invocations_1h_v2_mv TO function_invocations_1h_v2 AS
SELECT
    period, project, function_id, toStartOfHour(m.bucket, 'UTC') AS bucket, sum(m.count) AS count, sum(m.error_count) AS error_count,
    sum(m.status_1xx) AS status_1xx, sum(m.status_2xx) AS status_2xx, sum(m.status_3xx) AS status_3xx, sum(m.status_4xx) AS status_4xx, sum(m.status_5xx) AS status_5xx,
    sum(m.execution_count) AS execution_count, sum(m.execution_sum) AS execution_sum, sum(m.execution_squares) AS execution_squares,
    min(m.execution_min) AS execution_min, max(m.execution_max) AS execution_max, quantilesTDigestMergeState(0.95, 0.99)(m.execution_quantiles) AS execution_quantiles
FROM function_invocations_1m_v2 AS m
GROUP BY period, project, function_id, bucket;

CREATE MATERIALIZED VIEW function_invocations_1d_v2_mv TO function_invocations_1d_v2 AS
SELECT
    period, project, function_id, toStartOfDay(h.bucket, 'UTC') AS bucket, sum(h.count) AS count, sum(h.error_count) AS error_count,
    sum(h.status_1xx) AS status_1xx, sum(h.status_2xx) AS status_2xx, sum(h.status_3xx) AS status_3xx, sum(h.status_4xx) AS status_4xx, sum(h.status_5xx) AS status_5xx,
    sum(h.execution_count) AS execution_count, sum(h.execution_sum) AS execution_sum, sum(h.execution_squares) AS execution_squares,
    min(h.execution_min) AS execution_min, max(h.execution_max) AS execution_max, quantilesTDigestMergeState(0.95, 0.99)(h.execution_quantiles) AS execution_quantiles
FROM function_invocations_1h_v2 AS h
GROUP BY period, project, function_id, bucket;

INSERT INTO rollups (name, version, source, tables)
VALUES ('function_invocations', 2, 'function_edge_logs', ['function_invocations_1m', 'function_invocations_1h', 'function_invocations_1d']);
`;

describe('a changed definition is built beside the old one and takes its place', () => {
  let world: World;
  let sent = 0;
  const migrations: Migration[] = [...loadMigrations()];

  beforeAll(async () => {
    world = await openWorld({ now: START, settings: { RAW_RETENTION_DAYS: String(RAW_DAYS) } });
    await admitNew(world.workshop);
    for (let day = 0; day < 9; day++) {
      await send(30);
      await dropExpired(world.workshop);
      world.now += DAY_MS;
    }
    world.now -= DAY_MS - 60_000;
    migrations.push({ version: migrations.length + 1, name: `${String(migrations.length + 1).padStart(4, '0')}_change_function_invocations.sql`, checksum: 'of the test', statements: splitStatements(SECOND_VERSION) });
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
    await migrate(world.clickhouse, testLogger, migrations);
    await admitNew(world.workshop);
    expect((await readRollups(world.clickhouse)).filter((r) => r.name === 'function_invocations').map((r) => [r.version, r.state])).toEqual([[1, 'serving'], [2, 'building']]);
    let steps = 0;
    for (let ms = await buildNext(world.workshop); ms !== undefined; ms = await buildNext(world.workshop)) {
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
    expect(await buildNext(world.workshop)).toBeUndefined();
    expect(await readRollups(world.clickhouse)).toEqual(before);
  });
});
