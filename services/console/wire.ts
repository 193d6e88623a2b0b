import type { CreatedKey } from '../../common/listed-key.ts';

/**
 * What the service and the page share: the answers of the console's routes, and which endpoints a key may call. It
 * imports only types, because the page's modules are served without a build.
 */

/** Seconds of one step of every series. */
export const STEP_SECONDS = 10;
/** Steps of the last hour. */
export const HISTORY_STEPS = 360;

/** Returns whether a key with these scopes may call an endpoint. */
export const mayCall = (scopes: readonly string[], endpoint: string): boolean =>
  ['admin', 'query', `query:${endpoint}`].some((scope) => scopes.includes(scope));

/** One value per step; null if unknown. */
export type Series = readonly (number | null)[];

interface TopicStatus {
  readonly topic: string;
  readonly source: string;
  /** events that became visible in each step, by the ledger: rows and dead letters */
  readonly events: Series;
  /** the sum over the last hour, up to now */
  readonly events_last_hour: number;
  /** age of the newest visible record at the end of each step, milliseconds */
  readonly age_ms: Series;
  /** Kafka's time of the newest visible record, unix milliseconds; null if there was none in the last hour */
  readonly newest_ms: number | null;
  /** records that wait in Kafka or in memory; null if ingest runs in another process */
  readonly lag: Series;
  readonly lag_now: number | null;
}

interface DeadLetterStatus {
  readonly reason: string;
  /** dead letters evaluated in each step */
  readonly letters: Series;
}

export interface DeadLetterTotal {
  readonly topic: string;
  readonly reason: string;
  /** all of them, replayed ones included */
  readonly letters: number;
  readonly replayed: number;
}

export interface PausedPartition {
  readonly topic: string;
  readonly partition: number;
  readonly bad: number;
  readonly messages: number;
  /** ISO 8601 */
  readonly paused_until: string;
}

export interface RollupStatus {
  readonly name: string;
  readonly version: number;
  readonly state: string;
  /** periods that are not built yet, which queries read from raw */
  readonly pending: number;
  /** spans that must be rebuilt */
  readonly repairs: number;
  /** spans that still differ from raw after a rebuild */
  readonly differences: number;
  /**
   * unix seconds, of the first attempt before any comparison; null if none was tried, or another process runs rollups
   */
  readonly audited_to: number | null;
}

export interface EndpointStatus {
  readonly endpoint: string;
  readonly requests: Series;
  /** answered with 5xx */
  readonly errors: Series;
  readonly hits: Series;
  /** misses, stale answers and hits: all that could have come from the cache */
  readonly cacheable: Series;
  readonly p95_ms: Series;
}

export interface AlertStatus {
  readonly alert: string;
  readonly severity: 'page' | 'ticket';
  /** the rule in words */
  readonly rule: string;
  readonly state: 'ok' | 'pending' | 'firing' | 'unknown';
  /** its subjects (topics, tables, endpoints) with their values */
  readonly subjects: readonly { readonly name: string; readonly value: string; readonly state: 'pending' | 'firing' }[];
  /** why the state is unknown here */
  readonly reason?: string;
  /** the section of docs/runbook.md, Markdown; only for pending or firing alerts */
  readonly runbook?: string;
}

/** What only an admin key sees. */
export interface SystemStatus {
  readonly topics: readonly TopicStatus[];
  readonly dead_letters: readonly DeadLetterStatus[];
  /** null until they have been read, which takes too long where there are very many */
  readonly dead_letter_totals: readonly DeadLetterTotal[] | null;
  readonly paused: readonly PausedPartition[];
  readonly rollups: readonly RollupStatus[];
  readonly alerts: readonly AlertStatus[];
  /** false if ClickHouse did not answer; its data is then as of `store_seen_at` */
  readonly store_answers: boolean;
  /** unix milliseconds; null if ClickHouse has not answered since the start */
  readonly store_seen_at: number | null;
  /** false if ingest runs in another process, so the lag is unknown here */
  readonly ingest_here: boolean;
}

export interface Status {
  /** unix milliseconds */
  readonly now: number;
  /** start of this process, unix milliseconds */
  readonly started_at: number;
  readonly step_seconds: number;
  /** start of the first step of every series, unix seconds; the last one ended before `now` */
  readonly from: number;
  readonly steps: number;
  readonly key: Omit<CreatedKey, 'key'>;
  /** those that the key may call and that were requested since the start; none for a key limited to projects */
  readonly endpoints: readonly EndpointStatus[];
  /** null if the key lacks the scope admin */
  readonly system: SystemStatus | null;
}

export interface DeadLetterRow {
  readonly topic: string;
  readonly incarnation: number;
  readonly partition: number;
  readonly offset: number;
  readonly reason: string;
  readonly detail: string;
  /** ISO 8601 */
  readonly replayed_at: string | null;
}

/** Where a page or a replay ended: what it holds is only handed back. */
type DeadLetterPlace = Readonly<Record<string, unknown>>;

export interface DeadLetterPage {
  readonly dead_letters: readonly DeadLetterRow[];
  /** pass it as `after` for the next page; null if that was the last */
  readonly next: DeadLetterPlace | null;
}

export interface DeadLetterBytes extends Omit<DeadLetterRow, 'replayed_at'> {
  /** ISO 8601; null if the record had none */
  readonly record_time: string | null;
  readonly key_base64: string | null;
  readonly headers: readonly { readonly name: string; readonly value_base64: string | null }[];
  readonly value_base64: string;
}

export interface ReplayResult {
  /** the number of letters per outcome: `stored`, or the reason of a letter that is still dead */
  readonly replayed: Readonly<Record<string, number>>;
  /** pass it as `after` to continue; null if all were tried */
  readonly next: DeadLetterPlace | null;
}
