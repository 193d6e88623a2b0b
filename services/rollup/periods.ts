/**
 * Periods of stamps: the partitions of a rollup. A batch belongs to the period in which it was judged, whatever the times of its events, so a period
 * that has ended gets nothing more and can be compared with the raw table, or built anew from it, while events flow.
 * All times are unix seconds, UTC.
 */
export interface Period {
  readonly start: number;
  /** exclusive */
  readonly end: number;
}

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86_400;

/** Events may lie this far ahead of the moment at which they are judged (timestamp_out_of_range of the mapping SQL). */
const AHEAD = HOUR;

export const floorTo = (time: number, width: number): number => Math.floor(time / width) * width;
export const ceilTo = (time: number, width: number): number => Math.ceil(time / width) * width;

/** The period that a stamp belongs to: it begins at the midnight or the cut right before it, as the views compute it. */
export function periodOf(stamp: number, cuts: readonly number[]): Period {
  const midnight = floorTo(stamp, DAY);
  let start = midnight;
  let end = midnight + DAY;
  for (const cut of cuts) {
    if (cut <= stamp) start = Math.max(start, cut);
    else end = Math.min(end, cut);
  }
  return { start, end };
}

/** All periods with stamps in [from, to), newest first. */
export function periodsBetween(from: number, to: number, cuts: readonly number[]): Period[] {
  const periods: Period[] = [];
  for (let end = to; end > from;) {
    const period = periodOf(end - 1, cuts);
    periods.push(period);
    end = period.start;
  }
  return periods;
}

/** Event time from which a rollup equals the raw table when it holds every batch judged at `stamp` or later; a whole hour. */
export function coveredFrom(stamp: number): number {
  return ceilTo(stamp + AHEAD, HOUR);
}

/** The earliest moment at which an event of this time can have been judged. */
export function earliestStamp(eventTime: number): number {
  return eventTime - AHEAD;
}

/** True when no event of the period's partition can be younger than the retention. */
export function isExpired(periodStart: number, retentionDays: number, now: number): boolean {
  return periodStart + DAY + AHEAD + retentionDays * DAY <= now;
}

/** ClickHouse's id of a partition by period. */
export const partitionId = ({ start }: Period): string => String(start);
