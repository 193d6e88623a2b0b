import type { SourceName } from '../../common/sources.ts';
import { durationIn, statusIn } from '../evaluate/oracle.ts';

/**
 * What the endpoints must answer, computed plainly over the list of events that were produced.
 * Shares no code with the services. Times are unix microseconds as numbers (safe until the year 2255).
 */
export interface StoredEvent {
  readonly source: SourceName;
  readonly project: string;
  readonly timestamp: number;
  /** the event as parsed JSON: by readExactly, if it holds numbers that JavaScript would write in another way */
  readonly content: { readonly [key: string]: unknown };
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

const SECOND = 1e6;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const floorTo = (t: number, unit: number): number => Math.floor(t / unit) * unit;

type Json = { readonly [key: string]: unknown };

/** an object, or the first of a list of objects */
function objectOf(value: unknown): Json | undefined {
  const first: unknown = Array.isArray(value) ? value[0] : value;
  return isObject(first) ? first : undefined;
}

/** A number that JavaScript writes in another way (`1.0`), or cannot hold (2^53 + 1). */
class WrittenNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** Reads JSON as JSON.parse does, but keeps each number whose text would change. */
export function readExactly(json: string): unknown {
  const keep = (_key: string, value: unknown, { source }: { source?: string }): unknown =>
    typeof value === 'number' && String(value) !== source ? new WrittenNumber(source!) : value;
  // the types of ES2024 do not know the third argument
  return JSON.parse(json, keep as (key: string, value: unknown) => unknown);
}

/** A string, or a number as its text. */
function textOf(value: unknown): string | undefined {
  if (value instanceof WrittenNumber) return value.text;
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
}

export interface Invocation {
  readonly project: string;
  readonly functionId: string;
  readonly timestamp: number;
  readonly status: number | undefined;
  readonly milliseconds: number | undefined;
}

export function invocationsOf(events: readonly StoredEvent[]): Invocation[] {
  return events.flatMap((event) => {
    if (event.source !== 'function_edge_logs') return [];
    const metadata = objectOf(event.content['metadata']);
    const response = objectOf(metadata?.['response']);
    if (response === undefined) return [];
    return [
      {
        project: event.project,
        functionId: textOf(metadata?.['function_id']) ?? '',
        timestamp: event.timestamp,
        status: statusIn(textOf(response['status_code'])),
        milliseconds: durationIn(textOf(metadata?.['execution_time_ms'])),
      },
    ];
  });
}

export interface InvocationStats {
  readonly timestamp: number;
  readonly count: number;
  readonly error_count: number;
  readonly min_execution_time: number | null;
  readonly max_execution_time: number | null;
  readonly avg_execution_time: number | null;
  /** bounds of what is right, by rank */
  readonly p95: readonly [number, number] | null;
  readonly p99: readonly [number, number] | null;
}

const SERIES: { readonly [interval: string]: { readonly unit: number; readonly span: number } } = {
  '5min': { unit: SECOND, span: 5 * MINUTE },
  '15min': { unit: MINUTE, span: 15 * MINUTE },
  '1hr': { unit: MINUTE, span: HOUR },
  '1day': { unit: HOUR, span: DAY },
  '7day': { unit: DAY, span: 7 * DAY },
};

/** The element between the ranks max(1, floor((q-0.01)n)) and min(n, ceil((q+0.01)n)+1), counted from 1. */
function rankBounds(sorted: readonly number[], q: number): readonly [number, number] {
  const n = sorted.length;
  return [
    sorted[Math.max(1, Math.floor((q - 0.01) * n)) - 1]!,
    sorted[Math.min(n, Math.ceil((q + 0.01) * n) + 1) - 1]!,
  ];
}

export function invocationStats(
  invocations: readonly Invocation[],
  params: { project: string; function_id?: string; interval?: string },
  now: number,
): InvocationStats[] {
  const { unit, span } = SERIES[params.interval ?? ''] ?? SERIES['1day']!;
  const rows: InvocationStats[] = [];
  const from = floorTo(now - span, unit);
  const mine = invocations.filter(
    (i) =>
      i.timestamp >= from &&
      i.project === params.project &&
      (!params.function_id || i.functionId === params.function_id),
  );
  const byBucket = Map.groupBy(mine, (i) => floorTo(i.timestamp, unit));
  for (let bucket = from; bucket <= floorTo(now, unit); bucket += unit) {
    const inside = byBucket.get(bucket) ?? [];
    const times = inside.flatMap((i) => (i.milliseconds === undefined ? [] : [i.milliseconds])).sort((a, b) => a - b);
    const some = times.length > 0;
    rows.push({
      timestamp: bucket,
      count: inside.length,
      error_count: inside.filter((i) => i.status !== undefined && i.status >= 400).length,
      min_execution_time: some ? times[0]! : null,
      max_execution_time: some ? times.at(-1)! : null,
      avg_execution_time: some ? times.reduce((a, b) => a + b, 0) / times.length : null,
      p95: some ? rankBounds(times, 0.95) : null,
      p99: some ? rankBounds(times, 0.99) : null,
    });
  }
  return rows;
}

interface ApiCounts {
  readonly timestamp: string;
  readonly total_rest_requests: number;
  readonly total_storage_requests: number;
  readonly total_auth_requests: number;
  readonly total_realtime_requests: number;
}

const WINDOWS: { readonly [interval: string]: { readonly unit: number; readonly span: number } } = {
  minutely: { unit: MINUTE, span: HOUR },
  '1hr': { unit: MINUTE, span: HOUR },
  hourly: { unit: HOUR, span: HOUR },
  daily: { unit: DAY, span: 7 * DAY },
  '7day': { unit: DAY, span: 7 * DAY },
  '15min': { unit: MINUTE, span: 15 * MINUTE },
  '30min': { unit: MINUTE, span: 30 * MINUTE },
  '3hr': { unit: MINUTE, span: 3 * HOUR },
  '1day': { unit: HOUR, span: DAY },
  '3day': { unit: HOUR, span: 3 * DAY },
};

/** `matches` says whether a url contains the pattern: JavaScript's RegExp for patterns that mean the same in RE2. */
export function apiCounts(
  events: readonly StoredEvent[],
  interval: string,
  matches: (url: string) => boolean,
  now: number,
): ApiCounts[] {
  const { unit, span } = WINDOWS[interval]!;
  const buckets = new Map<number, [number, number, number, number]>();
  for (const event of events) {
    if (event.source !== 'edge_logs' || event.timestamp < now - span) continue;
    const request = objectOf(objectOf(event.content['metadata'])?.['request']);
    const url = request?.['url'];
    if (typeof url !== 'string' || !matches(url)) continue;
    const path = typeof request?.['path'] === 'string' ? request['path'] : '';
    const bucket = floorTo(event.timestamp, unit);
    const counts = buckets.get(bucket) ?? [0, 0, 0, 0];
    ['/rest', '/storage', '/auth', '/realtime'].forEach((mark, i) => {
      if (path.includes(mark)) counts[i]!++;
    });
    buckets.set(bucket, counts);
  }
  return [...buckets]
    .sort(([a], [b]) => a - b)
    .map(([bucket, [rest, storage, auth, realtime]]) => ({
      timestamp: new Date(bucket / 1000).toISOString().slice(0, 19),
      total_rest_requests: rest,
      total_storage_requests: storage,
      total_auth_requests: auth,
      total_realtime_requests: realtime,
    }));
}

export interface LogEntry {
  readonly id: string;
  readonly timestamp: number;
  readonly event_message: string;
  readonly metadata: unknown;
}

const RETENTION: { readonly [tier: string]: number } = {
  FREE: DAY,
  PRO: 7 * DAY,
  PAYG: 90 * DAY,
  ENTERPRISE: 90 * DAY,
};

/** Bounds of logs.all as unix microseconds; absent = open. */
export function logsAll(
  events: readonly StoredEvent[],
  params: { project: string; project_tier?: string; after?: number; until?: number },
  now: number,
): LogEntry[] {
  const since = now - (RETENTION[params.project_tier ?? 'FREE'] ?? DAY);
  return events
    .filter((e) => e.source === 'edge_logs' && e.project === params.project && e.timestamp > since)
    .filter(
      (e) =>
        (params.after === undefined || e.timestamp > params.after) &&
        (params.until === undefined || e.timestamp <= params.until),
    )
    .map((e) => ({ event: e, id: idOf(e) }))
    .sort(
      (a, b) =>
        b.event.timestamp - a.event.timestamp ||
        compareBytes(b.id, a.id) ||
        b.event.partition - a.event.partition ||
        b.event.offset - a.event.offset,
    )
    .slice(0, 100)
    .map(({ event, id }) => {
      const { event_message: message, message: other, metadata } = event.content;
      return {
        id,
        timestamp: event.timestamp,
        event_message: typeof message === 'string' ? message : typeof other === 'string' ? other : '',
        metadata: nestedTop(metadata),
      };
    });
}

/** A string or number as text; anything else is derived from where the record stands. */
function idOf({ content, topic, partition, offset }: StoredEvent): string {
  return textOf(content['id']) || `${topic}-${partition}-${offset}`;
}

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof WrittenNumber);

function nestedTop(metadata: unknown): unknown {
  if (metadata === undefined || metadata === null) return [];
  if (Array.isArray(metadata)) return metadata.map(element);
  return [isObject(metadata) ? fields(metadata) : metadata];
}

function element(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(element);
  return isObject(value) ? fields(value) : value;
}

function fields(object: Json): Json {
  return Object.fromEntries(
    Object.entries(object).map(([key, value]) => [key, isObject(value) ? [fields(value)] : element(value)]),
  );
}

const compareBytes = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));
