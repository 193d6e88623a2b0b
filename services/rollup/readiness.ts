import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { readRollups } from './period/catalogue.ts';
import { isoTime } from './period/time.ts';
import { readOpenRepairs } from './repairs.ts';

/** Returns for /readyz what rollups do not hold yet, and open repairs. Neither makes the service unready. */
export async function rollupNote(clickhouse: ClickHouse): Promise<{ readonly note: string } | undefined> {
  const building = (await readRollups(clickhouse)).filter((r) => r.state === 'building');
  const notes = [
    ...building.map((r) => `${r.name} version ${r.version} is building, ${r.pending.length} periods left`),
    ...(await readOpenRepairs(clickhouse)).map(
      (r) =>
        `rollups of ${r.source} await repair from ${isoTime(r.from)} to ${isoTime(r.to)}${r.outcome === '' ? '' : ` (${r.outcome})`}`,
    ),
  ];
  return notes.length === 0 ? undefined : { note: notes.join('; ') };
}
