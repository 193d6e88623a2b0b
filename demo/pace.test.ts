import { expect, test } from 'vitest';
import { createPace, dailyFactor } from './pace.ts';

const START = 1_772_355_600_000; // 2026-03-01T09:00:00Z
const count = (rate: number, curve: boolean, from: number, seconds: number, tickMs: number): number => {
  const pace = createPace(rate, curve, from);
  let events = 0;
  for (let t = tickMs; t <= seconds * 1000; t += tickMs) events += pace.due(from + t, Infinity).length;
  return events;
};

test('over time the rate is exact, at any tick and also below one event a tick', () => {
  expect(count(100, false, START, 60, 50)).toBe(6000);
  expect(count(100, false, START, 60, 37)).toBeCloseTo(6000, -1);
  expect(count(3, false, START, 60, 50)).toBe(180);
  expect(count(50_000, false, START, 10, 50)).toBe(500_000);
});

test('events are spread over the time since the last call, ascending, none in the future', () => {
  const pace = createPace(1000, false, START);
  const times = pace.due(START + 50, Infinity);
  expect(times).toHaveLength(50);
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect(times[0]).toBeGreaterThan(START * 1000);
  expect(times.at(-1)).toBe((START + 50) * 1000);
});

test('a pause is not made up for beyond a second, nor is what does not fit the limit', () => {
  const pace = createPace(100, false, START);
  expect(pace.due(START + 3_600_000, Infinity)).toHaveLength(100);
  expect(pace.due(START + 3_601_000, 10)).toHaveLength(10);
  expect(pace.due(START + 3_601_050, Infinity)).toHaveLength(5);
});

test('a clock that goes back makes no events', () => {
  const pace = createPace(100, false, START);
  expect(pace.due(START - 5000, Infinity)).toEqual([]);
  expect(pace.due(START, Infinity)).toEqual([]);
  expect(pace.due(START + 100, Infinity)).toHaveLength(10);
});

test('a day with the curve has as many events as one without, its peak at 15:00 and its trough at 03:00 UTC', () => {
  const midnight = START - 9 * 3_600_000;
  expect(count(10, true, midnight, 86_400, 1000) / 864_000).toBeCloseTo(1, 3);
  expect(dailyFactor(midnight + 15 * 3_600_000)).toBeCloseTo(1.55);
  expect(dailyFactor(midnight + 3 * 3_600_000)).toBeCloseTo(0.45);
});
