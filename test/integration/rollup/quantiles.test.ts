import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { admitNew } from '../../../services/rollup/history.ts';
import { openWorld, type World } from './world.ts';

// p95 and p99 out of the real tables, through both tiers, against the sorted values: never further off than one per
// cent in rank, and least <= p95 <= p99 <= greatest. The alternatives that were tried: docs/quantiles.md.

const NOW = Date.parse('2026-03-08T00:00:00Z');
const MINUTES = 7 * 24 * 60;
const u = (stream: number): string => `(toFloat64(sipHash64(n, ${stream})) / 18446744073709551616)`;
const lognormal = `exp(4 + sqrt(-2 * log(${u(1)} + 1e-12)) * cos(2 * pi() * ${u(2)}))`;
const distributions: Readonly<Record<string, string>> = {
  uniform: `${u(1)} * 1000`,
  lognormal,
  bimodal: `if(${u(3)} < 0.5, 10 + ${u(1)}, 1000 + ${u(2)} * 10)`,
  constant: '42.5',
  two_values_half: `if(${u(1)} < 0.5, 1, 100)`,
  two_values_95: `if(${u(1)} < 0.95, 1, 100)`,
  two_values_99: `if(${u(1)} < 0.99, 1, 100)`,
  zero_and_huge: `if(${u(1)} < 0.97, 0, 1e15)`,
};
const counts = [1, 2, 3, 10, 100, 301, 1_000, 10_080, 100_000, 1_000_000];
const names = Object.keys(distributions);
/** of which a million values are stored too, ten seconds each: those where neighbours in rank are far apart */
const LARGE = ['lognormal', 'bimodal', 'two_values_95', 'zero_and_huge'];
/** what one test stores and asks for: few values of all functions, many of one */
const cases = counts.flatMap((count): [count: number, of: string, functions: readonly string[]][] =>
  count > 100_000
    ? LARGE.map((name) => [count, name, [name]])
    : [[count, 'all functions', [...names, ...names.map((name) => `s_${name}`)]]],
);

describe('quantiles', { timeout: 120_000 }, () => {
  let world: World;

  beforeAll(async () => {
    world = await openWorld({ now: NOW });
    await admitNew(world.context);
  });
  afterAll(() => world.close());

  /** Spread over seven days, in the order of a shuffle or (functions s_) in that of the values. */
  async function store(count: number, functions: readonly string[]): Promise<void> {
    const made = functions.map((name) => {
      const isSorted = name.startsWith('s_');
      return `
        SELECT 'p${count}' AS project, '${name}' AS function_id, toDateTime64(${NOW / 1000 - MINUTES * 60}, 6, 'UTC') + toIntervalSecond(intDiv(position * ${MINUTES * 60}, ${count})) AS timestamp, toDateTime64(timestamp, 3, 'UTC'), toStartOfDay(timestamp, 'UTC'), true, v
        FROM (SELECT toFloat64(v) AS v, ${isSorted ? 'row_number() OVER (ORDER BY v) - 1' : 'n'} AS position FROM (SELECT number AS n, ${distributions[name.replace(/^s_/, '')]!} AS v FROM numbers(${count})))`;
    });
    // few values together: each statement makes parts in every period
    for (const selects of count > 10_080 ? made : [made.join(' UNION ALL ')]) {
      await world.clickhouse.execute({
        sql: `INSERT INTO function_edge_logs (project, function_id, timestamp, evaluated_at, period, is_invocation, execution_time_ms) ${selects}`,
        settings: { max_partitions_per_insert_block: 0, max_execution_time: 0 },
      });
    }
  }

  test.each(cases)('of %i values over seven days, %s', async (count, _, functions) => {
    await store(count, functions);
    for (const name of functions) {
      // all of them, as states of minutes, of hours and of days; and what the endpoint says of each day
      const found = await world.select<{
        width: number;
        p: [number, number];
        states: number;
        within: [number, number];
      }>(`
        WITH
          (SELECT arraySort(groupArray(assumeNotNull(execution_time_ms))) FROM function_edge_logs WHERE project = 'p${count}' AND function_id = '${name}') AS sorted
        SELECT
          width,
          arrayMap(p -> least(greatest(p, sorted[1]), sorted[-1]), quantilesTDigestMerge(0.95, 0.99)(execution_quantiles)) AS p,
          toUInt32(count()) AS states,
          [p[1] >= sorted[greatest(1, toUInt32(floor(0.94 * ${count})))] * (1 - 1e-6) AND p[1] <= sorted[least(${count}, toUInt32(ceil(0.96 * ${count})) + 1)] * (1 + 1e-6),
           p[2] >= sorted[greatest(1, toUInt32(floor(0.98 * ${count})))] * (1 - 1e-6) AND p[2] <= sorted[${count}] * (1 + 1e-6)] AS within
        FROM function_invocations_v1 WHERE width IN (60, 3600, 86400) AND project = 'p${count}' AND function_id = '${name}'
        GROUP BY width ORDER BY width`);
      expect(found.map((row) => row.width)).toEqual([60, 3600, 86_400]);
      for (const row of found) {
        expect(row.within, `${name} ${JSON.stringify(row)}`).toEqual([1, 1]);
        expect(row.states).toBeLessThanOrEqual({ 60: MINUTES, 3600: 168, 86_400: 8 }[row.width]!);
      }
      const days = await world.ask('functions.invocation-stats', {
        project: `p${count}`,
        function_id: name,
        interval: '7day',
      });
      expect(days.reduce((sum, day) => sum + Number(day['count']), 0)).toBe(count);
      for (const {
        count: n,
        min_execution_time: min,
        p95_execution_time: p95,
        p99_execution_time: p99,
        max_execution_time: max,
      } of days as Record<string, number>[]) {
        expect(n === 0 || (min! <= p95! && p95! <= p99! && p99! <= max!), `${name} ${min} ${p95} ${p99} ${max}`).toBe(
          true,
        );
      }
    }
  });

  test('10,080 states of minutes are merged', async () => {
    await store(2 * MINUTES, ['uniform']);
    const [row] = await world.select<{ states: number }>(
      `SELECT toUInt32(max(states)) AS states FROM (SELECT count() AS states FROM function_invocations_v1 FINAL WHERE width = 60 AND project = 'p${2 * MINUTES}' GROUP BY function_id)`,
    );
    expect(row!.states).toBe(MINUTES);
  });
});
