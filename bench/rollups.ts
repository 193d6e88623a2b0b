import { parseArgs } from 'node:util';
import { select, type StatementSettings } from '../common/clickhouse/clickhouse.ts';
import { readRollups } from '../services/rollup/period/catalogue.ts';
import { DAY, floorTo } from '../services/rollup/period/time.ts';
import { readRollupDefinition } from '../services/rollup/period/definition.ts';
import { publicView } from '../services/rollup/period/view-sql.ts';
import { statementFor } from '../services/query/statement/branches.ts';
import { BUILT_IN, readDefinitions } from '../services/query/definition/definition-files.ts';
import { readParams } from '../services/query/definition/params.ts';
import { RESULT_FORMAT, RESULT_SETTINGS } from '../services/query/render/render.ts';
import { createTraffic } from '../demo/traffic.ts';
import { temporaryFolder } from '../test/harness/clickhouse.ts';
import { openFilled, PROJECTS, SEED, type Filled } from './filled.ts';
import { quantile, report, type Measurement } from './report.ts';
import { cpuMs } from './service.ts';

const GROWTH = 5;
const CALLS = 48;
const RAW_CALLS = 8;
/** the first calls, three for each project, are not measured: V8 still compiles, and the engine fills its caches */
const WARM_UP = 24;
const GOAL_MS = 20;
const DAILY_CPU_MS = 18;
/** projects of all sizes, the busiest and the quietest among them */
const RANKS = [0, 1, 3, 10, 40, 200, 1_000, PROJECTS - 1];
const INTERVALS = {
  'functions.invocation-stats': ['5min', '15min', '1hr', '1day', '7day'],
  'usage.api-counts': ['minutely', '15min', '30min', '3hr', 'hourly', '1day', '3day', 'daily'],
} as const;
const TIERS = ['FREE', 'PRO', 'PAYG'];
const MESSAGES = 256;
type Endpoint = keyof typeof INTERVALS | 'logs.all';

/**
 * npm run bench -- rollups [--events 20000000] [--answers | --logs]: what each endpoint × interval costs from rollups
 * and from the raw logs, and the same with a fifth of the traffic. With --answers from rollups alone, at that size: for
 * a hundred million events; with --logs those of logs.all, the requests with whole messages. Statements are run as the
 * query service runs them, without HTTP and without the cache of answers.
 */
export async function benchRollups(): Promise<void> {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: {
      events: { type: 'string', default: '20000000' },
      answers: { type: 'boolean', default: false },
      logs: { type: 'boolean', default: false },
      json: { type: 'boolean' },
    },
  });
  const events = Number(values.events);
  const measurements = values.logs
    ? await withFilled(events, ofLogs, messagesOf())
    : values.answers
      ? await withFilled(events, async (filled) =>
          [...(await fromRollups(filled))].flatMap(([what, cost]) => answersOf(what, cost, GOAL_MS)),
        )
      : await besideRawAndLess(events);
  report({ bench: 'rollups', seed: SEED, measurements });
}

async function besideRawAndLess(events: number): Promise<Measurement[]> {
  const small = await withFilled(events / GROWTH, (filled) => fromRollups(filled));
  return await withFilled(events, async (filled) => {
    const tiers = await fromRollups(filled);
    const raw = await fromRaw(filled);
    const built = await whileBuilt(filled);
    const found: Measurement[] = [];
    for (const [what, cost] of tiers) {
      const fifth = small.get(what)!;
      found.push(
        ...answersOf(what, cost, GOAL_MS),
        { what: `${what}, p50 with a fifth of the traffic`, value: fifth.p50, unit: 'ms' },
        { what: `${what}, rows read with a fifth of the traffic`, value: fifth.rows, unit: 'at most' },
        { what: `${what} while one day of seven is built, p50`, value: built.get(what)!.p50, unit: 'ms' },
        { what: `${what} from raw, p50`, value: raw.get(what)!.p50, unit: 'ms' },
        { what: `${what} from raw, rows read`, value: raw.get(what)!.rows, unit: 'at most' },
      );
    }
    return found;
  });
}

/** goal: of what is answered from rollups, milliseconds */
const answersOf = (what: string, cost: Cost, goal?: number): Measurement[] => [
  { what: `${what}, p50`, value: cost.p50, unit: 'ms' },
  { what: `${what}, p95`, value: cost.p95, unit: 'ms', ...(goal !== undefined && { goal: { atMost: goal } }) },
  {
    what: `${what}, CPU`,
    value: cost.cpu,
    unit: 'ms',
    ...(what === 'usage.api-counts daily' && { goal: { atMost: DAILY_CPU_MS } }),
  },
  { what: `${what}, rows read`, value: cost.rows, unit: 'at most' },
  { what: `${what}, read`, value: cost.bytes / 1024, unit: 'KiB at most' },
];

async function withFilled<T>(
  events: number,
  work: (filled: Filled) => Promise<T>,
  messages?: readonly string[],
): Promise<T> {
  const folder = temporaryFolder();
  const filled = await openFilled(folder.path, events, messages);
  try {
    return await work(filled);
  } finally {
    await filled.clickhouse.close();
    folder.remove();
  }
}

interface Cost {
  readonly p50: number;
  readonly p95: number;
  /** of the process with its engine, milliseconds a call */
  readonly cpu: number;
  readonly rows: number;
  readonly bytes: number;
}

