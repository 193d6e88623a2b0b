/**
 * What a failed statement means for the caller:
 * - `retry`: the engine is unavailable, overloaded or short of something. The same statement may succeed later.
 * - `fatal`: everything else, unknown numbers included. The same statement fails again.
 */
type ErrorKind = 'retry' | 'fatal';
/** `not_written`: certainly nothing was stored. `unknown`: it may have been stored, in part or whole. */
export type Outcome = 'not_written' | 'unknown';

/** What is known of a failed statement besides its message. */
export type Failure = Pick<ClickHouseError, 'code' | 'codeName' | 'kind' | 'outcome'>;

export class ClickHouseError extends Error {
  /** ClickHouse's number; undefined if ClickHouse did not report the failure (sockets, our own timeouts) */
  readonly code: number | undefined;
  /** ClickHouse's name of the number, for instance TOO_MANY_PARTS, else the system's (ECONNREFUSED) */
  readonly codeName: string;
  readonly kind: ErrorKind;
  readonly outcome: Outcome;
  constructor(message: string, fields: Failure, cause?: unknown) {
    super(message, { cause });
    this.name = 'ClickHouseError';
    this.code = fields.code;
    this.codeName = fields.codeName;
    this.kind = fields.kind;
    this.outcome = fields.outcome;
  }
}

interface Known {
  readonly code: number;
  readonly name: string;
  readonly kind: ErrorKind;
  /** raised before a statement starts to run, so nothing can have been stored */
  readonly early?: true;
}

/**
 * The numbers with a known meaning, from ClickHouse's src/Common/ErrorCodes.cpp. The retry list contains that of
 * ClickHouse's own Kafka Connect sink (Utils.handleException), except 164 READONLY, which here means a writer without
 * the right to write. Any other number is fatal.
 */
