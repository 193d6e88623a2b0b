const KEY = 'sluice.key';

/** The key of this browser session. It is gone when the tab is closed, and never in an address. */
export const session = {
  key: (): string | undefined => sessionStorage.getItem(KEY) ?? undefined,
  signIn: (key: string): void => sessionStorage.setItem(KEY, key),
  signOut: (): void => sessionStorage.removeItem(KEY),
};

/** Returns false if the browser blocks the storage of this site: then each use of it throws. */
export function hasStorage(): boolean {
  try {
    localStorage.getItem(KEY);
    session.key();
    return true;
  } catch {
    return false;
  }
}

export interface Mistake {
  readonly parameter?: string;
  readonly message: string;
}

/** What the service says of an unsuccessful call. */
interface Refusal {
  readonly code?: string;
  readonly message?: string;
  readonly status?: number;
  readonly errors?: readonly Mistake[];
  readonly request_id?: string;
  /** from the header, not the body */
  readonly retryAfterMs?: number;
}

/** An unsuccessful answer. `code` is the service's, or `unreachable` if none arrived; `status` is then 0. */
export class CallError extends Error {
  readonly code: string;
  readonly status: number;
  readonly mistakes: readonly Mistake[];
  readonly requestId: string | undefined;
  /** how long the service asks to be left alone; 0 if it does not */
  readonly retryAfterMs: number;
  constructor(
    message: string,
    { code = 'unexpected', status = 0, errors = [], request_id, retryAfterMs = 0 }: Refusal,
    cause?: unknown,
  ) {
    super(message, { cause });
    this.name = 'CallError';
    this.code = code;
    this.status = status;
    this.mistakes = errors;
    this.requestId = request_id;
    this.retryAfterMs = retryAfterMs;
  }
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
    throw new CallError('The service does not answer.', { code: 'unreachable' }, error);
  }
  if (response.ok) return { text, headers: response.headers, ms: performance.now() - started };
  const retryAfterMs = (Number(response.headers.get('retry-after')) || 0) * 1000;
  const refusal = { ...refusalOf(text), status: response.status, retryAfterMs };
  throw new CallError(refusal.message ?? `The service answered with status ${response.status}.`, refusal);
}

function refusalOf(text: string): Refusal {
  try {
    return (JSON.parse(text) as { error?: Refusal }).error ?? {};
  } catch {
    return {};
  }
}

/** Runs an operators' command with these arguments. Returns its result. */
export async function runCommand<T>(name: string, args: object, signal?: AbortSignal): Promise<T> {
  const answer = await callJson<{ readonly result: T }>(`/api/commands/${name}`, {
    method: 'POST',
    body: args,
    signal,
  });
  return answer.result;
}

/** Returns the body of a successful answer. */
export async function callJson<T>(path: string, options: Call = {}): Promise<T> {
  return JSON.parse((await call(path, options)).text) as T;
}
