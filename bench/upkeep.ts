import { readSettings } from '../common/config/settings.ts';
import { readRollups } from '../services/rollup/period/catalogue.ts';
import { compareDays, createAudit } from '../services/rollup/audit.ts';
import { build } from '../services/rollup/period/build.ts';
import { DAY, floorTo, HOUR, MINUTE } from '../services/rollup/period/time.ts';
import { viewName } from '../services/rollup/period/definition.ts';
import { beginToday } from '../services/rollup/period/periods.ts';
import { naturalShares } from '../demo/traffic.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { contextOf, fill, openEmpty, SEED, untilMerged } from './filled.ts';
import { report, type Measurement } from './report.ts';
import { cpuMs } from './service.ts';

/** events of the day of each source, and the inserts in which each hour's come */
const EVENTS = 1_440_000;
const INSERTS_PER_HOUR = 60;
/** inserts by which the cost of a view is measured, and their rows */
const INSERTS = 30;
const INSERT_ROWS = 10_000;
/** a day is compared in as many nights, by default */
const NIGHTS = readSettings().ROLLUP_AUDIT_DAYS;
/** CPU of ingest for an event of the nine sources (npm run bench -- ingest), us: upkeep may take a fifth of it */
const INGEST_US = 27;

const ROLLUPS = { edge_logs: 'api_requests', function_edge_logs: 'function_invocations' } as const;
type Source = keyof typeof ROLLUPS;

/**
 * npm run bench -- upkeep: what rollups cost. A day of events comes hour by hour, and the audit compares after each hour
 * as the service does, then at night. All in us of CPU an event, merges excluded.
 */
export async function benchUpkeep(): Promise<void> {
  const found: Measurement[] = [];
  let weighted = 0;
  for (const source of Object.keys(ROLLUPS) as Source[]) {
    const { view, hours, night, built } = await ofDay(source);
    const sum = view + hours + NIGHTS * night;
    weighted += (sum * naturalShares[source]) / Object.values(naturalShares).reduce((a, b) => a + b);
    const of = (what: string, value: number): Measurement => ({
      what: `${ROLLUPS[source]}: ${what}`,
      value,
      unit: 'us of CPU an event',
    });
    found.push(
      of(`its view, within inserts of ${INSERT_ROWS} rows`, view),
      of('24 comparisons of an hour of closed minutes', hours),
      of('a day compared', night),
      of(`all of it, with ${NIGHTS} nights`, sum),
      of('a day built anew', built),
    );
  }
  found.push({
    what: 'upkeep of rollups for an event of the nine sources, in their natural shares',
    value: weighted,
    unit: 'us of CPU an event',
    goal: { atMost: INGEST_US / 5 },
  });
  report({ bench: 'upkeep', seed: SEED, measurements: found });
}

async function ofDay(source: Source): Promise<{ view: number; hours: number; night: number; built: number }> {
  const folder = temporaryFolder();
  const { clickhouse, refs } = await openEmpty(folder.path);
  const day = floorTo(Date.now() / 1000, DAY);
  // the clock of the rollup service: two minutes after the end of each hour
  let seconds = day;
  const context = contextOf(clickhouse, () => (seconds + 2 * MINUTE) * 1000);
  const micros = async (work: () => Promise<unknown>, events = EVENTS): Promise<number> => {
    const since = process.cpuUsage();
    await work();
    return (cpuMs(since) * 1_000) / events;
  };
  // `fill` spreads events over seven days; this is the last of them
  let first = EVENTS * 6;
  const insert = async (rows: number): Promise<void> => {
    const events = { refs, now: (day + DAY) * 1000, total: EVENTS * 7, first, rows, messages: ['{}'] };
    await fill(clickhouse, source, events);
    first += rows;
  };
  try {
    const rollup = (await readRollups(clickhouse)).find((r) => r.name === ROLLUPS[source])!;
    await beginToday(context);
    const audit = createAudit(context);
    let hours = 0;
    while (seconds < day + DAY) {
      for (let i = 0; i < INSERTS_PER_HOUR; i++) await insert(EVENTS / 24 / INSERTS_PER_HOUR);
      seconds += HOUR;
      await untilMerged(clickhouse);
      await beginToday(context);
      hours += await micros(async () => {
        if ((await audit()) > 0) throw new Error('the rollup differs from raw');
      });
    }
    // every batch is in the ledger, as far as builds are concerned
    await clickhouse.execute({
      sql: `INSERT INTO batches (topic, incarnation, first, last, source, period) SELECT '${source}', 1, kafka_offset, batch_last, '${source}', period FROM ${source}`,
      settings: { max_execution_time: 0, insert_deduplicate: 0 },
    });
    const night = await micros(() => compareDays(context, 1));
    const built = await micros(async () => {
      const { kind } = await build(context, rollup, day);
      if (kind !== 'built') throw new Error(`the day was not built: ${kind}`);
    });
    await untilMerged(clickhouse);
    const inserts = (): Promise<number> =>
      micros(async () => {
        first = EVENTS * 6;
        for (let i = 0; i < INSERTS; i++) await insert(INSERT_ROWS);
      }, INSERTS * INSERT_ROWS);
    await clickhouse.execute({ sql: 'SYSTEM STOP MERGES' });
    const withView = await inserts();
    await clickhouse.execute({ sql: `DROP VIEW ${viewName(rollup)} SYNC` });
    return { view: withView - (await inserts()), hours, night, built };
  } finally {
    await clickhouse.close();
    folder.remove();
  }
}