export const knownErrors: readonly Known[] = [
  { code: 3, name: 'UNEXPECTED_END_OF_FILE', kind: 'retry' },
  { code: 15, name: 'DUPLICATE_COLUMN', kind: 'fatal' },
  { code: 23, name: 'CANNOT_READ_FROM_ISTREAM', kind: 'retry' },
  { code: 24, name: 'CANNOT_WRITE_TO_OSTREAM', kind: 'retry' },
  { code: 27, name: 'CANNOT_PARSE_INPUT_ASSERTION_FAILED', kind: 'fatal' },
  // rows that were cut short on the way: they are whole when they are sent
  { code: 32, name: 'ATTEMPT_TO_READ_AFTER_EOF', kind: 'retry' },
  { code: 33, name: 'CANNOT_READ_ALL_DATA', kind: 'retry' },
  { code: 46, name: 'UNKNOWN_FUNCTION', kind: 'fatal', early: true },
  { code: 47, name: 'UNKNOWN_IDENTIFIER', kind: 'fatal', early: true },
  { code: 57, name: 'TABLE_ALREADY_EXISTS', kind: 'fatal' },
  { code: 60, name: 'UNKNOWN_TABLE', kind: 'fatal', early: true },
  { code: 62, name: 'SYNTAX_ERROR', kind: 'fatal', early: true },
  { code: 74, name: 'CANNOT_READ_FROM_FILE_DESCRIPTOR', kind: 'retry' },
  { code: 75, name: 'CANNOT_WRITE_TO_FILE_DESCRIPTOR', kind: 'retry' },
  { code: 76, name: 'CANNOT_OPEN_FILE', kind: 'retry' },
  { code: 81, name: 'UNKNOWN_DATABASE', kind: 'fatal', early: true },
  { code: 95, name: 'CANNOT_READ_FROM_SOCKET', kind: 'retry' },
  { code: 96, name: 'CANNOT_WRITE_TO_SOCKET', kind: 'retry' },
  { code: 107, name: 'FILE_DOESNT_EXIST', kind: 'retry' },
  { code: 115, name: 'UNKNOWN_SETTING', kind: 'fatal', early: true },
  { code: 117, name: 'INCORRECT_DATA', kind: 'fatal' },
  { code: 139, name: 'NO_ELEMENTS_IN_CONFIG', kind: 'fatal' },
  { code: 158, name: 'TOO_MANY_ROWS', kind: 'fatal' },
  { code: 159, name: 'TIMEOUT_EXCEEDED', kind: 'retry' },
  { code: 160, name: 'TOO_SLOW', kind: 'retry' },
  { code: 164, name: 'READONLY', kind: 'fatal', early: true },
  { code: 173, name: 'CANNOT_ALLOCATE_MEMORY', kind: 'retry' },
  { code: 191, name: 'SET_SIZE_LIMIT_EXCEEDED', kind: 'fatal' },
  { code: 192, name: 'UNKNOWN_USER', kind: 'fatal', early: true },
  { code: 193, name: 'WRONG_PASSWORD', kind: 'fatal', early: true },
  { code: 194, name: 'REQUIRED_PASSWORD', kind: 'fatal', early: true },
  { code: 198, name: 'DNS_ERROR', kind: 'retry' },
  { code: 201, name: 'QUOTA_EXCEEDED', kind: 'retry' },
  { code: 202, name: 'TOO_MANY_SIMULTANEOUS_QUERIES', kind: 'retry', early: true },
  { code: 203, name: 'NO_FREE_CONNECTION', kind: 'retry' },
  { code: 204, name: 'CANNOT_FSYNC', kind: 'retry' },
  { code: 209, name: 'SOCKET_TIMEOUT', kind: 'retry' },
  { code: 210, name: 'NETWORK_ERROR', kind: 'retry' },
  { code: 216, name: 'QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING', kind: 'retry' },
  { code: 225, name: 'NO_ZOOKEEPER', kind: 'retry' },
  { code: 236, name: 'ABORTED', kind: 'retry' },
  { code: 241, name: 'MEMORY_LIMIT_EXCEEDED', kind: 'retry' },
  { code: 242, name: 'TABLE_IS_READ_ONLY', kind: 'retry' },
  { code: 243, name: 'NOT_ENOUGH_SPACE', kind: 'retry' },
  { code: 252, name: 'TOO_MANY_PARTS', kind: 'retry' },
  { code: 254, name: 'NO_ACTIVE_REPLICAS', kind: 'retry' },
  { code: 279, name: 'ALL_CONNECTION_TRIES_FAILED', kind: 'retry' },
  { code: 285, name: 'TOO_FEW_LIVE_REPLICAS', kind: 'retry' },
  { code: 286, name: 'UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE', kind: 'retry' },
  { code: 307, name: 'TOO_MANY_BYTES', kind: 'fatal' },
  { code: 319, name: 'UNKNOWN_STATUS_OF_INSERT', kind: 'retry' },
  { code: 364, name: 'RECEIVED_ERROR_TOO_MANY_REQUESTS', kind: 'retry' },
  { code: 373, name: 'SESSION_IS_LOCKED', kind: 'retry' },
  { code: 394, name: 'QUERY_WAS_CANCELLED', kind: 'retry' },
  { code: 396, name: 'TOO_MANY_ROWS_OR_BYTES', kind: 'fatal' },
  { code: 410, name: 'EXTERNAL_SERVER_IS_NOT_RESPONDING', kind: 'retry' },
  { code: 425, name: 'SYSTEM_ERROR', kind: 'retry' },
  { code: 427, name: 'CANNOT_COMPILE_REGEXP', kind: 'fatal' },
  { code: 439, name: 'CANNOT_SCHEDULE_TASK', kind: 'retry' },
  { code: 452, name: 'SETTING_CONSTRAINT_VIOLATION', kind: 'fatal' },
  { code: 456, name: 'UNKNOWN_QUERY_PARAMETER', kind: 'fatal', early: true },
  { code: 457, name: 'BAD_QUERY_PARAMETER', kind: 'fatal', early: true },
  { code: 473, name: 'DEADLOCK_AVOIDED', kind: 'retry' },
  { code: 497, name: 'ACCESS_DENIED', kind: 'fatal', early: true },
  { code: 499, name: 'S3_ERROR', kind: 'retry' },
  { code: 516, name: 'AUTHENTICATION_FAILED', kind: 'fatal', early: true },
  { code: 574, name: 'DISTRIBUTED_TOO_MANY_PENDING_BYTES', kind: 'retry' },
  { code: 692, name: 'TOO_MANY_MUTATIONS', kind: 'retry' },
  { code: 700, name: 'USER_SESSION_LIMIT_EXCEEDED', kind: 'retry' },
  { code: 722, name: 'ASYNC_LOAD_WAIT_FAILED', kind: 'retry' },
  { code: 733, name: 'TABLE_IS_BEING_RESTARTED', kind: 'retry' },
  { code: 735, name: 'QUERY_WAS_CANCELLED_BY_CLIENT', kind: 'retry' },
  { code: 745, name: 'SERVER_OVERLOADED', kind: 'retry' },
  { code: 749, name: 'TCP_CONNECTION_LIMIT_REACHED', kind: 'retry' },
  { code: 762, name: 'HTTP_CONNECTION_LIMIT_REACHED', kind: 'retry' },
  { code: 776, name: 'RESOURCE_LIMIT_EXCEEDED', kind: 'retry' },
  { code: 778, name: 'MEMORY_RESERVATION_FAILED', kind: 'retry' },
  { code: 999, name: 'KEEPER_EXCEPTION', kind: 'retry' },
  { code: 1000, name: 'POCO_EXCEPTION', kind: 'retry' },
  { code: 1001, name: 'STD_EXCEPTION', kind: 'retry' },
];

