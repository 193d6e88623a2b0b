import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';

// The one promise of the engine that builds rest on (services/rollup/period/build.ts): an insert stores its rows in raw
// before any of its views stores what it made of them, also where the view makes many blocks of one. Seen from outside:
// while the insert runs, whoever finds rows of a view finds all rows of raw.

describe('an insert stores raw before its views', { timeout: 120_000 }, () => {
  let engine: TestClickHouse;

  beforeAll(async () => {
    engine = await openTestClickHouse({ migrated: false });
    await engine.clickhouse.execute({
      sql: 'CREATE TABLE raw (day UInt8, k UInt32) ENGINE = MergeTree PARTITION BY day ORDER BY k SETTINGS non_replicated_deduplication_window = 10000',
    });
    await engine.clickhouse.execute({
      sql: 'CREATE TABLE made (k UInt32, c SimpleAggregateFunction(sum, UInt64)) ENGINE = AggregatingMergeTree ORDER BY k SETTINGS non_replicated_deduplication_window = 10000',
    });
  });
  afterAll(() => engine.close());

  const grouping = 'SELECT k, count() AS c FROM raw WHERE sleepEachRow(0.0001) = 0 GROUP BY k';
  const rowByRow = 'SELECT k, toUInt64(arrayJoin([1, 2])) AS c FROM raw WHERE sleepEachRow(0.0001) = 0';
  const manyBlocks = {
    min_insert_block_size_rows_for_materialized_views: 1,
    min_insert_block_size_bytes_for_materialized_views: 1,
    group_by_two_level_threshold: 1,
  };
  test.each([
    ['one block', grouping, {}],
    ['many blocks of one view', grouping, manyBlocks],
    ['views in parallel', grouping, { parallel_view_processing: 1 }],
    ['a view that does not group, one block', rowByRow, {}],
    ['a view that does not group, many blocks', rowByRow, manyBlocks],
    ['views that do not group, in parallel', rowByRow, { parallel_view_processing: 1 }],
  ])('%s', async (_, view, settings) => {
    const { clickhouse } = engine;
    for (const table of ['raw', 'made']) await clickhouse.execute({ sql: `TRUNCATE TABLE ${table}` });
    for (const name of ['made_mv', 'made_mv2']) await clickhouse.execute({ sql: `DROP VIEW IF EXISTS ${name} SYNC` });
    // both are slow: while the second one works, rows of the first could be seen without those of raw
    for (const name of ['made_mv', 'made_mv2'])
      await clickhouse.execute({ sql: `CREATE MATERIALIZED VIEW ${name} TO made AS ${view}` });
    const rows = 5_000;
    let running = true;
    const pieces = Array.from({ length: rows }, (_row, i) => {
      const row = Buffer.alloc(5);
      row.writeUInt8(i % 3);
      row.writeUInt32LE(i, 1);
      return row;
    });
    const insert = clickhouse
      .insertRows({
        table: 'raw',
        columns: ['day', 'k'],
        pieces,
        settings: {
          insert_deduplication_token: JSON.stringify([view, settings]),
          function_sleep_max_microseconds_per_block: 100_000_000,
          ...settings,
        },
      })
      .finally(() => {
        running = false;
      });
    const seen: { raw: number; made: number }[] = [];
    while (running) {
      const read = async (sql: string): Promise<number> =>
        Number((await clickhouse.read({ sql, format: 'TSV' })).body.toString());
      // the view's rows first: what is found of it by then has its rows in raw
      const made = await read('SELECT toUInt32(sum(c)) FROM made');
      seen.push({ made, raw: await read('SELECT toUInt32(count()) FROM raw') });
    }
    await insert;
    for (const { raw, made } of seen) expect(made === 0 || raw === rows, JSON.stringify({ raw, made })).toBe(true);
    // it was looked while the views worked
    expect(seen.some(({ raw, made }) => raw === rows && made === 0)).toBe(true);
  });
});