/** `project`: what the n-th call asks for. */
async function costs(
  filled: Filled,
  endpoint: keyof typeof INTERVALS,
  calls: number,
  project: (ref: string) => string,
  settings: StatementSettings = {},
): Promise<[string, Cost][]> {
  const found: [string, Cost][] = [];
  for (const interval of INTERVALS[endpoint])
    found.push([
      `${endpoint} ${interval}`,
      await cost(
        filled,
        endpoint,
        (n) => ({ project: project(filled.refs[RANKS[n % RANKS.length]!]!), interval }),
        calls,
        settings,
      ),
    ]);
  return found;
}

async function ofLogs(filled: Filled): Promise<Measurement[]> {
  const found: Measurement[] = [];
  for (const project_tier of TIERS)
    found.push(
      ...answersOf(
        `logs.all ${project_tier}`,
        await cost(
          filled,
          'logs.all',
          (n) => ({ project: filled.refs[RANKS[n % RANKS.length]!]!, project_tier }),
          CALLS,
        ),
      ),
    );
  return found;
}

/** Edge events of the demo. */
function messagesOf(): string[] {
  const traffic = createTraffic({ seed: SEED, projects: PROJECTS, functionsPerProject: 1 });
  return Array.from({ length: MESSAGES }, (_, i) => traffic.next(i, 'edge_logs').json);
}

async function fromRollups(filled: Filled): Promise<Map<string, Cost>> {
  return new Map([
    ...(await costs(filled, 'functions.invocation-stats', CALLS, (ref) => ref)),
    ...(await costs(filled, 'usage.api-counts', CALLS, (ref) => ref)),
  ]);
}

/**
 * A pattern that matches what the reference matches, and is none, scans. The other endpoint reads the same names
 * standing for the raw table. The engine must not remember where a condition held: intervals share their windows.
 */
async function fromRaw(filled: Filled): Promise<Map<string, Cost>> {
  const invocations = await whilePending(
    filled,
    ['function_invocations'],
    () => true,
    () => costs(filled, 'functions.invocation-stats', RAW_CALLS, (ref) => ref, UNREMEMBERED),
  );
  return new Map([...invocations, ...(await costs(filled, 'usage.api-counts', RAW_CALLS, noLiteral, UNREMEMBERED))]);
}

/** Answers while the history of one day of the seven is still to be built: its part of a window is read from raw. */
async function whileBuilt(filled: Filled): Promise<Map<string, Cost>> {
  const day = floorTo(filled.now / 1000, DAY) - 3 * DAY;
  return await whilePending(
    filled,
    ['function_invocations', 'api_requests'],
    (period) => period === day,
    () => fromRollups(filled),
  );
}

/** Runs `work` while these rollups lack these of their periods, as the rollup service publishes them. */
async function whilePending<T>(
  { clickhouse }: Filled,
  names: readonly string[],
  isPending: (period: number) => boolean,
  work: () => Promise<T>,
): Promise<T> {
  const definitions = await Promise.all(
    (await readRollups(clickhouse))
      .filter(({ name }) => names.includes(name))
      .map((rollup) => readRollupDefinition(clickhouse, rollup)),
  );
  const publish = async (pending: readonly number[]): Promise<void> => {
    for (const definition of definitions) await clickhouse.execute({ sql: publicView(definition, pending, 'bench') });
  };
  const periods = await select<{ period: number }>(
    clickhouse,
    'SELECT DISTINCT toUnixTimestamp(period) AS period FROM function_edge_logs',
  );
  await publish(periods.map((row) => row.period).filter(isPending));
  const result = await work();
  await publish([]);
  return result;
}

const UNREMEMBERED: StatementSettings = { use_query_condition_cache: 0 };

/** The same reference as a pattern that is none. */
function noLiteral(ref: string): string {
  return `[${ref[0]}]${ref.slice(1)}`;
}

async function cost(
  { clickhouse, now }: Filled,
  endpoint: Endpoint,
  given: (n: number) => Record<string, string>,
  calls: number,
  settings: StatementSettings = {},
): Promise<Cost> {
  const definition = readDefinitions([BUILT_IN]).find(endpoint)!;
  const times: number[] = [];
  let [rows, bytes] = [0, 0];
  let cpu = process.cpuUsage();
  for (let n = 0; n < WARM_UP + calls; n++) {
    const read = readParams(definition, new URLSearchParams(given(n)));
    if (!('params' in read)) throw new Error(JSON.stringify(read.mistakes));
    const params = { ...read.params, now: new Date(now).toISOString().replace('T', ' ').replace('Z', '000') };
    if (n === WARM_UP) cpu = process.cpuUsage();
    const since = performance.now();
    const result = await clickhouse.read({
      sql: statementFor(definition.fragments, params),
      params,
      format: RESULT_FORMAT,
      settings: { ...RESULT_SETTINGS, max_execution_time: 0, ...settings },
      fewRows: definition.fewRows,
    });
    if (n >= WARM_UP) times.push(performance.now() - since);
    rows = Math.max(rows, result.readRows ?? 0);
    bytes = Math.max(bytes, result.readBytes ?? 0);
  }
  return { p50: quantile(times, 0.5), p95: quantile(times, 0.95), cpu: cpuMs(cpu) / calls, rows, bytes };
}
