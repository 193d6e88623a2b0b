import type { IncomingHttpHeaders } from 'node:http';

/** The caller: what a route may know about its key. */
export interface Caller {
  readonly id: string;
  readonly name: string;
  /** `admin` (all), `query`, `query:<endpoint name>`, `ingest` */
  readonly scopes: readonly string[];
  /** empty means all projects */
  readonly projects: readonly string[];
  /** unix milliseconds */
  readonly expiresAt?: number | undefined;
}

/** A route of another component, served through the HTTP service (push, keys, operators' commands). */
export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** with `:name` for a segment of the path */
  readonly path: string;
  /** the scope that a key needs; `any` accepts every valid key, and the route decides what it shows */
  readonly scope: string;
  /** larger bodies are refused with 413 */
  readonly bodyLimit: number;
  /** how long the connection may stay without a byte while the route works, if longer than two minutes */
  readonly timeoutMs?: number;
  /** how /openapi.json and /docs show it; if absent, they do not */
  readonly documented?: Operation;
  /**
   * Called for every piece of the body as it arrives. Throws ApiError. The returned function is called when the request
   * has been answered.
   */
  admit?(bytes: number, key: Caller): () => void;
  /** Throws ApiError. */
  handle(request: RouteRequest): Promise<RouteResponse>;
  /**
   * Called with the status of every answer, including refusals before the body was read. The component counts these
   * requests itself; they are no queries.
   */
  answered?(request: Pick<RouteRequest, 'query' | 'headers'>, status: number): void;
}

/** A page, a file, a sign-in or a proof, served without a key. Its path lies outside of /api/ and /endpoints/. */
export interface OpenRoute extends Omit<Route, 'scope' | 'admit' | 'handle'> {
  readonly scope?: undefined;
  readonly admit?: undefined;
  /** Throws ApiError. */
  handle(request: Omit<RouteRequest, 'key'>): Promise<RouteResponse>;
}

export type AnyRoute = Route | OpenRoute;

/**
 * An operation of OpenAPI 3.1: the part that a route states itself. Keys and their errors are described once for all
 * routes.
 */
export interface Operation {
  readonly summary: string;
  readonly description: string;
  readonly [more: string]: unknown;
}

export interface RouteRequest {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** as sent, still compressed if content-encoding says so */
  readonly body: Buffer;
  readonly key: Caller;
  /** of the caller, by TRUST_PROXY */
  readonly address: string;
  /** where the connection arrived: local address and port, as endOf writes them */
  readonly arrivedAt: string;
  /** fires when the caller leaves */
  readonly signal: AbortSignal;
}

export interface RouteResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** sent as JSON; undefined for no body */
  readonly json?: unknown;
  /** for the log line of an admin's POST or DELETE, beside key, address and path; no secrets */
  readonly audit?: Readonly<Record<string, unknown>>;
  /** sent unchanged instead of `json`, with the content-type of the headers, in the encoding that the caller prefers */
  readonly body?: Readonly<Record<'plain' | 'gzip' | 'br', Buffer>>;
}
