import { expect } from 'vitest';
import type { InvocationStats } from './oracle.ts';

type Row = Readonly<Record<string, unknown>>;

/**
 * Expects the rows of functions.invocation-stats to be those of the oracle, with quantiles within their rank bounds.
 * `what`: the question, for messages.
 */
export function expectInvocationStats(
  answer: readonly Row[],
  expected: readonly InvocationStats[],
  what?: string,
): void {
  const exact = ({ timestamp, count, error_count, min_execution_time, max_execution_time }: Row | InvocationStats) => ({
    timestamp,
    count,
    error_count,
    min_execution_time,
    max_execution_time,
  });
  expect(answer.map(exact), what).toEqual(expected.map(exact));
  answer.forEach((row, i) => {
    const right = expected[i]!;
    const [average, p95, p99] = [row['avg_execution_time'], row['p95_execution_time'], row['p99_execution_time']];
    if (right.p95 === null || right.p99 === null || right.avg_execution_time === null) {
      expect([average, p95, p99], what).toEqual([null, null, null]);
      return;
    }
    expectWithin(average, [right.avg_execution_time, right.avg_execution_time], 1e-9, what);
    // states of quantiles hold Float32
    expectWithin(p95, right.p95, 1e-6, what);
    expectWithin(p99, right.p99, 1e-6, what);
    const ordered = [right.min_execution_time!, Number(p95), Number(p99), right.max_execution_time!];
    expect(ordered, what).toEqual(ordered.toSorted((a, b) => a - b));
  });
}

function expectWithin(
  value: unknown,
  [low, high]: readonly [number, number],
  tolerance: number,
  what: string | undefined,
): void {
  expect(Number(value), what).toBeGreaterThanOrEqual(low * (1 - tolerance));
  expect(Number(value), what).toBeLessThanOrEqual(high * (1 + tolerance));
}
