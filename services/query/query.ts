import type { Reader } from '../../common/clickhouse/clickhouse.ts';
import type { Settings } from '../../common/config/settings.ts';
import { statementFor } from './branches.ts';
import { apiErrorOf } from './clickhouse-errors.ts';
import { RESERVED, type Definition } from './definition.ts';
import type { Params } from './params.ts';
import { RESULT_FORMAT, RESULT_SETTINGS, renderBody, type Body } from './render.ts';
import { runSandboxed } from './sandbox.ts';
import { clickhouseTimestamp } from './timestamp.ts';

export interface ReadLimits {
  readonly timeoutSeconds: number;
  readonly maxMemoryBytes: number;
  readonly maxRowsToRead: number;
  readonly maxResultBytes: number;
}

const MAX_RESULT_BYTES = 128 * 1024 * 1024;

/** What every query is held to; a definition may set its own time. */
export function limitsOf(settings: Pick<Settings, 'QUERY_TIMEOUT_SECONDS' | 'QUERY_MAX_MEMORY_BYTES' | 'QUERY_MAX_ROWS_READ'>): ReadLimits {
  return { timeoutSeconds: settings.QUERY_TIMEOUT_SECONDS, maxMemoryBytes: settings.QUERY_MAX_MEMORY_BYTES, maxRowsToRead: settings.QUERY_MAX_ROWS_READ, maxResultBytes: MAX_RESULT_BYTES };
}

export interface QueryResult extends Body {
  /** undefined where the engine does not tell */
  readonly readRows: number | undefined;
  readonly readBytes: number | undefined;
}

/** How long a statement of an endpoint may run. */
export function secondsOf(definition: Pick<Definition, 'maxSeconds'>, limits: Pick<ReadLimits, 'timeoutSeconds'>): number {
  return definition.maxSeconds ?? limits.timeoutSeconds;
}

/** Every read is whole or an error: what passes a limit throws, nothing is broken off. */
export function readSettings(definition: Pick<Definition, 'maxRows' | 'maxSeconds'>, limits: ReadLimits): Record<string, string | number> {
  return {
    ...RESULT_SETTINGS,
    // one more than is sent tells whether the result was cut
    limit: definition.maxRows + 1,
    max_execution_time: secondsOf(definition, limits),
    timeout_overflow_mode: 'throw',
    max_memory_usage: limits.maxMemoryBytes,
    max_rows_to_read: limits.maxRowsToRead,
    read_overflow_mode: 'throw',
    max_result_bytes: limits.maxResultBytes,
    result_overflow_mode: 'throw',
  };
}

/** Runs an endpoint's statement as of `now`, unix milliseconds, and renders its rows. Throws ApiError; the signal's reason where that has fired. */
export async function runQuery(clickhouse: Reader, definition: Definition, params: Params, now: number, limits: ReadLimits, signal: AbortSignal): Promise<QueryResult> {
  const own = definition.sandboxed ? (params[RESERVED.sql] ?? '') : '';
  const bound = { ...params, [RESERVED.now]: clickhouseTimestamp(BigInt(now) * 1000n) };
  const settings = readSettings(definition, limits);
  try {
    if (own !== '') {
      const { body, readRows, readBytes } = await runSandboxed(clickhouse, { sql: own, statement: statementFor(definition.parts, params), params: bound, settings, signal });
      return { ...(await renderBody({ columns: undefined, maxRows: definition.maxRows }, body)), readRows, readBytes };
    }
    const { body, readRows, readBytes } = await clickhouse.read({ sql: statementFor(definition.parts, params), params: bound, format: RESULT_FORMAT, settings, signal, fewRows: definition.fewRows });
    return { ...(await renderBody(definition, body)), readRows, readBytes };
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw apiErrorOf(error, definition);
  }
}
