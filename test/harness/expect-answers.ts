import { expect } from 'vitest';
import type { InvocationStats } from './oracle.ts';

type Row = Readonly<Record<string, unknown>>;

/** Expects the rows of functions.invocation-stats to be those of the oracle, with quantiles within their rank bounds. */
export function expectInvocationStats(answer: readonly Row[], expected: readonly InvocationStats[]): void {
  const exact = ({ timestamp, count, error_count, min_execution_time, max_execution_time }: Row | InvocationStats) => ({
    timestamp,
    count,
    error_count,
    min_execution_time,
    max_execution_time,
  });
  expect(answer.map(exact)).toEqual(expected.map(exact));
  answer.forEach((row, i) => {
    const right = expected[i]!;
    if (right.p95 === null || right.p99 === null || right.avg_execution_time === null) {
      expect([row['avg_execution_time'], row['p95_execution_time'], row['p99_execution_time']]).toEqual([
        null,
        null,
        null,
      ]);
      return;
    }
    expect(Number(row['avg_execution_time'])).toBeCloseTo(right.avg_execution_time, 6);
    expectWithin(row['p95_execution_time'], right.p95);
    expectWithin(row['p99_execution_time'], right.p99);
    expect(Number(row['p95_execution_time'])).toBeLessThanOrEqual(Number(row['p99_execution_time']));
    expect(Number(row['p99_execution_time'])).toBeLessThanOrEqual(right.max_execution_time!);
    expect(Number(row['p95_execution_time'])).toBeGreaterThanOrEqual(right.min_execution_time!);
  });
}

function expectWithin(value: unknown, [low, high]: readonly [number, number]): void {
  expect(Number(value)).toBeGreaterThanOrEqual(low * (1 - 1e-6));
  expect(Number(value)).toBeLessThanOrEqual(high * (1 + 1e-6));
}
