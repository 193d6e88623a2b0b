import type { KnownSource, SourceName } from '../sources.ts';
import {
  ABSENT,
  createScanner,
  ESCAPED,
  MAX_DEPTH,
  NULL,
  NUMBER,
  OBJECT,
  STRING,
  TOO_DEEP,
  VALID,
  type Scanner,
} from './scanner.ts';
import { calendarToMicros, digitsToMicros } from './timestamp.ts';

/** Why a raw table cannot take an event. */
type EventFault = 'malformed_json' | 'missing_project' | 'too_large' | 'bad_timestamp' | 'timestamp_out_of_range';

/** The range that an event's time must lie in, both inclusive, unix microseconds. */
export interface TimeRange {
  readonly earliest: number;
  readonly latest: number;
}

const DAY_MS = 86_400_000;
const DAY_SECONDS = 86_400;
/** how far ahead of its evaluation an event may be */
const AHEAD_MS = 3_600_000;

/** Returns the range from the raw retention before a moment (unix ms) to one hour after it. */
export function timeRangeAt(moment: number, retentionDays: number): TimeRange {
  return { earliest: (moment - retentionDays * DAY_MS) * 1000, latest: (moment + AHEAD_MS) * 1000 };
}

/**
 * Returns the least period that a row of an event at this time or later can have, both unix seconds: the start of the
 * UTC day in which the time one hour earlier lies. An event may be an hour ahead of the clock: before midnight, one of
 * the next day counts in today's period. A query of events since that time reads no older period.
 */
export function leastPeriod(time: number): number {
  return Math.max(0, Math.floor((time - AHEAD_MS / 1000) / DAY_SECONDS) * DAY_SECONDS);
}

/**
 * The longest project, bytes. It is the first column of the primary key: ClickHouse holds one in memory for each
 * granule, and a granule has a megabyte of rows, or one larger row. With 4 MB each, 5 KB of compressed messages took
 * 144 MB.
 */
const MAX_PROJECT_BYTES = 65_536;

/** Digits stand before a point or behind it. Two runs of digits side by side would take quadratic time. */
const NUMERIC = /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$/;
/** Up to this many digits are parsed without building a string. */
const FEW_DIGITS = 9;
const DETAIL_LENGTH = 100;
const NOTHING: Buffer = Buffer.alloc(0);

/** Reads the texts and numbers of the event whose bytes were set, where the scanner found them. */
function createTexts(found: Scanner['found']) {
  /** bytes[from, to): characters of a string, lone surrogates as U+FFFD, or a number as it is written */
  const text = { bytes: NOTHING, from: 0, to: 0 };
  let event = NOTHING;

  return { text, setEvent, locate, numberAt };

  function setEvent(bytes: Buffer): void {
    event = bytes;
  }

  /** Returns whether a string, or with `numbersToo` a number, stands at the node. If so, `text` now refers to it. */
  function locate(node: number, numbersToo: boolean): boolean {
    const kind = found[node * 3]!;
    const from = found[node * 3 + 1]!;
    const to = found[node * 3 + 2]!;
    if (kind === STRING || (kind === NUMBER && numbersToo)) {
      text.bytes = event;
      text.from = from;
      text.to = to;
      return true;
    }
    if (kind !== ESCAPED) return false;
    text.bytes = Buffer.from((JSON.parse(event.toString('utf8', from - 1, to + 1)) as string).toWellFormed());
    text.from = 0;
    text.to = text.bytes.length;
    return true;
  }

  /** Returns the number at the node, or the number in its string; else NaN. */
  function numberAt(node: number): number {
    if (!locate(node, true)) return NaN;
    const { bytes, from, to } = text;
    if (to > from && to - from <= FEW_DIGITS) {
      let number = 0;
      let i = from;
      for (let c = bytes[i]!; i < to && c >= 0x30 && c <= 0x39; c = bytes[++i]!) number = number * 10 + (c - 0x30);
      if (i === to) return number;
    }
    const written = bytes.toString('latin1', from, to);
    return NUMERIC.test(written) ? Number(written) : NaN;
  }
}

export type EventReader = ReturnType<typeof createEventReader>;

const readers = new Map<SourceName, EventReader>();

