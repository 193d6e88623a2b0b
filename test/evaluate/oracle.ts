import type { SourceName } from '../../common/sources.ts';
import { NotJson, readJson, type Json } from './json.ts';

/**
 * What must become of one message: plain recomputation from its bytes, by the contract of events and the table of
 * sources.
 * Shares nothing with the services.
 */
export interface Message {
  readonly value: Uint8Array;
  /** of the record, unix milliseconds; -1 = none */
  readonly recordTime: number;
  readonly offset: number;
}

export interface Place {
  readonly source: SourceName;
  readonly topic: string;
  readonly partition: number;
  /** unix milliseconds */
  readonly evaluatedAt: number;
  readonly retentionDays: number;
  readonly maxEventBytes: number;
}

/** The columns of a row that depend on the message. */
export interface Row {
  readonly project: string;
  readonly id: string;
  /** unix microseconds */
  readonly timestamp: string;
  readonly hot: { readonly [column: string]: unknown };
}

export type Fate = { readonly row: Row } | { readonly reason: string };

export function fateOf(message: Message, place: Place): Fate {
  if (message.value.length > place.maxEventBytes) return { reason: 'too_large' };
  // Avro, which no schema is known of here: the schema's id or fingerprint must be there, whatever follows
  if (message.value[0] === 0x00) return { reason: message.value.length < 5 ? 'malformed_avro' : 'unknown_schema' };
  if (message.value[0] === 0xc3 && message.value[1] === 0x01)
    return { reason: message.value.length < 10 ? 'malformed_avro' : 'unknown_schema' };
  const start = message.value.findIndex((byte) => ![0x20, 0x09, 0x0a, 0x0d].includes(byte));
  if (start < 0 || message.value[start] !== 0x7b) return { reason: 'not_an_event' };
  let event: Json;
  try {
    event = readJson(message.value);
  } catch (error) {
    if (error instanceof NotJson) return { reason: 'malformed_json' };
    throw error;
  }
  const project = textOf(at(event, ...PROJECT[place.source])) ?? '';
  const hot = hotColumns(place.source, event);
  if (Buffer.byteLength(project) > 65_536) return { reason: 'too_large' };
  if (project === '' && !(place.source === 'edge_logs' && hot['url'] !== null)) return { reason: 'missing_project' };
  const timestamp = timeOf(member(event, 'timestamp'), message.recordTime);
  if (timestamp === undefined) return { reason: 'bad_timestamp' };
  const evaluated = BigInt(place.evaluatedAt) * 1000n;
  if (timestamp < evaluated - BigInt(place.retentionDays) * 86_400_000_000n || timestamp > evaluated + 3_600_000_000n)
    return { reason: 'timestamp_out_of_range' };
  const id = textOf(member(event, 'id')) ?? '';
  return {
    row: {
      project,
      id: id === '' ? `${place.topic}-${place.partition}-${message.offset}` : id,
      timestamp: String(timestamp),
      hot,
    },
  };
}

const PROJECT: { readonly [source in SourceName]: readonly string[] } = {
  edge_logs: ['project'],
  postgres_logs: ['project'],
  function_edge_logs: ['metadata', 'project_ref'],
  function_logs: ['metadata', 'project_ref'],
  auth_logs: ['project'],
  realtime_logs: ['metadata', 'project'],
  storage_logs: ['metadata', 'project'],
  postgrest_logs: ['project'],
  pgbouncer_logs: ['project'],
};

function hotColumns(source: SourceName, event: Json): { [column: string]: unknown } {
  if (source === 'edge_logs') {
    const [url, host, path, method] = ['url', 'host', 'path', 'method'].map((name) =>
      stringOf(at(event, 'metadata', 'request', name)),
    );
    return {
      url,
      host,
      path,
      method,
      status_code: statusOf(event),
      families: familiesOf(path ?? ''),
      ...windowsOf(url ?? ''),
    };
  }
  if (source === 'function_edge_logs') {
    return {
      function_id: textOf(at(event, 'metadata', 'function_id')) ?? '',
      is_invocation: asObject(at(event, 'metadata', 'response')) !== undefined,
      status_code: statusOf(event),
      execution_time_ms: durationIn(textOf(at(event, 'metadata', 'execution_time_ms'))) ?? null,
    };
  }
  return {
    level:
      textOf(
        source === 'postgres_logs' ? at(event, 'metadata', 'parsed', 'error_severity') : at(event, 'metadata', 'level'),
      ) ?? null,
  };
}

function statusOf(event: Json): number | null {
  return statusIn(textOf(at(event, 'metadata', 'response', 'status_code'))) ?? null;
}

