import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { coveredFrom, DAY, earliestStamp, floorTo, HOUR, isExpired, periodOf, periodsBetween } from './periods.ts';

const at = (iso: string): number => Date.parse(iso) / 1000;
const stamps = fc.integer({ min: at('2026-02-20T00:00:00Z'), max: at('2026-03-10T00:00:00Z') });
const cutLists = fc.array(stamps, { maxLength: 8 });

describe('periods', () => {
  test('begin at midnight and at cuts', () => {
    const cuts = [at('2026-03-01T10:00:00Z'), at('2026-03-01T12:30:05Z')];
    expect(periodOf(at('2026-03-01T09:59:59Z'), cuts)).toEqual({ start: at('2026-03-01T00:00:00Z'), end: at('2026-03-01T10:00:00Z') });
    expect(periodOf(at('2026-03-01T10:00:00Z'), cuts)).toEqual({ start: at('2026-03-01T10:00:00Z'), end: at('2026-03-01T12:30:05Z') });
    expect(periodOf(at('2026-03-01T23:59:59Z'), cuts)).toEqual({ start: at('2026-03-01T12:30:05Z'), end: at('2026-03-02T00:00:00Z') });
    expect(periodOf(at('2028-02-29T12:00:00Z'), cuts)).toEqual({ start: at('2028-02-29T00:00:00Z'), end: at('2028-03-01T00:00:00Z') });
  });

  test('a stamp belongs to exactly one of them', () => {
    fc.assert(fc.property(cutLists, stamps, stamps, (cuts, a, b) => {
      const [from, to] = a < b ? [a, b] : [b, a];
      const periods = periodsBetween(from, to, cuts);
      expect(periods.every((p) => p.start < p.end && p.end - p.start <= DAY)).toBe(true);
      for (let i = 1; i < periods.length; i++) expect(periods[i]!.end).toBe(periods[i - 1]!.start);
      for (const p of periods) {
        expect(periodOf(p.start, cuts)).toEqual(p);
        expect(periodOf(p.end - 1, cuts)).toEqual(p);
      }
      expect(periods.at(-1)?.start ?? from).toBeLessThanOrEqual(from);
      expect(periods[0]?.end ?? to).toBeGreaterThanOrEqual(to);
    }));
  });

  test('between two instants are those that have a stamp there, newest first', () => {
    const [midnight, cut, next] = ['2026-03-01T00:00:00Z', '2026-03-01T10:00:00Z', '2026-03-02T00:00:00Z'].map(at) as [number, number, number];
    const [morning, rest] = [{ start: midnight, end: cut }, { start: cut, end: next }];
    expect(periodsBetween(midnight, cut, [cut])).toEqual([morning]);
    expect(periodsBetween(cut, next, [cut])).toEqual([rest]);
    expect(periodsBetween(cut - 1, cut + 1, [cut])).toEqual([rest, morning]);
    expect(periodsBetween(cut, cut, [cut])).toEqual([]);
  });

  test('a later cut leaves every stamp before it where it was', () => {
    fc.assert(fc.property(cutLists, stamps, stamps, (cuts, stamp, cut) => {
      fc.pre(stamp < cut);
      expect(periodOf(stamp, [...cuts, cut]).start).toBe(periodOf(stamp, cuts).start);
    }));
  });

  test('every event at or after covered_from was judged at or after the stamp', () => {
    fc.assert(fc.property(stamps, fc.integer({ min: 0, max: 2 * DAY }), (stamp, later) => {
      const covered = coveredFrom(stamp);
      expect(floorTo(covered, HOUR)).toBe(covered);
      expect(earliestStamp(covered + later)).toBeGreaterThanOrEqual(stamp);
      // what lies an hour ahead may be judged
      expect(earliestStamp(stamp + HOUR)).toBe(stamp);
    }));
  });

  test('a partition expires when its newest possible event does', () => {
    const start = at('2026-03-01T10:00:00Z');
    const newest = start + DAY + HOUR;
    expect(isExpired(start, 30, newest + 30 * DAY - 1)).toBe(false);
    expect(isExpired(start, 30, newest + 30 * DAY)).toBe(true);
  });
});
