import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Definition } from './definition.ts';
import { ApiError, invalidParameters } from '../../common/http/errors.ts';

/** Limits of the query's own: time, rows, bytes. An answer is whole or this. */
export const OWN_LIMITS = new Set<number | undefined>([158, 159, 160, 191, 307, 396]);
const MEMORY_LIMIT = 241;
const BAD_PATTERN = 427;
/** No table or database yet, or no way in: the schema is being made, or somebody has to look. */
const NOT_READY = new Set([60, 81, 192, 193, 194, 497, 516]);
const RETRY_AFTER_SECONDS = 5;

/** What a caller is told of a failed query. Nothing that ClickHouse wrote goes out; it stays in `cause` for the log. */
export function apiErrorOf(error: unknown, definition: Pick<Definition, 'parameters'>): ApiError {
  if (error instanceof ApiError) return error;
  if (!(error instanceof ClickHouseError)) return new ApiError('internal', 'something went wrong on our side', { cause: error });
  const { code } = error;
  const patterns = definition.parameters.filter((p) => p.format === 'pattern');
  // a statement without a pattern of the caller has a wrong one of its own
  if (code === BAD_PATTERN && patterns.length > 0) return invalidParameters(patterns.map((p) => ({ parameter: p.name, message: 'is not a pattern in RE2 syntax' })), error);
  if (OWN_LIMITS.has(code) || (code === MEMORY_LIMIT && !/\(total\)|server/i.test(error.message))) {
    return new ApiError('timeout', 'the query took more time, rows or memory than it may', { cause: error });
  }
  if (error.kind === 'retry' || (code !== undefined && NOT_READY.has(code))) {
    return new ApiError('unavailable', 'the store is away or overloaded', { retryAfterSeconds: RETRY_AFTER_SECONDS, cause: error });
  }
  return new ApiError('internal', 'something went wrong on our side', { cause: error });
}
