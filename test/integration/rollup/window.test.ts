import { afterAll, beforeAll, expect, test } from 'vitest';
import { fill, SEED } from '../../../bench/filled.ts';
import { sources } from '../../../common/sources.ts';
import { createPopulation } from '../../../demo/population.ts';
import { openWorld, type World } from './world.ts';

// A busy project beside thousands of quiet ones: nearly every granule begins with another project. By default the engine
// then keeps only the project of each primary key in memory, and an answer reads all that the busy project has.

const NOW = Date.parse('2028-03-01T12:34:56.789Z');
/** Their references are one parameter, of which a ClickHouse server takes at most 128 KiB. */
const PROJECTS = 3_000;
const ROWS = 300_000;
/** the rows are the newest twelve hours of seven days */
const TOTAL = ROWS * 14;

const FILLED = ['edge_logs', 'function_edge_logs'] as const;
/** raw tables that no endpoint reads; only callers' own statements do */
const OTHERS = sources.map((s) => s.name).filter((name) => !(FILLED as readonly string[]).includes(name));

let world: World;
const population = createPopulation(SEED, PROJECTS, 0);
const refs = Array.from({ length: PROJECTS }, (_, rank) => population.project(rank).ref);
const busiest = refs[0]!;

beforeAll(async () => {
  world = await openWorld({ now: NOW });
  for (const table of FILLED)
    await fill(world.clickhouse, table, {
      refs,
      now: NOW,
      total: TOTAL,
      first: TOTAL - ROWS,
      rows: ROWS,
      messages: ['{}'],
    });
  for (const table of OTHERS)
    await world.clickhouse.execute({
      sql: `INSERT INTO ${table} (project, timestamp, id) SELECT project, timestamp, id FROM edge_logs`,
    });
  for (const table of [...FILLED, ...OTHERS, 'api_requests_v1', 'function_invocations_v1'])
    await world.clickhouse.execute({ sql: `OPTIMIZE TABLE ${table} FINAL` });
}, 120_000);
afterAll(() => world.close());

type Reads = readonly { readonly table: string; readonly parts: number; readonly marks: number }[];

/** The reads that take more than two granules of a part, or that are of a table too small to tell. */
async function wide(reads: Reads): Promise<Reads> {
  const found: Reads[number][] = [];
  for (const read of reads) {
    const [all] = await world.select<{ marks: number }>(
      `SELECT sum(marks) AS marks FROM system.parts WHERE active AND database = currentDatabase() AND table = '${read.table}'`,
    );
    if (all!.marks <= 30 || read.marks > 2 * read.parts) found.push(read);
  }
  return found;
}

test.each([
  ['functions.invocation-stats', { interval: '5min' }],
  ['functions.invocation-stats', { interval: '15min' }],
  ['functions.invocation-stats', { interval: '1hr' }],
  ['functions.invocation-stats', { interval: '7day' }],
  ['usage.api-counts', { interval: 'minutely' }],
  ['usage.api-counts', { interval: 'daily' }],
  ['logs.all', { iso_timestamp_start: new Date(NOW - 60_000).toISOString() }],
])('of the busiest project, %s reads only the window: %o', async (endpoint, given) => {
  const reads = await world.explain(endpoint, { project: busiest, ...given });
  expect(reads).not.toEqual([]);
  expect(await wide(reads)).toEqual([]);
});

test.each(OTHERS)('of the busiest project, a minute of %s is read alone', async (table) => {
  const reads = await world.select<Reads[number]>(
    `EXPLAIN ESTIMATE SELECT message FROM ${table} WHERE project = '${busiest}' AND timestamp >= fromUnixTimestamp64Milli(${NOW - 60_000}, 'UTC')`,
  );
  expect(reads).not.toEqual([]);
  expect(await wide(reads)).toEqual([]);
});