function familiesOf(path: string): number {
  return ['/rest', '/storage', '/auth', '/realtime'].reduce(
    (bits, mark, i) => (path.includes(mark) ? bits | (1 << i) : bits),
    0,
  );
}

/**
 * Each distinct window of 20 lower-case letters; with more than 16, or more than 256 letters in runs of 20 and more,
 * the event is one for the overflow table instead.
 */
function windowsOf(url: string): { refs: readonly string[]; refs_overflow: boolean } {
  const runs = url.split(/[^a-z]+/).filter((run) => run.length >= 20);
  const windows = new Set(
    runs.flatMap((run) => Array.from({ length: Math.min(run.length, 300) - 19 }, (_, i) => run.slice(i, i + 20))),
  );
  const overflows = windows.size > 16 || runs.join('').length > 256;
  return { refs: overflows ? [] : [...windows], refs_overflow: overflows };
}

/** An object, or the first of a list of objects. */
function asObject(value: Json | undefined): ReadonlyMap<string, Json> | undefined {
  const object = value?.type === 'list' ? value.elements[0] : value;
  return object?.type === 'object' ? object.members : undefined;
}

function member(value: Json | undefined, name: string): Json | undefined {
  return asObject(value)?.get(name);
}

function at(value: Json, ...path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(member, value);
}

function stringOf(value: Json | undefined): string | null {
  return value?.type === 'string' ? value.text : null;
}

/** A string, or a number taken as its text. */
function textOf(value: Json | undefined): string | undefined {
  return value?.type === 'string' || value?.type === 'number' ? value.text : undefined;
}

/** The number that a text is, finite. Every oracle reads the text of a number and a numeric string by this rule. */
function numberIn(text: string | undefined): number | undefined {
  if (text === undefined || !/^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/.test(text)) return undefined;
  const number = Number(text);
  return Number.isFinite(number) ? number + 0 : undefined;
}

/** The status code that a text is: an integer of 16 bits. */
export function statusIn(text: string | undefined): number | undefined {
  const number = numberIn(text);
  return number !== undefined && Number.isInteger(number) && number >= 0 && number <= 65_535 ? number : undefined;
}

/** The execution time that a text is: not negative. */
export function durationIn(text: string | undefined): number | undefined {
  const number = numberIn(text);
  return number !== undefined && number >= 0 ? number : undefined;
}

/** Unix microseconds by the grammar of timestamps; absent or null = the time of the record. */
function timeOf(value: Json | undefined, recordTime: number): bigint | undefined {
  if (value === undefined || value.type === 'null') return recordTime < 0 ? undefined : BigInt(recordTime) * 1000n;
  const text = textOf(value);
  if (text === undefined) return undefined;
  if (/^\d+$/.test(text)) {
    const scale = new Map([
      [10, 1_000_000n],
      [13, 1_000n],
      [16, 1n],
    ]).get(text.length);
    if (text.length === 19) return BigInt(text) / 1000n;
    return scale === undefined ? undefined : BigInt(text) * scale;
  }
  const decimal = /^(\d{10})\.(\d+)$/.exec(text);
  if (decimal !== null) return BigInt(decimal[1]!) * 1_000_000n + BigInt(decimal[2]!.slice(0, 6).padEnd(6, '0'));
  return value.type === 'string' ? calendarTime(text) : undefined;
}

const DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const;

/** YYYY-MM-DD[(T| )hh:mm[:ss[.f{0,9}]]][Z|±hh[:]mm], no zone = UTC. */
function calendarTime(text: string): bigint | undefined {
  const match =
    /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?)?(?:Z|([-+])(\d\d):?(\d\d))?$/.exec(text);
  if (match === null) return undefined;
  const [year, month, day, hour, minute, second, , , zoneHour, zoneMinute] = match
    .slice(1)
    .map((digits) => Number(digits ?? 0)) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > DAYS[month - 1]! + (isLeap && month === 2 ? 1 : 0))
    return undefined;
  if (hour > 23 || minute > 59 || second > 59 || zoneHour > 23 || zoneMinute > 59) return undefined;
  // days since 1 March of the year 0, whose leap days come last in their years
  const y = month > 2 ? year : year - 1;
  const dayOfYear = Math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1;
  const days = y * 365 + Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400) + dayOfYear - 719_468;
  const zone = (match[8] === '-' ? -1 : 1) * (zoneHour * 60 + zoneMinute);
  const seconds = ((days * 24 + hour) * 60 + minute - zone) * 60 + second;
  return BigInt(seconds) * 1_000_000n + BigInt((match[7] ?? '').slice(0, 6).padEnd(6, '0'));
}