const byCode = new Map(knownErrors.map((e) => [e.code, e]));

/**
 * Returns an error with a number of ClickHouse, for our own refusals with the same meaning. Nothing was sent, so
 * nothing was stored.
 */
export function refusal(code: number, message: string): ClickHouseError {
  const known = byCode.get(code);
  return new ClickHouseError(message, {
    code,
    codeName: known?.name ?? 'UNKNOWN',
    kind: known?.kind ?? 'fatal',
    outcome: 'not_written',
  });
}

/** Returns the error of a write that was sent and then ended by us: it may have been stored. */
export function abandoned(codeName: 'ABORT_ERR' | 'ETIMEDOUT', message: string): ClickHouseError {
  return new ClickHouseError(message, { code: undefined, codeName, kind: 'retry', outcome: 'unknown' });
}

/**
 * Parses the engine's own report, as both engines word it: `Code: 252. DB::Exception: <text>. (TOO_MANY_PARTS) (version
 * ...)`. `code` is the number if it came beside the text (X-ClickHouse-Exception-Code). `writes`: the statement could
 * store something. Undefined if the text is no such report.
 */
export function fromEngine(text: string, writes: boolean, code?: number, cause?: unknown): ClickHouseError | undefined {
  const number = code ?? /\bCode: (\d+)\. DB::/.exec(text)?.[1] ?? /^Code: (\d+)\b/.exec(text)?.[1];
  if (number === undefined) return undefined;
  const known = byCode.get(Number(number));
  const named = known?.name ?? [...text.matchAll(/\(([A-Z][A-Z0-9_]{2,})\)/g)].at(-1)?.[1] ?? 'UNKNOWN';
  // An insert looks its views up when it begins, and reads the SELECT of each when rows reach it. Their tables existed
  // then, so a missing table was dropped with its view in between. The same insert, repeated, looks the views up again.
  const isOfView = text.includes(': while pushing to view ');
  const failure: Failure = {
    code: Number(number),
    codeName: named,
    kind: isOfView && known?.name === 'UNKNOWN_TABLE' ? 'retry' : (known?.kind ?? 'fatal'),
    outcome: writes && (isOfView || known?.early !== true) ? 'unknown' : 'not_written',
  };
  return new ClickHouseError(text.trimEnd(), failure, cause);
}

/** Node's codes of errors before anything was sent. */
const unsent = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EAI_NODATA',
  'EAI_FAIL',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENETDOWN',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
]);
/** Node's codes of errors of a connection in use, and of resources that run out temporarily. */
const broken = new Set([
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'ESOCKETTIMEDOUT',
  'ERR_STREAM_PREMATURE_CLOSE',
  'ERR_STREAM_DESTROYED',
  'ABORT_ERR',
  'HPE_INVALID_EOF_STATE',
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'ENOMEM',
  'ENOSPC',
  'EDQUOT',
  'EIO',
  'EAGAIN',
]);

/**
 * Returns the error for a failure that ClickHouse did not report: sockets, the file system, our own bugs. `sent`: the
 * statement may have reached the engine.
 */
export function fromSystem(error: unknown, writes: boolean, sent: boolean): ClickHouseError {
  if (error instanceof ClickHouseError) return error;
  const message = error instanceof Error ? error.message : String(error);
  const code =
    findSystemCode(error) ??
    (/timeout error/i.test(message) ? 'ETIMEDOUT' : /socket hang up|aborted/i.test(message) ? 'ECONNRESET' : undefined);
  const retry = code !== undefined && (unsent.has(code) || broken.has(code));
  const failure: Failure = {
    code: undefined,
    codeName: code ?? 'UNKNOWN',
    kind: retry ? 'retry' : 'fatal',
    outcome: writes && sent && !(code !== undefined && unsent.has(code)) ? 'unknown' : 'not_written',
  };
  return new ClickHouseError(message, failure, error);
}

function findSystemCode(error: unknown): string | undefined {
  for (let e = error; e instanceof Error; e = e.cause) {
    if ('code' in e && typeof e.code === 'string' && /^[A-Z][A-Z0-9_]+$/.test(e.code) && !e.code.startsWith('CHDB_'))
      return e.code;
    if (e instanceof AggregateError) {
      const inner = e.errors.map(findSystemCode).find((c) => c !== undefined);
      if (inner !== undefined) return inner;
    }
  }
  return undefined;
}
