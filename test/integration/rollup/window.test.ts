import { afterAll, beforeAll, expect, test } from 'vitest';
import { SEED, statement } from '../../../bench/filled.ts';
import { createPopulation } from '../../../demo/population.ts';
import { openWorld, type World } from './world.ts';

// A busy project beside thousands of quiet ones: nearly every granule begins with another project. By default the engine
// then keeps only the project in memory of each primary key, and an answer reads all that the busy project has.

const NOW = Date.parse('2028-03-01T12:34:56.789Z');
/** more do not fit into a parameter of a server: 128 KiB */
const PROJECTS = 3_000;
const ROWS = 300_000;
/** the rows are the newest twelve hours of seven days */
const TOTAL = ROWS * 14;

let world: World;
const population = createPopulation(SEED, PROJECTS, 0);
const refs = Array.from({ length: PROJECTS }, (_, rank) => population.project(rank).ref);
const busiest = refs[0]!;

beforeAll(async () => {
  world = await openWorld({ now: NOW });
  for (const table of ['edge_logs', 'function_edge_logs']) {
    await world.clickhouse.execute({
      sql: statement(`fill_${table}`),
      params: {
        ...(table === 'edge_logs' && { messages: ['{}'] }),
        refs,
        seed: SEED,
        first: TOTAL - ROWS,
        rows: ROWS,
        total: TOTAL,
        now_micros: BigInt(NOW) * 1000n,
      },
      settings: { max_execution_time: 0 },
    });
  }
  for (const table of ['edge_logs', 'function_edge_logs', 'api_requests_v1', 'function_invocations_v1'])
    await world.clickhouse.execute({ sql: `OPTIMIZE TABLE ${table} FINAL`, settings: { max_execution_time: 0 } });
}, 120_000);
afterAll(() => world.close());

test.each([
  ['functions.invocation-stats', { interval: '5min' }],
  ['functions.invocation-stats', { interval: '15min' }],
  ['functions.invocation-stats', { interval: '1hr' }],
  ['functions.invocation-stats', { interval: '7day' }],
  ['usage.api-counts', { interval: 'minutely' }],
  ['usage.api-counts', { interval: 'daily' }],
  ['logs.all', { iso_timestamp_start: new Date(NOW - 60_000).toISOString() }],
])('%s reads the window of the busiest project alone: %o', async (endpoint, given) => {
  const reads = await world.explain(endpoint, { project: busiest, ...given });
  expect(reads).not.toEqual([]);
  for (const { table, parts, marks } of reads) {
    const [all] = await world.select<{ marks: number }>(
      `SELECT toUInt32(sum(marks)) AS marks FROM system.parts WHERE active AND database = currentDatabase() AND table = '${table}'`,
    );
    expect(all!.marks).toBeGreaterThan(30);
    expect(marks, JSON.stringify(reads)).toBeLessThanOrEqual(2 * parts);
  }
});
