import { openTestClickHouse } from '../test/harness/clickhouse.ts';
import { select } from '../common/clickhouse/clickhouse.ts';
import { statement } from './filled.ts';
import { report, type Measurement } from './report.ts';

const PROJECTS = [100, 1_000, 10_000, 100_000, 1_000_000];
const REQUESTS_A_DAY = 800_000_000;
const INVOCATIONS_A_DAY = 200_000_000;
/** every sixth project is made: its rows are a sixth of all */
const SAMPLE = 6;
const FROM = Date.parse('2026-03-08T12:00:00Z') / 1000;
const SOURCES = { scale_requests: REQUESTS_A_DAY, scale_invocations: INVOCATIONS_A_DAY } as const;
const TABLES = ['api_requests', 'function_invocations'];

/**
 * Rows and bytes of each rollup at 10^9 events a day, by the number of projects: an hour of it through the real views,
 * merged as two hours later, times 24 but for buckets of days.
 */
export async function benchScale(): Promise<void> {
  const measurements: Measurement[] = [];
  for (const projects of PROJECTS) {
    const engine = await openTestClickHouse();
    try {
      const { clickhouse } = engine;
      for (const [name, aDay] of Object.entries(SOURCES)) {
        await clickhouse.execute({
          sql: statement(name),
          params: { projects, events: Math.round(aDay / 24), from: FROM },
          settings: {
            max_execution_time: 0,
            max_insert_threads: 1,
            min_insert_block_size_rows: 500_000,
            insert_deduplicate: 0,
          },
        });
      }
      for (const table of TABLES) {
        await clickhouse.execute({ sql: `OPTIMIZE TABLE ${table}_v1 FINAL` });
        const [held] = await select<{ n: number; bytes: number }>(
          clickhouse,
          `SELECT toFloat64(sum(rows)) AS n, toFloat64(sum(bytes_on_disk)) AS bytes FROM system.parts WHERE database = currentDatabase() AND active AND table = '${table}_v1'`,
        );
        const [day] = await select<{ n: number }>(
          clickhouse,
          `SELECT toFloat64(sum(if(width = 86400, 1, 24))) AS n FROM ${table}_v1`,
        );
        const rows = day!.n * SAMPLE;
        measurements.push(
          { what: `${projects} projects, ${table}`, value: rows / 1e6, unit: 'million rows a day' },
          { what: `${projects} projects, ${table}, a row`, value: held!.bytes / held!.n, unit: 'bytes' },
        );
      }
    } finally {
      await engine.close();
    }
  }
  report({ bench: 'scale', measurements });
}
