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

/** A time, and what the notations leave open: digits finer than microseconds, the zone in minutes. */
interface Moment {
  readonly micros: number;
  readonly recordMillis: number;
  readonly finer: string;
  readonly offset: number;
}

const text = (value: string, micros: number): WrittenTimestamp => ({ json: `"${value}"`, micros });
const number = (json: string, micros: number): WrittenTimestamp => ({ json, micros });
const decimal = (micros: number): string => `${Math.floor(micros / SECOND)}.${digits(micros % SECOND, 6)}`;

/** `+05:30`; between hours and minutes stands the separator */
function zone(offset: number, separator: string): string {
  const minutes = Math.abs(offset);
  return `${offset < 0 ? '-' : '+'}${digits(Math.floor(minutes / 60), 2)}${separator}${digits(minutes % 60, 2)}`;
}

/**
 * The notations in which an event's `timestamp` may be written, and what each of them says exactly.
 * Time is unix microseconds (safe integers: until the year 2255).
 */
const writers = {
  seconds: ({ micros }) => number(String(Math.floor(micros / SECOND)), floorTo(micros, SECOND)),
  seconds_text: ({ micros }) => text(String(Math.floor(micros / SECOND)), floorTo(micros, SECOND)),
  milliseconds: ({ micros }) => number(String(Math.floor(micros / 1000)), floorTo(micros, 1000)),
  milliseconds_text: ({ micros }) => text(String(Math.floor(micros / 1000)), floorTo(micros, 1000)),
  microseconds: ({ micros }) => number(String(micros), micros),
  microseconds_text: ({ micros }) => text(String(micros), micros),
  nanoseconds: ({ micros, finer }) => number(String(micros) + finer, micros),
  nanoseconds_text: ({ micros, finer }) => text(String(micros) + finer, micros),
  decimal_seconds: ({ micros }) => number(decimal(micros), micros),
  decimal_seconds_text: ({ micros }) => text(decimal(micros), micros),
  utc: ({ micros }) => text(`${isoMicros(micros)}Z`, micros),
  utc_seconds: ({ micros }) => text(`${isoSeconds(micros)}Z`, floorTo(micros, SECOND)),
  utc_minutes: ({ micros }) => text(`${isoMillis(micros).slice(0, 16)}Z`, floorTo(micros, MINUTE)),
  utc_bare_point: ({ micros }) => text(`${isoSeconds(micros)}.Z`, floorTo(micros, SECOND)),
  utc_tenths: ({ micros }) => text(`${isoMillis(micros).slice(0, 21)}Z`, floorTo(micros, 100_000)),
  utc_nanoseconds: ({ micros, finer }) => text(`${isoMicros(micros)}${finer}Z`, micros),
  blank: ({ micros }) => text(`${isoMicros(micros).replace('T', ' ')}Z`, micros),
  blank_without_zone: ({ micros }) => text(isoMillis(micros).replace('T', ' '), floorTo(micros, 1000)),
  without_zone: ({ micros }) => text(isoMicros(micros), micros),
  offset: ({ micros, offset }) => text(isoMicros(micros + offset * MINUTE) + zone(offset, ':'), micros),
  offset_compact: ({ micros, offset }) => text(isoMicros(micros + offset * MINUTE) + zone(offset, ''), micros),
  date: ({ micros }) => text(isoMillis(micros).slice(0, 10), floorTo(micros, DAY)),
  date_utc: ({ micros }) => text(`${isoMillis(micros).slice(0, 10)}Z`, floorTo(micros, DAY)),
  date_offset: ({ micros, offset }) => {
    const local = micros + offset * MINUTE;
    return text(isoMillis(local).slice(0, 10) + zone(offset, ':'), floorTo(local, DAY) - offset * MINUTE);
  },
  absent: ({ recordMillis }) => ({ json: undefined, micros: recordMillis * 1000 }),
  null: ({ recordMillis }) => ({ json: 'null', micros: recordMillis * 1000 }),
} as const satisfies Readonly<Record<string, (at: Moment) => WrittenTimestamp>>;
export type Notation = keyof typeof writers;
export const notations = Object.keys(writers) as readonly Notation[];

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
  return writers[notation]({
    micros,
    recordMillis,
    finer: digits(vary % 1000, 3),
    offset: OFFSETS[vary % OFFSETS.length] as number,
  });
}
