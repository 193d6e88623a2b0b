import type { Curve } from '../chart.ts';

export type Row = Readonly<Record<string, unknown>>;

interface Answered {
  readonly times: readonly number[];
  readonly curves: readonly Curve[];
  readonly isStacked: boolean;
  readonly unit: string;
  readonly rightUnit: string | undefined;
}

const TIME = 'timestamp';
const COUNT = /(^|_)(count|counts|total|requests|errors|rows|events|n)(_|$)/;
const LENGTH = /(_time|_ms|_seconds|duration|latency)$/;
const BAD = /error|fail/;
/** Of the durations only these are drawn; the table shows the others. */
const CHOSEN = /^p\d+/;

/**
 * Returns the rows of an answer as a series: a column `timestamp` in order, and numbers beside it. Undefined if they
 * are none. Counts become bars, parts of the same kind (total_*) are stacked, and durations become lines on the second
 * axis, in milliseconds.
 */
export function seriesOf(rows: readonly Row[]): Answered | undefined {
  const first = rows[0];
  if (first === undefined || !(TIME in first)) return undefined;
  const times = rows.map((row) => secondsOf(row[TIME]));
  if (times.some((t, i) => t === undefined || (i > 0 && t <= (times[i - 1] ?? 0)))) return undefined;
  const numeric = Object.keys(first).filter(
    (name) =>
      name !== TIME &&
      rows.every((row) => row[name] === null || typeof row[name] === 'number') &&
      rows.some((row) => typeof row[name] === 'number' || isMeasure(name)),
  );
  if (numeric.length === 0) return undefined;
  const parts = numeric.filter((name) => name.startsWith('total_'));
  const isStacked = parts.length > 1;
  const counts = isStacked ? parts : numeric.filter((name) => COUNT.test(name) && !LENGTH.test(name));
  const lengths = numeric.filter((name) => LENGTH.test(name));
  const chosen = lengths.filter((name) => CHOSEN.test(name));
  const lines = chosen.length > 0 ? chosen : lengths;
  const others = numeric.filter((name) => !counts.includes(name) && !lengths.includes(name));
  const valuesOf = (name: string, factor = 1): (number | null)[] =>
    rows.map((row) => (typeof row[name] === 'number' ? row[name] * factor : null));
  const left = counts.length > 0 ? counts : others;
  const bad = left.filter((name) => BAD.test(name));
  const curves: Curve[] = [
    ...left.map((name): Curve => ({
      label: name,
      values: valuesOf(name),
      shape: counts.length > 0 ? 'bar' : 'line',
      ...(bad.length === 1 && name === bad[0] && { color: 'bad' as const }),
    })),
    ...lines.map((name, i): Curve => ({
      label: name,
      values: valuesOf(name, name.endsWith('_seconds') ? 1000 : 1),
      shape: 'line',
      isRight: left.length > 0,
      color: left.length + i + 1,
    })),
  ];
  return {
    times: times as number[],
    curves,
    isStacked,
    unit: left.length > 0 ? 'per bucket' : 'milliseconds',
    rightUnit: left.length > 0 && lines.length > 0 ? 'milliseconds' : undefined,
  };
}

const isMeasure = (name: string): boolean => COUNT.test(name) || LENGTH.test(name);

/** Parses unix microseconds, or `2026-03-01T09:00:00` in UTC. */
export function secondsOf(value: unknown): number | undefined {
  if (typeof value === 'number' && value > 1e14) return value / 1e6;
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(value)) return undefined;
  const ms = Date.parse(/Z|[+-]\d\d:?\d\d$/.test(value) ? value : `${value.replace(' ', 'T')}Z`);
  return Number.isNaN(ms) ? undefined : ms / 1000;
}

const MAX_BUCKETS = 2_000;

/**
 * Adds the buckets that an answer omits because they are empty: their counts are 0. Only if all distances are multiples
 * of the smallest one.
 */
export function withEmptyBuckets({ times, curves, ...more }: Answered): Answered {
  const distances = times.slice(1).map((t, i) => t - (times[i] ?? 0));
  const step = Math.min(...distances);
  const [first, last] = [times[0], times.at(-1)];
  if (
    first === undefined ||
    last === undefined ||
    !Number.isFinite(step) ||
    distances.some((d) => d % step !== 0) ||
    (last - first) / step >= MAX_BUCKETS
  )
    return { times, curves, ...more };
  const all = Array.from({ length: (last - first) / step + 1 }, (_, i) => first + i * step);
  const index = new Map(times.map((t, i) => [t, i]));
  const valueAt = (curve: Curve, t: number): number | null => {
    const i = index.get(t);
    return i === undefined ? (curve.shape === 'bar' ? 0 : null) : (curve.values[i] ?? null);
  };
  return { times: all, curves: curves.map((c) => ({ ...c, values: all.map((t) => valueAt(c, t)) })), ...more };
}
