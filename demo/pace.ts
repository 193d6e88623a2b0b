/** A day has its mean in the morning and in the evening, its peak in the afternoon (UTC). */
const PEAK_HOUR = 15;
/** Peak and trough are this share above and below the mean. */
const SWING = 0.55;
const DAY_MS = 86_400_000;
/** After a pause of the process (suspend, debugger) at most this much is made up for, milliseconds. */
const CATCH_UP_MS = 1_000;

/** Traffic at a time of day (unix milliseconds) in relation to the day's mean. */
export function dailyFactor(millis: number): number {
  return 1 + SWING * Math.cos(2 * Math.PI * ((millis % DAY_MS) / DAY_MS - PEAK_HOUR / 24));
}

interface Pace {
  /**
   * Times (unix microseconds) of the events that are due since the last call, evenly spread and ascending; at most
   * `limit` of them, the others are not made up for.
   */
  due(nowMillis: number, limit: number): number[];
}

/**
 * Events at a mean rate per second, with the curve of a day where wanted, beginning at a moment. Fractions of an event
 * are carried on.
 */
export function createPace(rate: number, curve: boolean, startMillis: number): Pace {
  let last = startMillis;
  let carried = 0;
  return {
    due: (now, limit) => {
      const from = Math.max(last, now - CATCH_UP_MS);
      last = Math.max(last, now);
      const span = last - from;
      const wanted = (span / 1000) * rate * (curve ? dailyFactor(now) : 1) + carried;
      const count = Math.min(limit, Math.floor(wanted));
      carried = wanted - Math.floor(wanted);
      return Array.from({ length: count }, (_, i) => Math.round((from + (span * (i + 1)) / count) * 1000));
    },
  };
}
