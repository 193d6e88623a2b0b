import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../common/clock.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { createFailures, networkOf } from '../keys/failures.ts';
import type { KeyLoader } from '../keys/key-loader.ts';
import type { KeyCheck, KeyRing } from '../keys/key-ring.ts';
import type { QueryMetrics } from '../metrics.ts';
import { CALLER_LEFT, plainUrl, queryOf } from './request.ts';

export interface AuthenticationOptions {
  readonly keys: KeyRing;
  readonly loader: Pick<KeyLoader, 'noteUse' | 'refresh'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: QueryMetrics;
  /** requests a minute; 0 means no limit */
  readonly ratePerKey: number;
  readonly ratePerAddress: number;
}

const FAILED_AUTHENTICATIONS_PER_MINUTE = 60;

/** Looks keys up, and blocks addresses whose keys are wrong too often. */
function createLookup({ keys, loader, clock, logger, metrics }: AuthenticationOptions) {
  const failures = createFailures(FAILED_AUTHENTICATIONS_PER_MINUTE);
  /** number of callers that wait for the newest list */
  let lookups = 0;
  const blockedFor = (address: string): number | undefined => failures.blockedFor(address, performance.now());

  function reportFailure(request: FastifyRequest, blocks: boolean): void {
    metrics.failedAuthentications.inc();
    if (!blocks || blockedFor(request.ip) === undefined) return;
    metrics.blockedAddresses.inc();
    logger.warn({ address: request.ip, request_id: request.id }, 'address_blocked');
  }

  return {
    blockedFor,
    /**
     * True if an address is blocked while callers wait for a newer list. If that list has their keys, `checkKey` takes
     * their failures back, and the address may be free again.
     */
    mayBeUnblocked: (address: string): boolean => lookups > 0 && blockedFor(address) !== undefined,
    /**
     * Checks the key by the list at hand, and one that it does not have by the newest list. A failure counts before the
     * wait for that list, so concurrent guesses all count, and is taken back if that list has the key.
     */
    async checkKey(request: FastifyRequest, presented: string | undefined): Promise<KeyCheck> {
      let check = presented === undefined ? 'unauthorized' : keys.check(presented, clock());
      if (typeof check === 'object') return check;
      const counts = check === 'unauthorized';
      // true for the failure that reaches the limit: it alone is reported as the one that blocks
      const blocks = counts && failures.note(request.ip, performance.now());
      if (presented !== undefined) {
        lookups++;
        // another process may have created it a moment ago, or this process slept until its list was too old
        await loader.refresh();
        lookups--;
        check = keys.check(presented, clock());
      }
      // without another await: those who wait for the same list must see what is taken back
      if (counts && typeof check === 'object') failures.takeBack(request.ip);
      else if (counts) reportFailure(request, blocks);
      // the first list, or one after an hour, came only now
      else if (check === 'unauthorized') reportFailure(request, failures.note(request.ip, performance.now()));
      return check;
    },
  };
}

/**
 * Decides who may call, and how often. Each function throws ApiError. Uses @fastify/rate-limit, which the app has
 * registered.
 */
export function createAuthentication(app: FastifyInstance, options: AuthenticationOptions) {
  const { loader, clock, metrics, ratePerKey, ratePerAddress } = options;
  const lookup = createLookup(options);

  /** Returns what limits the requests a minute of those who have the same name. A `max` of 0 means no limit. */
  function rateOf(max: number, nameOf: (request: FastifyRequest) => string) {
    const check = max > 0 ? app.createRateLimit({ max, timeWindow: 60_000, keyGenerator: nameOf }) : undefined;
    return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
      if (check === undefined) return;
      const limit = await check(request);
      // on an allow list, which we do not use: this narrows the type
      if (limit.isAllowed) return;
      const seconds = limit.ttlInSeconds;
      reply.headers({
        'ratelimit-limit': limit.max,
        'ratelimit-remaining': limit.remaining,
        'ratelimit-reset': seconds,
      });
      if (limit.isExceeded) throw new ApiError('rate_limited', 'too many requests', { retryAfterSeconds: seconds });
    };
  }
  const limitAddress = rateOf(ratePerAddress, ({ ip }) => networkOf(ip));
  const limitKey = rateOf(ratePerKey, ({ key }) => key?.id ?? '');

  /** Sets the request's key, unless the path needs none. */
  async function authenticate(request: FastifyRequest): Promise<void> {
    if (request.routeOptions.config?.open === true || (request.is404 && !isGuarded(request.raw.url ?? ''))) return;
    // before the key is checked: a blocked caller must not learn which key is right
    if (lookup.mayBeUnblocked(request.ip)) await loader.refresh();
    // no await from here until the failure counts, or concurrent guesses would pass together
    const retryAfterSeconds = lookup.blockedFor(request.ip);
    if (retryAfterSeconds !== undefined) {
      metrics.blockedRequests.inc();
      throw new ApiError('rate_limited', 'too many requests without a valid key came from this address', {
        retryAfterSeconds,
      });
    }
    const presented = presentedKey(request);
    const check = await lookup.checkKey(request, presented);
    if (check === 'unavailable')
      throw new ApiError('unavailable', 'the keys are not loaded yet', { retryAfterSeconds: 1 });
    if (check === 'unauthorized')
      throw new ApiError(
        'unauthorized',
        presented === undefined ? 'a key is required: send it as X-API-KEY' : 'the key is not valid',
      );
    request.key = check.key;
    loader.noteUse(check.key, clock());
  }

  /** Sets the key of a request that needs none but brings one. A wrong key counts as a failure, and as no key. */
  async function recognize(request: FastifyRequest): Promise<void> {
    const presented = presentedKey(request);
    if (presented === undefined || lookup.blockedFor(request.ip) !== undefined) return;
    const check = await lookup.checkKey(request, presented);
    if (typeof check === 'object') request.key = check.key;
  }

  /** Lets the request in within both rates, and sets its key, unless the path needs none. */
  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    // node has no address of a connection that its caller has reset
    if ((request.ip as string | undefined) === undefined) throw CALLER_LEFT;
    if (request.routeOptions.config?.open !== true) await limitAddress(request, reply);
    await authenticate(request);
    if (request.key !== undefined) await limitKey(request, reply);
  }

  return { admit, recognize };
}

/**
 * Returns the key that decides: the first one that is present and not empty. Other Authorization schemes are not keys.
 */
function presentedKey(request: FastifyRequest): string | undefined {
  const header = request.headers['x-api-key'];
  if (typeof header === 'string' && header.trim() !== '') return header.trim();
  const bearer = /^bearer +(.*)$/i.exec(request.headers.authorization ?? '')?.[1]?.trim();
  if (bearer !== undefined && bearer !== '') return bearer;
  const parameter = queryOf(request).get('api_key');
  return parameter === null || parameter === '' ? undefined : parameter;
}

/**
 * Returns whether a path needs a key. Without one, callers learn nothing below these paths, not even that a path does
 * not exist. It holds for every spelling, in other case too.
 */
function isGuarded(url: string): boolean {
  return /^\/+(api|endpoints)(\/|\?|#|$)/i.test(plainUrl(url));
}
