import type { Reader, ReadResult } from '../../../common/clickhouse/clickhouse.ts';
import type { Settings } from '../../../common/config/settings.ts';
import { statementFor } from '../statement/branches.ts';
import { apiErrorOf, passedLimit } from './clickhouse-errors.ts';
import { RESERVED, isOfJson, type Definition } from '../definition/definition.ts';
import type { Params } from '../definition/params.ts';
import { RESULT_FORMAT, RESULT_SETTINGS, type Body } from '../render/render.ts';
import type { OtherFormat } from '../render/formats.ts';
import { render } from '../render/renderer.ts';
import { runSandboxed } from './sandbox.ts';
import { clickhouseTimestamp } from '../definition/timestamp.ts';

export type ReadLimits = ReturnType<typeof limitsOf>;

const MAX_RESULT_BYTES = 128 * 1024 * 1024;
/** A smaller answer reserves no memory, unless its query needs more than SMALL_MEMORY_BYTES. */
export const SMALL_RESULT_BYTES = 8 * 1024 * 1024;
/**
 * The engine's memory for whole events in the answer of a query that has not reserved any. An answer of 112 MB takes
 * 400 MB in the engine while it is made, and the same again here. A hundred entries of 2.4 kB took less than 8 MB,
 * whatever the size of the table.
 */
const SMALL_MEMORY_BYTES = 64 * 1024 * 1024;
/**
 * Blocks are small in rows and bytes, because the engine checks its limits between them. One thread formats: several
 * took 130 MB more for an answer of 112 MB.
 */
const BLOCKS = {
  max_block_size: 8192,
  preferred_block_size_bytes: 1_000_000,
  output_format_parallel_formatting: 0,
} as const;

/** Returns the limits of every query, as ClickHouse names them. A definition may set its own time limit. */
export function limitsOf(settings: Settings) {
  return {
    max_execution_time: settings.QUERY_TIMEOUT_SECONDS,
    max_memory_usage: settings.QUERY_MAX_MEMORY_BYTES,
    max_rows_to_read: settings.QUERY_MAX_ROWS_READ,
    max_result_bytes: MAX_RESULT_BYTES,
  };
}

type QueryResult = Body & Omit<ReadResult, 'body'>;

/** Returns how long a statement of an endpoint may run. */
export function secondsOf(definition: Pick<Definition, 'maxSeconds'>, limits: ReadLimits): number {
  return definition.maxSeconds ?? limits.max_execution_time;
}

/**
 * Returns the settings of a read. A read that exceeds a limit is an error, on both engines: nothing is cut but by
 * `limit`, which `truncated` reports.
 */
export function readSettings(
  definition: Pick<Definition, 'maxRows' | 'maxSeconds'>,
  limits: ReadLimits,
): Record<string, string | number> {
  return {
    ...RESULT_SETTINGS,
    ...BLOCKS,
    ...limits,
    // one row more than is sent shows whether the result was cut
    limit: definition.maxRows + 1,
    max_execution_time: secondsOf(definition, limits),
  };
}

interface QueryRun {
  readonly definition: Definition;
  readonly params: Params;
  /** undefined for JSON */
  readonly format?: OtherFormat | undefined;
  /** unix milliseconds */
  readonly now: number;
  readonly limits: ReadLimits;
  readonly signal: AbortSignal;
  /** Resolves to the function that releases the memory of a large answer. Throws ApiError if there is none left. */
  readonly reserve: (signal: AbortSignal) => Promise<() => void>;
}

/**
 * Runs an endpoint's statement as of `now` and renders its rows. The size of an answer is unknown in advance, so the
 * query first runs with the limit of a small one. If that fails, it runs again with memory reserved. Throws ApiError,
 * or the signal's reason if that has fired.
 */
export async function runQuery(
  clickhouse: Reader,
  { definition, params, format, now, limits, signal, reserve }: QueryRun,
): Promise<QueryResult> {
  const callersSql = params[RESERVED.sql] ?? '';
  const bound = { ...params, [RESERVED.now]: clickhouseTimestamp(BigInt(now) * 1000n) };
  const sql = statementFor(definition.fragments, params);

  async function run(within: ReadLimits): Promise<QueryResult> {
    const settings = readSettings(definition, within);
    const { body, readRows, readBytes } =
      callersSql === ''
        ? await clickhouse.read({
            sql,
            params: bound,
            format: RESULT_FORMAT,
            settings,
            signal,
            fewRows: definition.fewRows,
          })
        : await runSandboxed(clickhouse, { sql: callersSql, statement: sql, params: bound, settings, signal });
    const shape = { columns: callersSql === '' ? definition.columns : undefined, maxRows: definition.maxRows };
    return { ...(await render(shape, body, format)), readRows, readBytes };
  }

  try {
    const small = {
      ...limits,
      max_result_bytes: SMALL_RESULT_BYTES,
      // such columns may hold whole events, which take memory before the engine knows the size of the answer
      max_memory_usage: definition.columns.some(isOfJson)
        ? Math.min(limits.max_memory_usage, SMALL_MEMORY_BYTES)
        : limits.max_memory_usage,
    };
    try {
      return await run(small);
    } catch (error) {
      const limit = passedLimit(error);
      const isLarge =
        limit === 'size of the answer' || (limit === 'memory' && small.max_memory_usage < limits.max_memory_usage);
      if (!isLarge || signal.aborted) throw error;
    }
    const giveBack = await reserve(signal);
    try {
      return await run(limits);
    } finally {
      giveBack();
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw apiErrorOf(error, definition);
  }
}
