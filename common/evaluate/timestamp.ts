/**
 * The grammar of timestamps: 10, 13, 16 or 19 digits (seconds to nanoseconds since 1970), seconds of 10 digits with
 * decimals, or a calendar date with or without a time and a zone; UTC without a zone. Nothing else is valid: lenient
 * parsers would take 10:00 for a time of today. Digits finer than microseconds are cut.
 */
const CALENDAR = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?)?(?:Z|([-+])(\d\d):?(\d\d))?$/;
const LONGEST_CALENDAR = 35;
/** Date takes years below 100 for others, and the calendar repeats every 400 years. */
const CYCLE_YEARS = 400;
const CYCLE_SECONDS = 146_097 * 86_400;

/**
 * Returns unix microseconds of the digits in bytes[from, to), or NaN. Exact until the year 2255; beyond it, the result
 * is still later than that.
 */
export function digitsToMicros(bytes: Uint8Array, from: number, to: number): number {
  let micros = 0;
  let digits = 0;
  for (let i = from; i < to; i++) {
    const c = bytes[i]!;
    if (c >= 0x30 && c <= 0x39) {
      if (digits < 16) micros = micros * 10 + (c - 0x30);
      digits++;
    } else if (c !== 0x2e || i !== from + 10 || i + 1 === to) {
      return NaN;
    }
  }
  const isDecimal = to - from > digits;
  if (isDecimal ? digits <= 10 : digits !== 10 && digits !== 13 && digits !== 16 && digits !== 19) return NaN;
  for (; digits < 16; digits++) micros *= 10;
  return micros;
}

/** Returns unix microseconds of the calendar date in bytes[from, to), or NaN. No event is of the year 0. */
export function calendarToMicros(bytes: Buffer, from: number, to: number): number {
  const found = to - from > LONGEST_CALENDAR ? undefined : readCalendar(bytes.toString('latin1', from, to));
  return found === undefined || found.year === 0 ? NaN : found.seconds * 1_000_000 + found.micros;
}

/** Returns the year of a calendar date, its unix seconds and the microseconds after these. Undefined if it is none. */
export function readCalendar(text: string) {
  const match = CALENDAR.exec(text);
  if (match === null) return undefined;
  const [year, month, day, hour, minute, second, zoneHour, zoneMinute] = [1, 2, 3, 4, 5, 6, 9, 10].map((group) =>
    Number(match[group] ?? 0),
  ) as [number, number, number, number, number, number, number, number];
  const date = new Date(Date.UTC(year + CYCLE_YEARS, month - 1, day));
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  if (hour > 23 || minute > 59 || second > 59 || zoneHour > 23 || zoneMinute > 59) return undefined;
  const zone = (match[8] === '-' ? -1 : 1) * (zoneHour * 3600 + zoneMinute * 60);
  const seconds = date.getTime() / 1000 - CYCLE_SECONDS + hour * 3600 + minute * 60 + second - zone;
  return { year, seconds, micros: Number((match[7] ?? '').slice(0, 6).padEnd(6, '0')) };
}
