/** One wrong parameter, with a sentence for the caller. */
export interface ParameterMistake {
  readonly parameter: string;
  readonly message: string;
}

/** One refused event, by its position in the body, from 0. */
export interface EventMistake {
  readonly index: number;
  readonly message: string;
}

/** The closed list of error codes. */
const statuses = {
  invalid_parameter: 400,
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  conflict: 409,
  payload_too_large: 413,
  too_large: 414,
  unsupported_encoding: 415,
  invalid_events: 422,
  rate_limited: 429,
  internal: 500,
  unavailable: 503,
  timeout: 504,
} as const;
export type ErrorCode = keyof typeof statuses;

/**
 * An error that the caller gets in the envelope. The message is one sentence for the caller, without SQL, file names or
 * ClickHouse's text.
 */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly mistakes: readonly (ParameterMistake | EventMistake)[];
  readonly retryAfterSeconds: number | undefined;
  readonly allow: string | undefined;
  /** `status` is for codes with more than one (`too_large`: 414, or 431 if it is unclear which line is too long) */
  constructor(
    code: ErrorCode,
    message: string,
    options: {
      mistakes?: readonly (ParameterMistake | EventMistake)[];
      retryAfterSeconds?: number;
      allow?: string;
      status?: 431;
      cause?: unknown;
    } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'ApiError';
    this.code = code;
    this.status = options.status ?? statuses[code];
    this.mistakes = options.mistakes ?? [];
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.allow = options.allow;
  }
}

/** Returns one error that lists every wrong parameter of a call. */
export function invalidParameters(mistakes: readonly ParameterMistake[], cause?: unknown): ApiError {
  return new ApiError(
    'invalid_parameter',
    `${mistakes.length === 1 ? 'a parameter is' : 'parameters are'} wrong: ${mistakes.map((m) => m.parameter).join(', ')}`,
    { mistakes, cause },
  );
}

/** Returns all mistakes in one line of text. */
export function wordsOf(mistakes: ApiError['mistakes']): string {
  return mistakes.map((m) => `${'parameter' in m ? m.parameter : m.index} ${m.message}`).join('; ');
}

/** Returns the JSON of a body. Throws ApiError with this message if it is none. */
export function readJson(body: Buffer, message: string): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw new ApiError('invalid_request', message, { cause: error });
  }
}

/** Returns the error envelope of every endpoint. */
export function envelope(error: ApiError, requestId: string): string {
  return JSON.stringify({
    error: {
      code: error.code,
      message: error.message,
      status: error.status,
      ...(error.mistakes.length > 0 && { errors: error.mistakes }),
      request_id: requestId,
    },
  });
}
