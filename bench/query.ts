import { createLogger } from '../common/logger.ts';
import { createRegistry } from '../common/metrics.ts';
import { readSettings } from '../common/config/settings.ts';
import { statementFor } from '../services/query/statement/branches.ts';
import { BUILT_IN, readDefinitions } from '../services/query/definition/definition-files.ts';
import { RESERVED } from '../services/query/definition/definition.ts';
import { readParams } from '../services/query/definition/params.ts';
import { startQuery } from '../services/query/service.ts';
import { clickhouseTimestamp } from '../services/query/definition/timestamp.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openFilled, PROJECTS, SEED, statement, type Filled } from './filled.ts';
import { quantile, report, type Measurement } from './report.ts';
import { API_KEY, scrape } from './service.ts';

const EVENTS = 20_000_000;
/** of each endpoint, one project each: no answer is a cached one */
const CALLS = 400;
const RAW_CALLS = 10;
const GOAL_MS = 25;

/**
 * Uncached answers over 20 million events of 5,000 projects: time, rows and bytes read, against the same answers from
 * the raw logs.
 */
export async function benchQuery(): Promise<void> {
  const folder = temporaryFolder();
  const filled = await openFilled(folder.path, EVENTS);
  const { clickhouse, refs, now } = filled;
  const settings = readSettings({ DATA_DIR: folder.path, API_KEY, PORT: '0' });
  // `now` stands still: the answers from raw and from rollups are of the same instant
  const service = await startQuery({
    clickhouse,
    settings,
    logger: createLogger('error'),
    registry: createRegistry(),
    clock: () => now,
  });
  try {
    await service.ready;
    const ask = asker(service.address);
    const measurements: Measurement[] = [];
    const stats = (ref: string): string => `functions.invocation-stats?project=${ref}&interval=7day`;
    const counts = (ref: string): string => `usage.api-counts?project=${ref}&interval=daily`;
    // projects of every size, in turn: every 12th rank
    const some = (offset: number): string[] =>
      Array.from({ length: CALLS }, (_, i) => refs[(i * 12 + offset) % PROJECTS]!);
    for (const ref of some(11)) await ask([stats(ref), counts(ref)]);

    for (const [name, path, offset] of [
      ['functions.invocation-stats 7day', stats, 0],
      ['usage.api-counts daily', counts, 0],
    ] as const) {
      const one = await ask(some(offset).map(path));
      measurements.push(
        { what: `${name}, one caller, p50`, value: quantile(one.times, 0.5), unit: 'ms' },
        { what: `${name}, one caller, p95`, value: quantile(one.times, 0.95), unit: 'ms', goal: { atMost: GOAL_MS } },
        { what: `${name}, one caller, p99`, value: quantile(one.times, 0.99), unit: 'ms' },
        { what: `${name}, rows read`, value: one.rowsRead, unit: 'a call' },
        { what: `${name}, read`, value: one.bytesRead / 1024, unit: 'KiB a call' },
      );
      measurements.push({
        what: `${name}, of it ClickHouse's planning of the statement, p50`,
        value: await planning(filled, path(refs[0]!)),
        unit: 'ms',
      });
      const four = await ask(some(offset + 1).map(path), 4);
      measurements.push({ what: `${name}, four callers, p95`, value: quantile(four.times, 0.95), unit: 'ms' });
    }
    measurements.push(...(await fromRaw(filled, ask, counts, stats)));
    report({ bench: 'query', seed: SEED, engine: clickhouse.version, measurements });
  } finally {
    await service.stop();
    await clickhouse.close();
    folder.remove();
  }
}

/** Median milliseconds of EXPLAIN for the statement of a call: parse, analysis and plan, whatever there is to read. */
async function planning({ clickhouse, now }: Filled, call: string): Promise<number> {
  const [name = '', query] = call.split('?');
  const definition = readDefinitions([BUILT_IN]).find(name);
  if (definition === undefined) throw new Error(`there is no endpoint ${name}`);
  const read = readParams(definition, new URLSearchParams(query));
  if ('mistakes' in read) throw new Error(`${call} is wrong`);
  const params = { ...read.params, [RESERVED.now]: clickhouseTimestamp(BigInt(now) * 1000n) };
  const times: number[] = [];
  for (let i = 0; i < CALLS / 10; i++) {
    const from = performance.now();
    await clickhouse.read({
      sql: `EXPLAIN ${statementFor(definition.fragments, params)}`,
      params,
      format: 'TSV',
      fewRows: definition.fewRows,
    });
    times.push(performance.now() - from);
  }
  return quantile(times, 0.5);
}

