import { ClickHouseError, isUnanswered } from '../../../common/clickhouse/errors.ts';
import { StartError } from '../../../common/errors.ts';
import type { Definition } from '../definition/definition.ts';
import { ApiError, invalidParameters } from '../../../common/http/errors.ts';

/** Limits of the query itself. An answer is whole, or one of these errors. */
const LIMITS = new Map<number | undefined, string>([
  [158, 'rows read'],
  [159, 'time'],
  [160, 'time'],
  [191, 'memory'],
  [241, 'memory'],
  [307, 'rows read'],
  [396, 'size of the answer'],
]);
const MEMORY_LIMIT = 241;

/** Returns the name of the limit that a query exceeded, in the contract's words. Undefined for any other error. */
export function passedLimit(error: unknown): string | undefined {
  if (!(error instanceof ClickHouseError)) return undefined;
  if (error.code === MEMORY_LIMIT && isShared(error.message)) return undefined;
  return LIMITS.get(error.code);
}

/**
 * Whether the memory that ran out is that of all queries, or of all of our user's: later there may be enough. Only the
 * engine's own words count: the host of another shard stands before them (`Received from clickhouse-server-2:9000.
 * DB::Exception: ..`), a path behind them (`while reading from part /srv/server/..`).
 */
function isShared(message: string): boolean {
  const said = message.split(' exceeded', 1)[0]!.split('DB::Exception: ').at(-1)!;
  return /\(total\)|\b(?:server|user)\b/i.test(said);
}

const BAD_PATTERN = 427;
/** There is no table or database yet, or no access: the schema is being created, or an operator must act. */
const NOT_READY = new Set([60, 81, 192, 193, 194, 497, 516]);
/** Names of failures that are not ClickHouse's, nor of the way to it: defects of ours. */
const OURS = /^(?:UNKNOWN|ENOENT|ERR_(?!TLS_|SSL_|STREAM_).*)$/;
const RETRY_AFTER_SECONDS = 5;

/**
 * Returns what a caller learns about a failed query. No text of ClickHouse goes out; it stays in `cause` for the log.
 */
export function apiErrorOf(error: unknown, definition: Pick<Definition, 'parameters'>): ApiError {
  if (error instanceof ApiError) return error;
  const internal = new ApiError('internal', 'something went wrong on our side', { cause: error });
  const unavailable = new ApiError('unavailable', 'ClickHouse is unavailable or overloaded', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    cause: error,
  });
  // for instance, the cluster has other shards than at the start: an operator must act
  if (error instanceof StartError) return unavailable;
  if (!(error instanceof ClickHouseError)) return internal;
  // certificates, what is no HTTP, a proxy's own answer
  if (isUnanswered(error) && !OURS.test(error.codeName)) return unavailable;
  const { code } = error;
  const patterns = definition.parameters.filter((p) => p.format === 'pattern');
  // a statement without a caller's pattern has a wrong pattern of its own
  if (code === BAD_PATTERN && patterns.length > 0)
    return invalidParameters(
      patterns.map((p) => ({ parameter: p.name, message: 'is not a pattern in RE2 syntax' })),
      error,
    );
  const limit = passedLimit(error);
  if (limit !== undefined) return new ApiError('timeout', `the query exceeded its limit of ${limit}`, { cause: error });
  return error.kind === 'retry' || (code !== undefined && NOT_READY.has(code)) ? unavailable : internal;
}