/** Returns the one reader of a source: it keeps its buffers from event to event. */
export function eventReaderOf(source: KnownSource): EventReader {
  let reader = readers.get(source.name);
  if (reader === undefined) readers.set(source.name, (reader = createEventReader(source)));
  return reader;
}

/**
 * Reads events of one source: the verdict, and the values at the paths of its columns. It builds nothing: values are
 * read where they stand. All members describe the event of the last `read` or `judge`, whose bytes must still be there:
 * nothing may await between that call and the last use of a member.
 */
function createEventReader({ project, orText, columns }: KnownSource) {
  const scanner = createScanner([
    'id',
    'timestamp',
    project,
    ...(orText === undefined ? [] : [orText]),
    ...columns.map(({ path }) => path),
  ]);
  const { paths, found } = scanner;
  const nodes = {
    project: paths.nodeOf(project),
    /** 0 if the source has none */
    orText: orText === undefined ? 0 : paths.nodeOf(orText),
    id: paths.nodeOf('id'),
    columns: columns.map(({ path }) => paths.nodeOf(path)),
  };
  const time = paths.nodeOf('timestamp');
  const { text, setEvent, locate, numberAt } = createTexts(found);
  let detail = '';
  let timestamp = 0;

  return {
    scanner,
    judge,
    nodes,
    text,
    locate,
    numberAt,
    /** what is wrong with it, in words */
    get detail() {
      return detail;
    },
    /** unix microseconds */
    get timestamp() {
      return timestamp;
    },
    isObject: (node: number): boolean => found[node * 3] === OBJECT,

    /**
     * Returns the string at the node, or with `numbersToo` the number as it is written. Undefined if there is neither.
     */
    textAt: (node: number, numbersToo: boolean): string | undefined =>
      locate(node, numbersToo) ? text.bytes.toString('utf8', text.from, text.to) : undefined,

    /**
     * Reads a JSON text. `recordTime` is the time of its record in unix ms, -1 if there is none. Undefined if it is a
     * valid event.
     */
    read(bytes: Buffer, recordTime: number, range: TimeRange): EventFault | undefined {
      const invalidAt = scanner.scan(bytes, 0, bytes.length);
      if (invalidAt === TOO_DEEP) return fault('malformed_json', `nested deeper than ${MAX_DEPTH} levels`);
      if (invalidAt !== VALID) return fault('malformed_json', `not JSON at byte ${invalidAt} of ${bytes.length}`);
      return judge(bytes, recordTime, range);
    },
  };

  /**
   * Does the same for a text that is known to be JSON. Its writer has noted the places of its values in
   * `scanner.found`.
   */
  function judge(bytes: Buffer, recordTime: number, { earliest, latest }: TimeRange): EventFault | undefined {
    setEvent(bytes);
    const hasProject = locate(nodes.project, true) && text.from < text.to;
    if (hasProject && text.to - text.from > MAX_PROJECT_BYTES)
      return fault('too_large', `${text.to - text.from} bytes at ${project}`);
    if (!hasProject && !locate(nodes.orText, false))
      return fault('missing_project', `neither a text nor a number at ${project}`);
    timestamp = timeOf(recordTime);
    if (Number.isNaN(timestamp)) return fault('bad_timestamp', timeDetail());
    if (timestamp < earliest || timestamp > latest) return fault('timestamp_out_of_range', timeDetail());
    return undefined;
  }

  function fault(reason: EventFault, words: string): EventFault {
    detail = words;
    return reason;
  }

  function timeOf(recordTime: number): number {
    const kind = found[time * 3]!;
    if (kind === ABSENT || kind === NULL) return recordTime < 0 ? NaN : recordTime * 1000;
    if (!locate(time, true)) return NaN;
    const { bytes, from, to } = text;
    const micros = digitsToMicros(bytes, from, to);
    return Number.isNaN(micros) && kind !== NUMBER ? calendarToMicros(bytes, from, to) : micros;
  }

  function timeDetail(): string {
    const kind = found[time * 3]!;
    if (kind === ABSENT || kind === NULL) return 'timestamp of the record';
    return locate(time, true)
      ? `timestamp ${text.bytes.toString('utf8', text.from, Math.min(text.to, text.from + DETAIL_LENGTH))}`
      : 'timestamp is neither text nor a number';
  }
}
