/**
 * The notations in which an event's `timestamp` may be written, and what each of them says exactly.
 * Time is unix microseconds (safe integers: until the year 2255).
 */
export const notations = [
  'seconds',
  'seconds_text',
  'milliseconds',
  'milliseconds_text',
  'microseconds',
  'microseconds_text',
  'nanoseconds',
  'nanoseconds_text',
  'decimal_seconds',
  'decimal_seconds_text',
  'utc',
  'utc_seconds',
  'utc_minutes',
  'utc_bare_point',
  'utc_tenths',
  'utc_nanoseconds',
  'blank',
  'blank_without_zone',
  'without_zone',
  'offset',
  'offset_compact',
  'date',
  'date_utc',
  'date_offset',
  'absent',
  'null',
] as const;
export type Notation = (typeof notations)[number];

interface WrittenTimestamp {
  /** JSON of the value; undefined where the key is absent */
  readonly json: string | undefined;
  /** the instant that it says, unix microseconds: the notation may be coarser than the time it was given */
  readonly micros: number;
}

const SECOND = 1_000_000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;
/** Zones east and west, whole and half hours, minutes. */
const OFFSETS = [330, -480, 60, -210, 825, 0];

const floorTo = (micros: number, unit: number): number => Math.floor(micros / unit) * unit;
const digits = (n: number, count: number): string => String(n).padStart(count, '0');

/** `2026-03-01T09:00:00.123`, UTC, without zone */
function isoMillis(micros: number): string {
  return new Date(Math.floor(micros / 1000)).toISOString().slice(0, 23);
}

/** `2026-03-01T09:00:00.123456`, UTC, without zone */
export function isoMicros(micros: number): string {
  return isoMillis(micros) + digits(micros % 1000, 3);
}

/** `2026-03-01T09:00:00`, UTC, without zone */
export function isoSeconds(micros: number): string {
  return isoMillis(micros).slice(0, 19);
}

/**
 * Writes a time in a notation. `recordMillis` is the Kafka record's own timestamp: what an event without a timestamp
 * gets.
 * `vary` (any integer) chooses what the notation leaves open: the zone, digits finer than microseconds.
 */
export function writeTimestamp(
  notation: Notation,
  micros: number,
  recordMillis: number,
  vary: number,
): WrittenTimestamp {
  const text = (value: string, says = micros): WrittenTimestamp => ({ json: `"${value}"`, micros: says });
  const number = (value: string, says = micros): WrittenTimestamp => ({ json: value, micros: says });
  const seconds = Math.floor(micros / SECOND);
  const fraction = digits(micros % SECOND, 6);
  const finer = digits(vary % 1000, 3);
  const offset = OFFSETS[vary % OFFSETS.length] as number;
  const sign = offset < 0 ? '-' : '+';
  const hours = digits(Math.floor(Math.abs(offset) / 60), 2);
  const minutes = digits(Math.abs(offset) % 60, 2);
  const local = micros + offset * MINUTE;
  switch (notation) {
    case 'seconds':
      return number(String(seconds), seconds * SECOND);
    case 'seconds_text':
      return text(String(seconds), seconds * SECOND);
    case 'milliseconds':
      return number(String(Math.floor(micros / 1000)), floorTo(micros, 1000));
    case 'milliseconds_text':
      return text(String(Math.floor(micros / 1000)), floorTo(micros, 1000));
    case 'microseconds':
      return number(String(micros));
    case 'microseconds_text':
      return text(String(micros));
    case 'nanoseconds':
      return number(String(micros) + finer);
    case 'nanoseconds_text':
      return text(String(micros) + finer);
    case 'decimal_seconds':
      return number(`${seconds}.${fraction}`);
    case 'decimal_seconds_text':
      return text(`${seconds}.${fraction}`);
    case 'utc':
      return text(`${isoMicros(micros)}Z`);
    case 'utc_seconds':
      return text(`${isoSeconds(micros)}Z`, seconds * SECOND);
    case 'utc_minutes':
      return text(`${isoMillis(micros).slice(0, 16)}Z`, floorTo(micros, MINUTE));
    case 'utc_bare_point':
      return text(`${isoSeconds(micros)}.Z`, seconds * SECOND);
    case 'utc_tenths':
      return text(`${isoMillis(micros).slice(0, 21)}Z`, floorTo(micros, 100_000));
    case 'utc_nanoseconds':
      return text(`${isoMicros(micros)}${finer}Z`);
    case 'blank':
      return text(`${isoMicros(micros).replace('T', ' ')}Z`);
    case 'blank_without_zone':
      return text(isoMillis(micros).replace('T', ' '), floorTo(micros, 1000));
    case 'without_zone':
      return text(isoMicros(micros));
    case 'offset':
      return text(`${isoMicros(local)}${sign}${hours}:${minutes}`);
    case 'offset_compact':
      return text(`${isoMicros(local)}${sign}${hours}${minutes}`);
    case 'date':
      return text(isoMillis(micros).slice(0, 10), floorTo(micros, DAY));
    case 'date_utc':
      return text(`${isoMillis(micros).slice(0, 10)}Z`, floorTo(micros, DAY));
    case 'date_offset':
      return text(`${isoMillis(local).slice(0, 10)}${sign}${hours}:${minutes}`, floorTo(local, DAY) - offset * MINUTE);
    case 'absent':
      return { json: undefined, micros: recordMillis * 1000 };
    case 'null':
      return { json: 'null', micros: recordMillis * 1000 };
  }
}
