import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { readRollups } from './catalogue.ts';
import { isoTime } from './workshop.ts';

/** For /readyz: what rollups do not hold yet, and where they differ from the raw table. Neither is a reason not to ask: what is not held comes from raw. */
export async function rollupNote(clickhouse: ClickHouse): Promise<{ readonly note: string } | undefined> {
  const notes = (await readRollups(clickhouse)).flatMap((r) => [
    ...(r.state === 'building' ? [`${r.name} version ${r.version} is being built, events from ${isoTime(r.covered_from)} on are in it`] : []),
    ...(r.state === 'serving' && r.differences > 0 ? [`${r.name} differs from the raw table in ${r.differences} minutes, from ${isoTime(r.differs_from ?? 0)} on`] : []),
  ]);
  return notes.length === 0 ? undefined : { note: notes.join('; ') };
}
