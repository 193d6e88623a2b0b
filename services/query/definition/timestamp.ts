import { readCalendar } from '../../../common/evaluate/timestamp.ts';

/**
 * Timestamps as callers write them: the calendar dates of events, and one more form. A blank between a complete
 * `hh:mm:ss[.f]` and `hh:mm` is the `+` that a caller forgot to encode.
 */
const forgottenPlus = /^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{0,9})?) (\d\d:\d\d)$/;

const MICROS = 1_000_000n;
/**
 * The range of a Date, which partitions the tables: ClickHouse 25.8 finds no partition if a bound's day is beyond it.
 * Nothing outside is ever stored, so clamping a bound changes no answer.
 */
const EARLIEST = 0n;
const LATEST = BigInt(Date.UTC(2149, 5, 6, 23, 59, 59)) * 1000n + 999_999n;

/** Returns unix microseconds. Undefined if the text is none of the notations. */
export function parseTimestamp(text: string): bigint | undefined {
  const found = readCalendar(text.replace(forgottenPlus, '$1+$2'));
  return found && BigInt(found.seconds) * MICROS + BigInt(found.micros);
}

/** Returns `2026-03-01 09:00:00.000000`, as ClickHouse reads a DateTime64(6, 'UTC'), clamped to EARLIEST and LATEST. */
export function clickhouseTimestamp(micros: bigint): string {
  const clamped = micros < EARLIEST ? EARLIEST : micros > LATEST ? LATEST : micros;
  const fraction = clamped % MICROS;
  const iso = new Date(Number((clamped - fraction) / 1000n)).toISOString();
  return `${iso.slice(0, 10)} ${iso.slice(11, 19)}.${String(fraction).padStart(6, '0')}`;
}

/** Returns unix microseconds as decimal text for a Date, DateTime or DateTime64 that ClickHouse printed in UTC. */
export function unixMicroseconds(printed: string): string {
  const micros = parseTimestamp(printed);
  if (micros === undefined) throw new Error(`not a timestamp of ClickHouse: ${printed}`);
  return String(micros);
}
