import type { Clock } from '../../../common/clock.ts';

export interface Clocks {
  readonly clock: Clock;
  /** the time by ClickHouse, unix milliseconds */
  readonly engineClock: () => Promise<number>;
}

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86_400;

export const floorTo = (time: number, width: number): number => Math.floor(time / width) * width;
export const ceilTo = (time: number, width: number): number => Math.ceil(time / width) * width;

/**
 * Returns unix seconds by whichever clock is behind, ours or ClickHouse's. What cannot be undone goes by it: a clock
 * that is ahead for a moment must drop nothing.
 */
export async function agreedNow({ clock, engineClock }: Clocks): Promise<number> {
  return Math.floor(Math.min(clock(), await engineClock()) / 1000);
}

/** Returns unix seconds as text, for log lines and messages. */
export const isoTime = (seconds: number): string => new Date(seconds * 1000).toISOString();
