import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../common/clock.ts';
import type { Settings } from '../../common/config/settings.ts';
import type { Logger } from '../../common/logger.ts';
import type { RollupMetrics } from './metrics.ts';

/** What every part of the service works with. */
export interface Workshop {
  readonly clickhouse: ClickHouse;
  readonly settings: Pick<Settings, 'RAW_RETENTION_DAYS' | 'ROLLUP_1M_RETENTION_DAYS' | 'ROLLUP_1H_RETENTION_DAYS' | 'ROLLUP_BUILD_PERCENT' | 'ROLLUP_AUDIT_DAYS' | 'FSYNC'>;
  readonly logger: Logger;
  readonly metrics: RollupMetrics;
  readonly clock: Clock;
  readonly timing: Timing;
  /** resolves after that time, milliseconds; rejects when the service stops */
  readonly wait: (ms: number) => Promise<void>;
}

export interface Timing {
  /** a cut is announced this long ahead: longer than the clocks of the ingest processes differ, milliseconds */
  readonly cutAheadMs: number;
  /** a period is built when it has been over for this long, so that inserts under way are done, milliseconds */
  readonly settleMs: number;
  /** minutes are compared when they have been over for this long, milliseconds */
  readonly auditLagMs: number;
  /** a difference counts when it is seen again after this long: the raw table and the views are written one after the other, milliseconds */
  readonly confirmMs: number;
}

export const DEFAULT_TIMING: Timing = { cutAheadMs: 60_000, settleMs: 30_000, auditLagMs: 120_000, confirmMs: 60_000 };

export const nowSeconds = ({ clock }: Pick<Workshop, 'clock'>): number => clock() / 1000;

/** Unix seconds as text, for log lines and messages. */
export const isoTime = (seconds: number): string => new Date(seconds * 1000).toISOString();

/**
 * What a statement over a whole period is run with: one thread, spilling to disk instead of growing. The progress in the headers of a server's answer
 * keeps its socket from timing out; Node takes 16 KiB of headers, which is an hour of them.
 */
export const LONG_READ_SETTINGS = {
  send_progress_in_http_headers: 1,
  http_headers_progress_interval_ms: 45_000,
  max_threads: 1,
  max_memory_usage: 2 * 1024 ** 3,
  max_bytes_before_external_group_by: 512 * 1024 ** 2,
  max_execution_time: 0,
  session_timezone: 'UTC',
} as const;

/** No deduplication: equal blocks of single events are not the same events. */
export const BUILD_SETTINGS = { ...LONG_READ_SETTINGS, max_insert_threads: 1, insert_deduplicate: 0, async_insert: 0, max_partitions_per_insert_block: 0 } as const;

/** What is known to be dispensable is dropped whatever its size. */
export const DROP_SETTINGS = { max_table_size_to_drop: 0, max_partition_size_to_drop: 0 } as const;
