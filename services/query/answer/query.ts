import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Settings } from '../../../common/config/settings.ts';
import { statementFor } from '../definition/branches.ts';
import { apiErrorOf, passedLimit } from './clickhouse-errors.ts';
import { RESERVED, type Definition } from '../definition/definition.ts';
import type { Params } from '../definition/params.ts';
import { RESULT_FORMAT, RESULT_SETTINGS, type Body } from '../render/render.ts';
import { render } from '../render/renderer.ts';
import { runSandboxed } from './sandbox.ts';
import { clickhouseTimestamp } from '../definition/timestamp.ts';

export interface ReadLimits {
  readonly timeoutSeconds: number;
  readonly maxMemoryBytes: number;
  readonly maxRowsToRead: number;
  readonly maxResultBytes: number;
}

const MAX_RESULT_BYTES = 128 * 1024 * 1024;
/**
 * What a query may take without room for a large answer. An answer of 112 MB takes 400 MB in the engine while it is
 * made, and the same again here;
 * a hundred entries of 2.4 kB took less than 8 MB, of any size of table.
 */
const SMALL_RESULT_BYTES = 8 * 1024 * 1024;
const SMALL_MEMORY_BYTES = 64 * 1024 * 1024;
/** Blocks are small in rows and bytes: the engine looks at its limits between them. */
const BLOCKS = { max_block_size: 8192, preferred_block_size_bytes: 1_000_000 } as const;

/** What every query is held to; a definition may set its own time. */
export function limitsOf(
  settings: Pick<Settings, 'QUERY_TIMEOUT_SECONDS' | 'QUERY_MAX_MEMORY_BYTES' | 'QUERY_MAX_ROWS_READ'>,
): ReadLimits {
  return {
    timeoutSeconds: settings.QUERY_TIMEOUT_SECONDS,
    maxMemoryBytes: settings.QUERY_MAX_MEMORY_BYTES,
    maxRowsToRead: settings.QUERY_MAX_ROWS_READ,
    maxResultBytes: MAX_RESULT_BYTES,
  };
}

export interface QueryResult extends Body {
  /** undefined where the engine does not tell */
  readonly readRows: number | undefined;
  readonly readBytes: number | undefined;
}

/** How long a statement of an endpoint may run. */
export function secondsOf(
  definition: Pick<Definition, 'maxSeconds'>,
  limits: Pick<ReadLimits, 'timeoutSeconds'>,
): number {
  return definition.maxSeconds ?? limits.timeoutSeconds;
}

/** Every read is whole or an error: what passes a limit throws, nothing is broken off. */
export function readSettings(
  definition: Pick<Definition, 'maxRows' | 'maxSeconds'>,
  limits: ReadLimits,
): Record<string, string | number> {
  return {
    ...RESULT_SETTINGS,
    ...BLOCKS,
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

/** Whether whole events may be in the rows. */
function hasEvents({ columns }: Pick<Definition, 'columns'>): boolean {
  return columns.some(({ render: as }) => as === 'text' || as === 'nested_list');
}

export interface QueryRun {
  readonly definition: Definition;
  readonly params: Params;
  /** unix milliseconds */
  readonly now: number;
  readonly limits: ReadLimits;
  readonly signal: AbortSignal;
  /** Resolves to what gives back the room for a large answer. Throws ApiError where there is none. */
  readonly reserve: (signal: AbortSignal) => Promise<() => void>;
}

/**
 * Runs an endpoint's statement as of `now` and renders its rows. Whether an answer is large is not known before it is
 * there: so it is first asked for
 * as a small one, and again, with room reserved for it, if it is not. Throws ApiError; the signal's reason where that
 * has fired.
 */
export async function runQuery(
  clickhouse: Reader,
  { definition, params, now, limits, signal, reserve }: QueryRun,
): Promise<QueryResult> {
  const own = definition.sandboxed ? (params[RESERVED.sql] ?? '') : '';
  const bound = { ...params, [RESERVED.now]: clickhouseTimestamp(BigInt(now) * 1000n) };
  const sql = statementFor(definition.parts, params);

  async function run(within: ReadLimits): Promise<QueryResult> {
    const settings = readSettings(definition, within);
    const { body, readRows, readBytes } =
      own === ''
        ? await clickhouse.read({
            sql,
            params: bound,
            format: RESULT_FORMAT,
            settings,
            signal,
            fewRows: definition.fewRows,
          })
        : await runSandboxed(clickhouse, { sql: own, statement: sql, params: bound, settings, signal });
    const shape = { columns: own === '' ? definition.columns : undefined, maxRows: definition.maxRows };
    return { ...(await render(shape, body)), readRows, readBytes };
  }

  try {
    const small = {
      ...limits,
      maxResultBytes: Math.min(limits.maxResultBytes, SMALL_RESULT_BYTES),
      maxMemoryBytes: hasEvents(definition)
        ? Math.min(limits.maxMemoryBytes, SMALL_MEMORY_BYTES)
        : limits.maxMemoryBytes,
    };
    try {
      return await run(small);
    } catch (error) {
      const limit = passedLimit(error);
      const isLarge =
        (limit === 'size of the answer' && small.maxResultBytes < limits.maxResultBytes) ||
        (limit === 'memory' && small.maxMemoryBytes < limits.maxMemoryBytes);
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
