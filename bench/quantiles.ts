import { select, type ClickHouse } from '../common/clickhouse/clickhouse.ts';
import { openTestEmbedded } from '../test/harness/clickhouse.ts';

/** ClickHouse's mergeable quantile functions, as a rollup would keep them. */
const functions: Readonly<Record<string, { readonly name: string; readonly parameters: string }>> = {
  't-digest': { name: 'quantilesTDigest', parameters: '(0.95, 0.99)' },
  BFloat16: { name: 'quantilesBFloat16', parameters: '(0.95, 0.99)' },
  'DD, 1 %': { name: 'quantilesDD', parameters: '(0.01, 0.95, 0.99)' },
  'DD, 0.1 %': { name: 'quantilesDD', parameters: '(0.001, 0.95, 0.99)' },
  'GK, 200': { name: 'quantilesGK', parameters: '(200, 0.95, 0.99)' },
  'GK, 1000': { name: 'quantilesGK', parameters: '(1000, 0.95, 0.99)' },
  'reservoir, 8192': { name: 'quantiles', parameters: '(0.95, 0.99)' },
  exact: { name: 'quantilesExact', parameters: '(0.95, 0.99)' },
};
const labels = Object.keys(functions);

const u = (stream: number): string => `(toFloat64(sipHash64(number, ${stream})) / 18446744073709551616)`;
const lognormal = `exp(4 + sqrt(-2 * log(${u(1)} + 1e-12)) * cos(2 * pi() * ${u(2)}))`;
const wholeMs = `toFloat64(toUInt32(${lognormal})) + 1`;
const distributions: Readonly<Record<string, string>> = {
  uniform: `${u(1)} * 1000`,
  lognormal,
  'lognormal, whole ms': wholeMs,
  bimodal: `if(${u(3)} < 0.5, 10 + ${u(1)}, 1000 + ${u(2)} * 10)`,
  constant: '42.5',
  'two values': `if(${u(1)} < 0.5, 1, 100)`,
  'two values, 95 %': `if(${u(1)} < 0.95, 1, 100)`,
  'two values, 99 %': `if(${u(1)} < 0.99, 1, 100)`,
};
const counts = [1, 2, 3, 5, 10, 100, 301, 1_000, 10_000, 100_000, 1_000_000];
const stateCounts = [1, 60, 1_440, 10_080];
/** `mixed`: each state is a sample of all; `sorted`: each has a range of its own, as when load changes during a day. */
const orders = {
  mixed: (states: number) => `i % ${states}`,
  sorted: (states: number, n: number) => `intDiv(rank * ${states}, ${n})`,
} as const;

/** values that a function keeps as Float32 are this far off, relative */
const FLOAT32 = 1e-6;
const SIZES = [1, 10, 100, 1_000, 10_000];
const STATES = 10_080;
const MAX_VALUES = 3_000_000;

/**
 * The tables of docs/quantiles.md: of each function the rank error of p95 and p99 over the distributions, counts and
 * ways of splitting into states that a rollup meets, how often an answer leaves the bounds that callers are promised,
 * what a state takes and how long states take to merge. The values are the same at every run.
 */
export async function benchQuantiles(): Promise<void> {
  const engine = await openTestEmbedded();
  try {
    const { clickhouse } = engine;
    const worst = new Map<string, number>();
    const outside = new Map<string, number>();
    let cases = 0;
    for (const n of counts) {
      for (const [distribution, value] of Object.entries(distributions)) {
        const sorted = await makeValues(clickhouse, value, n);
        for (const states of stateCounts.filter((s) => s <= n)) {
          for (const order of ['mixed', 'sorted'] as const) {
            if (order === 'sorted' && states === 1) continue;
            const estimates = await estimate(clickhouse, orders[order](states, n));
            cases++;
            labels.forEach((label, i) => {
              // as the endpoint gives them: within the least and the greatest, and in order
              const p95 = clamp(estimates[i]![0], sorted[0]!, sorted.at(-1)!);
              const p99 = clamp(estimates[i]![1], p95, sorted.at(-1)!);
              const error = Math.max(rankError(sorted, p95, 0.95), rankError(sorted, p99, 0.99));
              const key = `${label}/${distribution}`;
              if (n >= 100) worst.set(key, Math.max(worst.get(key) ?? 0, error));
              if (!within(sorted, p95, 0.95) || !within(sorted, p99, 0.99))
                outside.set(label, (outside.get(label) ?? 0) + 1);
            });
          }
        }
      }
    }
    const percent = (error: number): string => (error === 0 ? '0' : (error * 100).toFixed(2));
    process.stdout.write(
      `Worst rank error of p95 and p99 in %, 100 values and more in 1 to ${STATES} states; answers outside the bounds, of ${cases} with 1 value and more\n\n`,
    );
    process.stdout.write(
      `| function | ${Object.keys(distributions).join(' | ')} | outside the bounds |\n|---|${'---|'.repeat(Object.keys(distributions).length + 1)}\n`,
    );
    for (const label of labels)
      process.stdout.write(
        `| ${label} | ${Object.keys(distributions)
          .map((d) => percent(worst.get(`${label}/${d}`) ?? 0))
          .join(' | ')} | ${outside.get(label) ?? 0} |\n`,
      );
    process.stdout.write(
      `\n| function | bytes of a state of ${SIZES.map((s) => s.toLocaleString('en')).join(' / ')} values, compressed | ms to merge ${STATES.toLocaleString('en')} states of 100 |\n|---|---|---|\n`,
    );
    for (const label of labels) {
      const { bytes, mergeMs } = await measure(clickhouse, functions[label]!);
      process.stdout.write(
        `| ${label} | ${bytes.map((b) => b.toLocaleString('en', { maximumFractionDigits: 0 })).join(' / ')} | ${mergeMs.toFixed(1)} |\n`,
      );
    }
  } finally {
    await engine.close();
  }
}

