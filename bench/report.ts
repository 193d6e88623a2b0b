import { execFileSync } from 'node:child_process';
import { cpus, loadavg, release, totalmem } from 'node:os';
import { parseArgs } from 'node:util';

/** One number of a bench, and where it has to be. */
export interface Measurement {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** of several runs, whose median is `value` */
  readonly range?: { readonly least: number; readonly most: number };
  readonly goal?: { readonly atLeast: number } | { readonly atMost: number };
}

export interface Report {
  /** `npm run bench -- <name>` */
  readonly bench: string;
  /** of the events; undefined where there are none */
  readonly seed?: number;
  /** of ClickHouse */
  readonly engine?: string;
  readonly measurements: readonly Measurement[];
}

/** Returns the options of a bench, `npm run bench -- <name> --<option> <value>`; `byDefault` has all of them. */
export function readOptions<K extends string>(byDefault: Readonly<Record<K, string>>): Record<K, string> {
  const options = Object.entries<string>(byDefault).map(
    ([name, value]) => [name, { type: 'string', default: value }] as const,
  );
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: { ...Object.fromEntries(options), json: { type: 'boolean' } },
  });
  return values as Record<K, string>;
}

/** Nearest-rank quantile. NaN without values. */
export function quantile(values: readonly number[], q: number): number {
  const ascending = values.toSorted((a, b) => a - b);
  return ascending[Math.min(ascending.length - 1, Math.max(0, Math.ceil(q * ascending.length) - 1))] ?? Number.NaN;
}

/** Three significant digits, and every digit of what is larger. */
function rounded(value: number): number {
  return Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3));
}

/** Median of some runs and how far they lie apart. */
export function ofRuns(values: readonly number[]): Pick<Measurement, 'value' | 'range'> {
  return { value: quantile(values, 0.5), range: { least: quantile(values, 0), most: quantile(values, 1) } };
}

/** What `npm run reconcile` found of the events that were sent. */
export function reconciled(
  { ok, partitions }: { readonly ok: boolean; readonly partitions: readonly { readonly stored: number }[] },
  sent: number,
): Measurement[] {
  const more = ok ? partitions.reduce((sum, { stored }) => sum + stored, 0) - sent : Number.NaN;
  return [
    {
      what: 'rows that reconcile counts, every offset accounted for once, beside what was sent',
      value: more,
      unit: 'too many',
      goal: { atMost: 0 },
    },
    { what: 'the same, missing', value: -more, unit: 'events', goal: { atMost: 0 } },
  ];
}

function shown({ value, range, unit }: Measurement): string {
  const of = (n: number): string => rounded(n).toLocaleString('en');
  return `${of(value)}${range === undefined || range.least === range.most ? '' : ` (${of(range.least)} to ${of(range.most)})`} ${unit}`.trimEnd();
}

export function holds({ value, goal }: Measurement): boolean {
  if (goal === undefined) return true;
  return 'atLeast' in goal ? value >= goal.atLeast : value <= goal.atMost;
}

function goalOf({ goal }: Measurement): string {
  if (goal === undefined) return '';
  return 'atLeast' in goal
    ? `at least ${goal.atLeast.toLocaleString('en')}`
    : `at most ${goal.atMost.toLocaleString('en')}`;
}

function commit(): string {
  const git = (...args: string[]): string =>
    execFileSync('git', args, {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  try {
    return `${git('rev-parse', '--short=12', 'HEAD')}${git('status', '--porcelain', '--untracked-files=no') === '' ? '' : ' with changes'}`;
  } catch {
    return 'unknown';
  }
}

/**
 * What the numbers depend on besides the code. `load` tells whether the machine had other work when the bench ended.
 */
function machine(): { cpu: string; cores: number; memory_gb: number; kernel: string; load: number } {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memory_gb: Math.round(totalmem() / 1e9),
    kernel: `${process.platform} ${release()} ${process.arch}`,
    load: rounded(loadavg()[0] ?? 0),
  };
}

/** Prints a table, or with --json one document; the exit code is 1 where a goal is missed. */
export function report({ bench, seed, engine, measurements }: Report): void {
  const on = machine();
  const versions = { node: process.versions.node, ...(engine !== undefined && { clickhouse: engine }) };
  const made = commit();
  if (process.argv.includes('--json')) {
    const results = measurements.map((m) => ({
      ...m,
      value: rounded(m.value),
      ...(m.range !== undefined && { range: { least: rounded(m.range.least), most: rounded(m.range.most) } }),
      holds: holds(m),
    }));
    process.stdout.write(
      `${JSON.stringify({ bench, at: new Date().toISOString(), commit: made, seed, machine: on, versions, results })}\n`,
    );
  } else {
    process.stdout.write(
      [
        '| what | measured | goal | |',
        '|---|---:|---:|---|',
        ...measurements.map(
          (m) =>
            `| ${m.what} | ${shown(m)} | ${goalOf(m)} | ${m.goal === undefined ? '' : holds(m) ? 'held' : 'MISSED'} |`,
        ),
        '',
        `${on.cores} x ${on.cpu}, ${on.memory_gb} GB, ${on.kernel}, load ${on.load}; ${Object.entries(versions)
          .map(([k, v]) => `${k} ${v}`)
          .join(', ')}; commit ${made}${seed === undefined ? '' : `; seed ${seed}`}`,
        '',
      ].join('\n'),
    );
  }
  if (!measurements.every(holds)) process.exitCode = 1;
}