/** The busiest project's answers from the raw logs; throws where they are not those of the rollups. */
async function fromRaw(
  { clickhouse, refs, now }: Filled,
  ask: Ask,
  counts: (ref: string) => string,
  stats: (ref: string) => string,
): Promise<Measurement[]> {
  const ref = refs[0]!;
  // a pattern that matches what the reference matches, and is no literal reference
  const scan = await ask(
    Array.from({ length: RAW_CALLS }, (_, i) => counts(encodeURIComponent(`(${ref}){1,${i + 1}}`))),
  );
  const rollup = await ask([counts(ref), stats(ref)]);
  if (scan.bodies.some((body) => body !== rollup.bodies[0]))
    throw new Error('usage.api-counts: the rollups and the raw logs do not agree');

  const times: number[] = [];
  let read = { rows: 0, bytes: 0 };
  for (let i = 0; i < RAW_CALLS; i++) {
    const from = performance.now();
    const result = await clickhouse.read({
      sql: statement('invocation_stats_from_raw'),
      params: { project: ref, now_micros: BigInt(now) * 1000n },
      format: 'JSONCompact',
    });
    times.push(performance.now() - from);
    read = { rows: result.readRows ?? 0, bytes: result.readBytes ?? 0 };
    const raw = (JSON.parse(result.body.toString('utf8')) as { data: [string, number, number][] }).data.map(
      ([, count, errors]) => [count, errors],
    );
    const rows = (
      JSON.parse(rollup.bodies[1] ?? '') as { result: { count: number; error_count: number }[] }
    ).result.map((r) => [r.count, r.error_count]);
    if (JSON.stringify(raw) !== JSON.stringify(rows))
      throw new Error('functions.invocation-stats: the rollups and the raw logs do not agree');
  }
  return [
    { what: 'the busiest project: 7day from raw, p50', value: quantile(times, 0.5), unit: 'ms' },
    { what: 'the same, rows read', value: read.rows, unit: 'a call' },
    { what: 'the same, read', value: read.bytes / 1024, unit: 'KiB a call' },
    { what: 'the busiest project: daily from raw, p50', value: quantile(scan.times, 0.5), unit: 'ms' },
    { what: 'the same, rows read', value: scan.rowsRead, unit: 'a call' },
    { what: 'the same, read', value: scan.bytesRead / 1024, unit: 'KiB a call' },
  ];
}

interface Asked {
  /** milliseconds */
  readonly times: number[];
  readonly bodies: string[];
  /** on average */
  readonly rowsRead: number;
  readonly bytesRead: number;
}
type Ask = (paths: readonly string[], callers?: number) => Promise<Asked>;

/** Asks for each path once; throws unless each is a 200 that no cache had. */
function asker(address: string): Ask {
  return async (paths, callers = 1) => {
    const before = await scrape(address);
    const times: number[] = [];
    const bodies: string[] = [];
    const left = paths.entries();
    await Promise.all(
      Array.from({ length: callers }, async () => {
        for (const [i, path] of left) {
          const from = performance.now();
          const response = await fetch(`${address}/api/endpoints/${path}`, { headers: { 'x-api-key': API_KEY } });
          bodies[i] = await response.text();
          times.push(performance.now() - from);
          if (response.status !== 200) throw new Error(`${path}: ${response.status} ${bodies[i]}`);
        }
      }),
    );
    const after = await scrape(address);
    const perCall = (metric: string): number => (after(metric) - before(metric)) / paths.length;
    return {
      times,
      bodies,
      rowsRead: perCall('sluice_query_read_rows_total'),
      bytesRead: perCall('sluice_query_read_bytes_total'),
    };
  };
}
