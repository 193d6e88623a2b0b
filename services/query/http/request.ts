import type { FastifyReply, FastifyRequest } from 'fastify';
import type { CacheResult } from '../answer/answer.ts';
import type { Key } from '../keys/key-ring.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** number of requests in flight */
    inFlight: () => number;
  }
  interface FastifyContextConfig {
    /** needs no key */
    open?: boolean;
    allow?: readonly string[];
    /** pages of other origins may call it: endpoints, push, status and /openapi.json, but not metrics, keys and commands */
    isForBrowsers?: boolean;
    /** Reports the answer to its route. Returns whether the route counts it, instead of the app. */
    answered?: (request: FastifyRequest, status: number) => boolean;
  }
  interface FastifyRequest {
    key: Key | undefined;
    /** for the log line and the metrics */
    outcome: { endpoint: string; cache: CacheResult | '' };
  }
}

export const JSON_TYPE = 'application/json; charset=utf-8';
export const VARY = 'X-API-KEY, Authorization, Accept-Encoding, Origin';
/** Any page may call: it has no cookies of ours, only the key that it sends. */
export const CORS = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'age, allow, etag, ratelimit-limit, ratelimit-remaining, ratelimit-reset, retry-after, x-cache, x-ignored-parameters, x-request-id, x-result-truncated',
} as const;
/** Nothing of ours is run, framed or taken for another type. A page of ours relaxes what it needs. */
export const SAFE = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
} as const;

/** The reason of a query that is cancelled because its caller left. Nobody gets an error. */
export const CALLER_LEFT = new Error('the caller has left');

/** Returns the key of a request to a path that needs one: the app's hook has authenticated it. */
export function keyOf({ key }: FastifyRequest): Key {
  if (key === undefined) throw new Error('unreachable: the hook has authenticated');
  return key;
}

export function queryOf({ raw: { url = '' } }: FastifyRequest): URLSearchParams {
  const at = url.indexOf('?');
  return new URLSearchParams(at < 0 ? '' : url.slice(at + 1));
}

/**
 * Returns a URL in one spelling of all that the router takes for it: percent-encoded letters, absolute form (RFC
 * 9112 section 3.2.2).
 */
export function plainUrl(url: string): string {
  return url
    .replace(/^https?:\/\/[^/?#]*/i, '')
    .replaceAll(/%([0-7][0-9a-f])/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** Returns a signal that fires when the caller leaves before the answer, and has fired if that has happened. */
export function callerOf(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  whenClosed(reply, () => {
    if (!reply.raw.writableEnded) controller.abort(CALLER_LEFT);
  });
  return controller.signal;
}

/** Calls `release` when the request has been answered or its caller has left, at once if that has happened. */
export function whenClosed(reply: FastifyReply, release: () => void): void {
  if (reply.raw.destroyed) release();
  else reply.raw.once('close', release);
}
