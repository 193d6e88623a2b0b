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
  readonly early: boolean;
}

/** 32 is one of them: rows were cut short on the way. They were whole when they were sent. */
const RETRY = `
  3:UNEXPECTED_END_OF_FILE 23:CANNOT_READ_FROM_ISTREAM 24:CANNOT_WRITE_TO_OSTREAM 32:ATTEMPT_TO_READ_AFTER_EOF
  33:CANNOT_READ_ALL_DATA 74:CANNOT_READ_FROM_FILE_DESCRIPTOR 75:CANNOT_WRITE_TO_FILE_DESCRIPTOR 76:CANNOT_OPEN_FILE
  95:CANNOT_READ_FROM_SOCKET 96:CANNOT_WRITE_TO_SOCKET 107:FILE_DOESNT_EXIST 159:TIMEOUT_EXCEEDED 160:TOO_SLOW
  173:CANNOT_ALLOCATE_MEMORY 198:DNS_ERROR 201:QUOTA_EXCEEDED 203:NO_FREE_CONNECTION 204:CANNOT_FSYNC
  209:SOCKET_TIMEOUT 210:NETWORK_ERROR 216:QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING 225:NO_ZOOKEEPER 236:ABORTED
  241:MEMORY_LIMIT_EXCEEDED 242:TABLE_IS_READ_ONLY 243:NOT_ENOUGH_SPACE 252:TOO_MANY_PARTS 254:NO_ACTIVE_REPLICAS
  279:ALL_CONNECTION_TRIES_FAILED 285:TOO_FEW_LIVE_REPLICAS 286:UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
  319:UNKNOWN_STATUS_OF_INSERT 364:RECEIVED_ERROR_TOO_MANY_REQUESTS 373:SESSION_IS_LOCKED 394:QUERY_WAS_CANCELLED
  410:EXTERNAL_SERVER_IS_NOT_RESPONDING 425:SYSTEM_ERROR 439:CANNOT_SCHEDULE_TASK 473:DEADLOCK_AVOIDED 499:S3_ERROR
  574:DISTRIBUTED_TOO_MANY_PENDING_BYTES 692:TOO_MANY_MUTATIONS 700:USER_SESSION_LIMIT_EXCEEDED
  722:ASYNC_LOAD_WAIT_FAILED 733:TABLE_IS_BEING_RESTARTED 735:QUERY_WAS_CANCELLED_BY_CLIENT 745:SERVER_OVERLOADED
  749:TCP_CONNECTION_LIMIT_REACHED 762:HTTP_CONNECTION_LIMIT_REACHED 776:RESOURCE_LIMIT_EXCEEDED
  778:MEMORY_RESERVATION_FAILED 999:KEEPER_EXCEPTION 1000:POCO_EXCEPTION 1001:STD_EXCEPTION`;
/** Raised before a statement starts to run, so nothing can have been stored. */
const EARLY = `
  46:UNKNOWN_FUNCTION 47:UNKNOWN_IDENTIFIER 60:UNKNOWN_TABLE 62:SYNTAX_ERROR 81:UNKNOWN_DATABASE 115:UNKNOWN_SETTING
  164:READONLY 192:UNKNOWN_USER 193:WRONG_PASSWORD 194:REQUIRED_PASSWORD 456:UNKNOWN_QUERY_PARAMETER
  457:BAD_QUERY_PARAMETER 497:ACCESS_DENIED 516:AUTHENTICATION_FAILED`;
const FATAL = `
  15:DUPLICATE_COLUMN 27:CANNOT_PARSE_INPUT_ASSERTION_FAILED 57:TABLE_ALREADY_EXISTS 117:INCORRECT_DATA
  139:NO_ELEMENTS_IN_CONFIG 158:TOO_MANY_ROWS 191:SET_SIZE_LIMIT_EXCEEDED 307:TOO_MANY_BYTES
  396:TOO_MANY_ROWS_OR_BYTES 427:CANNOT_COMPILE_REGEXP 452:SETTING_CONSTRAINT_VIOLATION`;

/** Returns the entries of a list of `number:NAME`. */
function listed(list: string, kind: ErrorKind, early = false): Known[] {
  return [...list.matchAll(/(\d+):(\w+)/g)].map(([, code, name = '']) => ({ code: Number(code), name, kind, early }));
}

/**
 * The numbers with a known meaning, from ClickHouse's src/Common/ErrorCodes.cpp. The retry list contains that of
 * ClickHouse's own Kafka Connect sink (Utils.handleException), except 164 READONLY, which here means a writer without
 * the right to write. Any other number is fatal.
 */
export const knownErrors: readonly Known[] = [
  ...listed(RETRY, 'retry'),
  ...listed('202:TOO_MANY_SIMULTANEOUS_QUERIES', 'retry', true),
  ...listed(EARLY, 'fatal', true),
  ...listed(FATAL, 'fatal'),
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

/** True if ClickHouse did not report the failure: it may not know of the statement, or may still run it. */
export function isUnanswered(error: unknown): error is ClickHouseError {
  return error instanceof ClickHouseError && error.code === undefined;
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
const unsent = new Set(
  `ECONNREFUSED ENOTFOUND EAI_AGAIN EAI_NODATA EAI_FAIL EHOSTUNREACH ENETUNREACH ENETDOWN EADDRNOTAVAIL
  UND_ERR_CONNECT_TIMEOUT`.split(/\s+/),
);
/** Node's codes of errors of a connection in use, and of resources that run out temporarily. */
const broken = new Set(
  `ECONNRESET ECONNABORTED EPIPE ETIMEDOUT ESOCKETTIMEDOUT ERR_STREAM_PREMATURE_CLOSE ERR_STREAM_DESTROYED ABORT_ERR
  HPE_INVALID_EOF_STATE EMFILE ENFILE ENOBUFS ENOMEM ENOSPC EDQUOT EIO EAGAIN`.split(/\s+/),
);

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
