const KEY = 'sluice.key';

/** The key of this browser session. It is gone when the tab is closed, and never in an address. */
export const session = {
  key: (): string | undefined => sessionStorage.getItem(KEY) ?? undefined,
  signIn: (key: string): void => sessionStorage.setItem(KEY, key),
  signOut: (): void => sessionStorage.removeItem(KEY),
};

export interface Mistake {
  readonly parameter?: string;
  readonly message: string;
}

/** An unsuccessful answer. `code` is the service's, or `unreachable` if none arrived. */
export class CallError extends Error {
  readonly code: string;
  readonly status: number;
  readonly mistakes: readonly Mistake[];
  readonly requestId: string | undefined;
  constructor(
    code: string,
    message: string,
    options: { status?: number; mistakes?: readonly Mistake[]; requestId?: string | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'CallError';
    this.code = code;
    this.status = options.status ?? 0;
    this.mistakes = options.mistakes ?? [];
    this.requestId = options.requestId;
  }
}

interface ErrorBody {
  readonly error?: {
    readonly code?: string;
    readonly message?: string;
    readonly errors?: readonly Mistake[];
    readonly request_id?: string;
  };
}

export interface Answer {
  readonly text: string;
  readonly headers: Headers;
  /** from the call to the last byte, milliseconds */
  readonly ms: number;
}

export interface Call {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  /** a key other than the session's */
  readonly key?: string;
}

const TIMEOUT_MS = 60_000;

/** Calls the service with the session's key. Throws CallError; an AbortError of `signal` stays one. */
export async function call(
  path: string,
  { method = 'GET', body, signal, key = session.key() }: Call = {},
): Promise<Answer> {
  const started = performance.now();
  // throws for a key with characters that no header may contain
  const headers = new Headers({
    ...(key !== undefined && { 'x-api-key': key }),
    ...(body !== undefined && { 'content-type': 'application/json' }),
  });
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, {
      method,
      cache: 'no-store',
      headers,
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), ...(signal === undefined ? [] : [signal])]),
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new CallError('unreachable', 'The service does not answer.', { cause: error });
  }
  if (response.ok) return { text, headers: response.headers, ms: performance.now() - started };
  const { error } = parsed(text);
  throw new CallError(
    error?.code ?? 'unexpected',
    error?.message ?? `The service answered with status ${response.status}.`,
    {
      status: response.status,
      mistakes: error?.errors ?? [],
      requestId: error?.request_id,
    },
  );
}

function parsed(text: string): ErrorBody {
  try {
    return JSON.parse(text) as ErrorBody;
  } catch {
    return {};
  }
}

/** Returns the body of a successful answer. */
export async function callJson<T>(path: string, options: Call = {}): Promise<T> {
  return JSON.parse((await call(path, options)).text) as T;
}
