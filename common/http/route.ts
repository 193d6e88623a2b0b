/** Who calls: as much of a key as a route may know. */
export interface Caller {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  /** empty = all projects */
  readonly projects: readonly string[];
  /** unix milliseconds */
  readonly expiresAt?: number | undefined;
}

/** A route that another part of the process serves through the HTTP service (push, keys, commands of operators). */
export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** with `:name` for a part of the path */
  readonly path: string;
  /** the scope that a key needs; `any`: every valid key may call it, and the route decides what it shows */
  readonly scope: string;
  /** larger bodies are refused with 413 */
  readonly bodyLimit: number;
  /** how /openapi.json and /docs show it; absent = not at all */
  readonly documented?: Operation;
  /**
   * Asked for every piece of the body as it comes, bytes. Throws ApiError; what it returns is called when the request
   * has been answered.
   */
  admit?(bytes: number, key: Caller): () => void;
  /** Throws ApiError. */
  handle(request: RouteRequest): Promise<RouteResponse>;
  /**
   * Called with the status of every answer, of refusals before the body was read too. The part counts these requests
   * itself; they are no queries.
   */
  answered?(request: Pick<RouteRequest, 'query' | 'headers'>, status: number): void;
}

/**
 * A page, a file, a sign-in or a proof: the HTTP service serves it without a key. Its path lies outside of /api/ and
 * /endpoints/.
 */
export interface OpenRoute extends Pick<Route, 'method' | 'path' | 'bodyLimit'> {
  /** Throws ApiError. */
  handle(request: Omit<RouteRequest, 'key'>): Promise<RouteResponse>;
}

/**
 * An operation of OpenAPI 3.1, the part of it that a route tells itself: who may call and what a wrong key is answered
 * is said for all.
 */
export interface Operation {
  readonly summary: string;
  readonly description: string;
  readonly [more: string]: unknown;
}

export interface RouteRequest {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** as it was sent: still compressed where content-encoding says so */
  readonly body: Buffer;
  readonly key: Caller;
  /** of the caller, as TRUST_PROXY has it */
  readonly address: string;
  /** that the caller is connected to */
  readonly port: number;
  /** fires when the caller goes away */
  readonly signal: AbortSignal;
}

export interface RouteResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** sent as JSON; undefined = no body */
  readonly json?: unknown;
  /** for the log line that an admin's POST or DELETE leaves, beside key, address and path; no secrets */
  readonly audit?: Readonly<Record<string, unknown>>;
  /** sent as it is, with the headers' content-type and content-encoding, in the place of `json` */
  readonly body?: Buffer;
}
