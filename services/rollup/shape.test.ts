import { describe, expect, test } from 'vitest';
import { carryOver, differences, fill, madeFrom, madeFromRaw, publicView, shapeOf } from './shape.ts';

const rollup = { name: 'visits', version: 2, source: 'edge_logs', tables: ['visits_1m', 'visits_1h'] };
const views = [
  { name: 'visits_1m_v2_mv', select: 'SELECT toStartOfDay(judged_at) AS period, project, toStartOfMinute(timestamp) AS bucket, count() AS visits, sum(cost) AS cost FROM sluice.edge_logs WHERE status_code < 500 GROUP BY period, project, bucket' },
  { name: 'visits_1h_v2_mv', select: 'SELECT period, project, toStartOfHour(m.bucket) AS bucket, sum(m.visits) AS visits, sum(m.cost) AS cost FROM sluice.visits_1m_v2 AS m GROUP BY period, project, bucket' },
];
const columns = ['visits_1m_v2', 'visits_1h_v2'].flatMap((table) => [
  { table, name: 'period', type: "DateTime('UTC')" },
  { table, name: 'project', type: 'String' },
  { table, name: 'bucket', type: "DateTime('UTC')" },
  { table, name: 'visits', type: 'SimpleAggregateFunction(sum, UInt64)' },
  { table, name: 'cost', type: 'SimpleAggregateFunction(sum, Float64)' },
]);
const shape = shapeOf(rollup, views, columns);
const [minutes, hours] = [shape.tiers[0]!, shape.tiers[1]!];

describe('what is made of the views', () => {
  test('tiers know what they read and what has to be equal', () => {
    expect([minutes.from, hours.from]).toEqual(['edge_logs', 'visits_1m_v2']);
    expect([minutes.width, hours.width]).toEqual([60, 3600]);
    expect(minutes.columns.map((c) => c.kind)).toEqual(['key', 'key', 'key', 'exact', 'sum']);
    expect(shapeOf(rollup, views, columns.map((c) => (c.name === 'cost' ? { ...c, type: 'AggregateFunction(quantilesTDigest(0.95), Nullable(Float64))' } : c))).tiers[0]!.columns.at(-1)?.kind).toBe('state');
    expect(shapeOf(rollup, views, columns.map((c) => (c.name === 'cost' ? { ...c, type: 'SimpleAggregateFunction(max, Nullable(Float64))' } : c))).tiers[0]!.columns.at(-1)).toMatchObject({ kind: 'exact', merge: 'max', nullable: true });
  });

  test('a view reads something else in the place of its table', () => {
    expect(madeFrom(minutes, '(SELECT * FROM edge_logs WHERE x)')).toBe(
      'SELECT period, project, bucket, visits, cost FROM (SELECT toStartOfDay(judged_at) AS period, project, toStartOfMinute(timestamp) AS bucket, count() AS visits, sum(cost) AS cost FROM (SELECT * FROM edge_logs WHERE x) WHERE status_code < 500 GROUP BY period, project, bucket)');
    expect(madeFromRaw(shape, hours, 'x')).toContain('FROM (SELECT period, project, bucket, visits, cost FROM (SELECT toStartOfDay');
    expect(fill(minutes, 't', 'y')).toMatch(/^INSERT INTO t \(period, project, bucket, visits, cost\) SELECT /);
  });

  test('queries get the raw table before the border, and only the table without one', () => {
    expect(publicView(shape, minutes, 0, 'c')).toBe("CREATE OR REPLACE VIEW visits_1m AS (SELECT period, project, bucket, visits, cost FROM visits_1m_v2) COMMENT 'c'");
    expect(publicView(shape, hours, 7200, 'c')).toMatch(/WHERE bucket >= toDateTime\(7200, 'UTC'\) UNION ALL SELECT .* WHERE timestamp < toDateTime64\(7200, 6, 'UTC'\)/);
  });

  test('an older version gives the columns that both have', () => {
    const older = { ...minutes, stored: 'visits_1m_v1', columns: minutes.columns.filter((c) => c.name !== 'cost') };
    expect(carryOver(minutes, 't', older, 'c')).toBe('INSERT INTO t (period, project, bucket, visits) SELECT period, project, bucket, visits FROM visits_1m_v1 WHERE c');
  });

  test('sums of floating-point numbers are compared apart from the rest', () => {
    expect(differences(minutes, 'edge_logs', 'c')).toContain('cityHash64(period, project, bucket, visits) AS fingerprint, [cost] AS sums');
  });

  test.each([
    ['its view is missing', views.slice(1), columns],
    ['its table is missing', views, columns.filter((c) => c.table !== 'visits_1m_v2')],
    ['it has no period', views, columns.filter((c) => c.name !== 'period')],
    ['it has no time', views, columns.filter((c) => c.name !== 'bucket')],
    ['its view reads another table', views.map((v) => ({ ...v, select: v.select.replace('sluice.edge_logs', 'sluice.auth_logs') })), columns],
    ['its view reads its table twice', views.map((v) => ({ ...v, select: `${v.select} UNION ALL ${v.select}` })), columns],
  ])('a rollup is refused where %s', (_, someViews, someColumns) => {
    expect(() => shapeOf(rollup, someViews, someColumns)).toThrow(/visits version 2: visits_1m needs/);
  });
});
