import { describe, expect, it } from 'vitest';
import { holds, ofRuns, quantile } from './report.ts';

describe('a report', () => {
  it('tells whether a goal is held', () => {
    const at = { what: 'w', value: 10, unit: 'ms' };
    expect([
      holds(at),
      holds({ ...at, goal: { atMost: 10 } }),
      holds({ ...at, goal: { atMost: 9.9 } }),
      holds({ ...at, goal: { atLeast: 10 } }),
      holds({ ...at, goal: { atLeast: 10.1 } }),
      holds({ ...at, value: Number.NaN, goal: { atMost: 1 } }),
    ]).toEqual([true, true, false, true, false, false]);
  });

  it('takes quantiles by nearest rank', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
    expect([0, 0.5, 0.95, 0.99, 1].map((q) => quantile(hundred, q))).toEqual([1, 50, 95, 99, 100]);
    expect([quantile([7], 0.99), quantile([], 0.5)]).toEqual([7, Number.NaN]);
  });

  it('gives the median of several runs and how far they lie apart', () => {
    expect([ofRuns([30, 10, 20]), ofRuns([7])]).toEqual([
      { value: 20, range: { least: 10, most: 30 } },
      { value: 7, range: { least: 7, most: 7 } },
    ]);
  });
});