/** Table `elements` of n values with their place and their rank; gives them sorted. */
async function makeValues(clickhouse: ClickHouse, value: string, n: number): Promise<Float64Array> {
  await clickhouse.execute({ sql: 'DROP TABLE IF EXISTS elements SYNC' });
  await clickhouse.execute({
    sql: `CREATE TABLE elements ENGINE = Memory AS SELECT v, i, row_number() OVER (ORDER BY v) - 1 AS rank FROM (SELECT number AS i, toFloat64(${value}) AS v FROM numbers(${n}))`,
  });
  const { body } = await clickhouse.read({ sql: 'SELECT v FROM elements ORDER BY v', format: 'RowBinary' });
  return new Float64Array(body.buffer.slice(body.byteOffset, body.byteOffset + body.length) as ArrayBuffer);
}

async function estimate(clickhouse: ClickHouse, state: string): Promise<[number, number][]> {
  const of = labels.map((label) => functions[label]!);
  const sql = `SELECT [${of
    .map((f, i) => `${f.name}Merge${f.parameters}(s${i})`)
    .map((q) => `arrayMap(x -> toFloat64(x), ${q})`)
    .join(', ')}] AS estimates
    FROM (SELECT ${of.map((f, i) => `${f.name}State${f.parameters}(v) AS s${i}`).join(', ')} FROM elements GROUP BY ${state})`;
  return (await select<{ estimates: [number, number][] }>(clickhouse, sql, {}, { max_execution_time: 0 }))[0]!
    .estimates;
}

const clamp = (value: number, least: number, greatest: number): number => Math.min(Math.max(value, least), greatest);

/**
 * How far the ranks of the elements that equal the value lie from q; 0 where one of them has it. Ranks as fractions of
 * n.
 */
function rankError(sorted: Float64Array, value: number, q: number): number {
  const below = countBelow(sorted, value * (1 - FLOAT32)) / sorted.length;
  const upTo = countBelow(sorted, value * (1 + FLOAT32)) / sorted.length;
  return Math.max(0, below - q, q - upTo);
}

/** Between the elements of the ranks max(1, floor((q - 0.01) n)) and min(n, ceil((q + 0.01) n) + 1), counted from 1. */
function within(sorted: Float64Array, value: number, q: number): boolean {
  const n = sorted.length;
  const [low, high] = [
    sorted[Math.max(1, Math.floor((q - 0.01) * n)) - 1]!,
    sorted[Math.min(n, Math.ceil((q + 0.01) * n) + 1) - 1]!,
  ];
  return value >= low * (1 - FLOAT32) && value <= high * (1 + FLOAT32);
}

/** How many elements are less than the value. */
function countBelow(sorted: Float64Array, value: number): number {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle]! < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

async function measure(
  clickhouse: ClickHouse,
  { name, parameters }: { name: string; parameters: string },
): Promise<{ bytes: number[]; mergeMs: number }> {
  const bytes: number[] = [];
  for (const perState of SIZES) {
    const table = `states_${perState}`;
    await clickhouse.execute({
      sql: `CREATE TABLE ${table} (k UInt32, s AggregateFunction(${name}${parameters}, Float64) CODEC(ZSTD(1))) ENGINE = MergeTree ORDER BY k SETTINGS min_bytes_for_wide_part = 0`,
    });
    await clickhouse.execute({
      sql: `INSERT INTO ${table} SELECT intDiv(number, ${perState}) AS k, ${name}State${parameters}(${wholeMs}) FROM numbers(${Math.min(STATES, MAX_VALUES / perState) * perState}) GROUP BY k`,
    });
    const [size] = await select<{ bytes: number }>(
      clickhouse,
      `SELECT sum(column_data_compressed_bytes) / sum(rows) AS bytes FROM system.parts_columns WHERE database = currentDatabase() AND table = '${table}' AND active AND column = 's'`,
    );
    bytes.push(size!.bytes);
  }
  const one = { format: 'Null', settings: { max_threads: 1, max_execution_time: 0 } } as const;
  const floor = await least(() => clickhouse.read({ sql: 'SELECT sum(k) FROM states_100', ...one }));
  const merge = await least(() =>
    clickhouse.read({ sql: `SELECT ${name}Merge${parameters}(s) FROM states_100`, ...one }),
  );
  for (const perState of SIZES) await clickhouse.execute({ sql: `DROP TABLE states_${perState} SYNC` });
  return { bytes, mergeMs: merge - floor };
}

/** The shortest of ten runs, milliseconds; of fewer where they take seconds. */
async function least(work: () => Promise<unknown>): Promise<number> {
  const until = performance.now() + 3_000;
  let ms = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10 && (i === 0 || performance.now() < until); i++) {
    const since = performance.now();
    await work();
    ms = Math.min(ms, performance.now() - since);
  }
  return ms;
}
