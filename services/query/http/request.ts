import type { FastifyReply, FastifyRequest } from 'fastify';
import type { CacheResult } from '../answer/answers.ts';
import type { Key } from '../keys/key-ring.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** requests that are not answered yet */
    inFlight: () => number;
  }
  interface FastifyContextConfig {
    /** needs no key */
    open?: true;
    allow?: readonly string[];
    /** Tells the route of an answer. Returns whether the route counts it. */
    answered?: (request: FastifyRequest, status: number) => boolean;
  }
  interface FastifyRequest {
    key: Key | undefined;
    /** for the log line and the metrics */
    outcome: { endpoint: string; cache: CacheResult | '' };
    search: URLSearchParams | undefined;
  }
}

export const JSON_TYPE = 'application/json; charset=utf-8';
export const VARY = 'X-API-KEY, Authorization, Accept-Encoding, Origin';
/** For pages in browsers, wherever they come from: they have no cookies of ours, only the key that they send. */
export const CORS = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'age, allow, etag, ratelimit-limit, ratelimit-remaining, ratelimit-reset, retry-after, x-cache, x-ignored-parameters, x-request-id, x-result-truncated',
} as const;
/** Nothing of ours is run, framed or taken for another type. A page of ours says what it needs. */
export const SAFE = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
} as const;

/** Why a query is ended whose caller went away: nobody is told, and nothing is wrong. */
export const CALLER_LEFT = new Error('the caller has left');

/** The request's query string, read once. */
export function queryOf(request: FastifyRequest): URLSearchParams {
  if (request.search === undefined) {
    const url = request.raw.url ?? '';
    const at = url.indexOf('?');
    request.search = new URLSearchParams(at < 0 ? '' : url.slice(at + 1));
  }
  return request.search;
}

/** Fires when the caller goes away before the answer. */
export function callerOf(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableEnded) controller.abort(CALLER_LEFT);
  });
  return controller.signal;
}

/** Calls `release` when the request has been answered or its caller has left, at once where that has been. */
export function whenClosed(reply: FastifyReply, release: () => void): void {
  if (reply.raw.destroyed) release();
  else reply.raw.once('close', release);
}
