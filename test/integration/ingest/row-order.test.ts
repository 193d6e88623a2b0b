import { afterAll, beforeAll, expect, test } from 'vitest';
import { rows, select } from '../../../common/clickhouse/clickhouse.ts';
import { sources } from '../../../common/sources.ts';
import { createTraffic } from '../../../demo/traffic.ts';
import { rawInsert } from '../../../services/ingest/evaluate/raw-rows.ts';
import { EVALUATED_AT, evaluated } from '../../evaluate/outcomes.ts';
import { openTestClickHouse, type TestClickHouse } from '../../harness/clickhouse.ts';
import { readNative } from '../../harness/native-reader.ts';

let engine: TestClickHouse;
beforeAll(async () => {
  engine = await openTestClickHouse();
});
afterAll(async () => engine.close());

test.each(sources.map(({ name }) => name))(
  'a batch of %s has its rows as the table sorts them, so the engine need not sort them',
  async (source) => {
    const traffic = createTraffic({ seed: 5, projects: 40, functionsPerProject: 3, shares: { [source]: 1 } });
    // several of one moment
    const events = Array.from(
      { length: 1_000 },
      (_, i) => traffic.next((EVALUATED_AT - Math.floor((i * 7) / 4)) * 1000).json,
    );
    const batch = await evaluated(source, source, events);
    const inserted = readNative(rawInsert([batch.rows]).pieces).map((row) => String(row['kafka_offset']));
    expect(inserted).toHaveLength(events.length);
    await engine.clickhouse.insertRows(rawInsert([batch.rows]));
    const [key] = await select<{ sorting_key: string }>(
      engine.clickhouse,
      'SELECT sorting_key FROM system.tables WHERE database = currentDatabase() AND name = {source:String}',
      { source },
    );
    const stored = rows<{ offset: string }>(
      await engine.clickhouse.read({
        sql: `SELECT toString(kafka_offset) AS offset FROM ${source} ORDER BY ${key!.sorting_key}`,
        format: 'JSONEachRow',
      }),
    );
    expect(inserted).toEqual(stored.map(({ offset }) => offset));
  },
);
