import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import type { Definition } from '../definition/definition.ts';
import type { Params } from '../definition/params.ts';
import type { QueryMetrics } from '../metrics.ts';
import type { OtherFormat } from '../render/formats.ts';
import { convert } from '../render/renderer.ts';
import { answerOf, compressors, type Answer, type CacheResult, type Encoding } from './answer.ts';
import { createCache, type Ask } from './cache.ts';
import { BACKGROUND, NoRoom, type QuerySlots } from './query-slots.ts';
import { SMALL_RESULT_BYTES, runQuery, secondsOf, type ReadLimits } from './query.ts';
import type { ResponseMemory } from './response-memory.ts';
import { createSharedQueries, type QueryOutcome, type SharedCache } from './shared-cache.ts';
import type { Shares } from './shares.ts';
import { createSingleFlight } from './single-flight.ts';

/** A call of an endpoint with its canonical parameters. */
interface Call {
  readonly definition: Definition;
  readonly params: Params;
}

/** A cached answer and the call that it answers. */
interface Kept extends Call {
  readonly key: string;
  readonly answer: Answer;
}

interface AnswersOptions {
  readonly clickhouse: Reader;
  readonly slots: QuerySlots;
  readonly responseMemory: Pick<ResponseMemory, 'reserve' | 'take'>;
  readonly shares: Shares;
  readonly clock: Clock;
  readonly limits: ReadLimits;
  readonly cacheLimits: { maxEntries: number; maxBytes: number };
  readonly logger: Logger;
  readonly metrics: QueryMetrics;
  readonly shared?: SharedCache | undefined;
  /** False for a definition that a reload has replaced or taken away: its answers are not queried again. */
  readonly isServed: (definition: Definition) => boolean;
}

/**
 * Returns the cache key: the endpoint, the content of its definition and the canonical parameters. It never contains
 * the caller, nor which of the endpoint's paths was called.
 */
function cacheKey(definition: Definition, params: Params): string {
  return `${definition.id}:${definition.hash}:${JSON.stringify(Object.values(params))}`;
}

/**
 * Tries once more if the joined work failed because the API key that began it had no slot or memory left: `owner` may
 * have some. A requery, which has no `owner` here, is not tried again.
 */
async function twiceIfJoined<T>(owner: string | undefined, join: () => Promise<T>): Promise<T> {
  try {
    return await join();
  } catch (error) {
    if (!(error instanceof NoRoom) || owner === undefined || error.owner === owner) throw error;
    return await join();
  }
}

/** Runs queries: for a caller in a slot of its API key, for a requery in the slot that `requery` has taken. */
function createQueries({ clickhouse, slots, responseMemory, clock, limits, metrics }: AnswersOptions) {
  async function query(call: Call, signal: AbortSignal, owner: string, format?: OtherFormat): Promise<Answer> {
    const { definition, params } = call;
    const fetchedAt = clock();
    const { body, truncated, etag, readRows, readBytes } = await runQuery(clickhouse, {
      definition,
      params,
      format,
      now: fetchedAt,
      limits,
      signal,
      reserve: (until) => responseMemory.reserve(until, owner),
    });
    metrics.rowsRead.inc({ endpoint: definition.name }, readRows ?? 0);
    metrics.bytesRead.inc({ endpoint: definition.name }, readBytes ?? 0);
    return answerOf({ body, truncated, fetchedAt, etag });
  }

  async function queryInSlot(call: Call, signal: AbortSignal, owner: string, format?: OtherFormat): Promise<Answer> {
    const since = performance.now();
    const release = await slots.acquire(signal, owner);
    metrics.queueSeconds.observe((performance.now() - since) / 1000);
    try {
      return await query(call, signal, owner, format);
    } finally {
      release();
    }
  }
  return { query, queryInSlot };
}

/** Returns what `made` has under a name, or makes it. What failed is made anew by the next caller. */
function madeOnce<K, T>(made: Map<K, Promise<T>>, name: K, owner: string, make: () => Promise<T>): Promise<T> {
  return twiceIfJoined(owner, () => {
    let making = made.get(name);
    if (making === undefined) {
      making = make();
      made.set(name, making);
      making.catch(() => made.delete(name));
    }
    return making;
  });
}

/** Cached answers, with their other forms and compressed copies, which are charged to their entry. */
function createKeptAnswers({ cacheLimits, responseMemory }: AnswersOptions) {
  const cache = createCache<Kept>(cacheLimits);
  /** the entry of a cached answer, and of its other forms */
  const entries = new WeakMap<Answer, Kept>();
  function put(kept: Kept, ask: Ask | undefined): void {
    entries.set(kept.answer, kept);
    cache.put(kept, ask);
  }
  function charge(entry: Kept | undefined, bytes: number): void {
    if (entry !== undefined) cache.grow(entry, bytes);
  }
  /**
   * Returns the same answer in another form. For a cached one it is made once. Throws `unavailable` without memory.
   * A large answer reserves some: what its query had reserved has been given back by then.
   */
  const inForm = (answer: Answer, format: OtherFormat, { columns }: Definition, owner: string): Promise<Answer> =>
    madeOnce(answer.forms, format, owner, async () => {
      // several callers may wait for it, so it goes on if one leaves
      const goesOn = new AbortController().signal;
      const release = answer.bytes > SMALL_RESULT_BYTES ? await responseMemory.reserve(goesOn, owner) : undefined;
      try {
        const { body, truncated, fetchedAt } = answer;
        const form = answerOf({ ...(await convert(body, format, columns)), truncated, fetchedAt });
        const entry = entries.get(answer);
        if (entry !== undefined) entries.set(form, entry);
        charge(entry, form.bytes);
        return form;
      } finally {
        release?.();
      }
    });
  /**
   * Returns the body in an encoding. A cached answer is compressed once. Throws `unavailable` without memory. A large
   * answer counts meanwhile: what its query had reserved has been given back by then.
   */
  const encoded = (answer: Answer, encoding: Encoding, owner: string): Promise<Buffer> =>
    madeOnce(answer.copies, encoding, owner, async () => {
      const giveBack = answer.bytes > SMALL_RESULT_BYTES ? responseMemory.take(answer.bytes, owner) : undefined;
      try {
        const copy = await compressors[encoding](answer.body);
        charge(entries.get(answer), copy.length);
        return copy;
      } finally {
        giveBack?.();
      }
    });
  return { cache, put, inForm, encoded };
}

/** One query at a time for each answer, shared by all who wait for it here and in other processes. */
function createQueryJoins({ shared, clock, limits }: AnswersOptions, put: (kept: Kept, ask: Ask | undefined) => void) {
  const flights = createSingleFlight<QueryOutcome>();
  const sharedQueries = createSharedQueries(shared, clock);
  /** Joins the query of an answer, or runs it and caches its answer. */
  const joinOrRun = (
    { key, definition, params }: Omit<Kept, 'answer'>,
    caller: AbortSignal,
    newerThan: number,
    run: (signal: AbortSignal) => Promise<Answer>,
    ask: Ask | undefined,
  ): Promise<QueryOutcome> =>
    twiceIfJoined(ask?.owner, () =>
      flights.fly(key, caller, async (signal) => {
        // at most two queries: with the limits of a small answer, then with those of a large one (query.ts)
        const longestMs = 2 * secondsOf(definition, limits) * 1000;
        const outcome = await sharedQueries.once(key, newerThan, longestMs, () => run(signal), signal);
        put({ key, definition, params, answer: outcome.answer }, ask);
        return outcome;
      }),
    );
  return { flights, sharedQueries, joinOrRun };
}

export type Answers = ReturnType<typeof createAnswers>;

/** Nothing runs by itself: the service calls requery() every second, and close() at the end. */
export function createAnswers(options: AnswersOptions) {
  const { slots, shares, clock, logger, metrics, isServed } = options;
  const { query, queryInSlot } = createQueries(options);
  const { cache, put, inForm, encoded } = createKeptAnswers(options);
  const { flights, sharedQueries, joinOrRun } = createQueryJoins(options, put);
  const closing = new AbortController();

  async function requeryOne(kept: Kept): Promise<void> {
    const { key, definition } = kept;
    try {
      // another process may have queried it within half the interval
      const newerThan = clock() - (definition.requerySeconds * 1000) / 2;
      const run = (signal: AbortSignal): Promise<Answer> => query(kept, signal, BACKGROUND);
      await joinOrRun(kept, new AbortController().signal, newerThan, run, undefined);
      metrics.requeries.inc({ endpoint: definition.name, outcome: 'ok' });
    } catch (error) {
      cache.failed(key, clock());
      metrics.requeries.inc({ endpoint: definition.name, outcome: 'failed' });
      const reason = error instanceof ApiError ? { code: error.code } : { err: error };
      logger.warn({ endpoint: definition.name, ...reason }, 'requery_failed');
    }
  }

  /** Queries again what is due. Resolves when that is done. */
  async function requery(): Promise<void> {
    const started: Promise<void>[] = [];
    const now = clock();
    cache.sweep(now);
    for (const kept of cache.due(now)) {
      if (flights.has(kept.key) || !isServed(kept.definition)) continue;
      const release = slots.tryAcquireBackground();
      if (release === undefined) break;
      started.push(requeryOne(kept).finally(release));
    }
    await Promise.all(started);
  }

  return {
    /**
     * Answers a call of the key `owner` whose parameters were read and allowed. Throws ApiError. `caller` is called
     * only if there is something to wait for; its signal fires when the caller leaves. An answer that is not cached
     * comes in `format`, any other as JSON, for `inForm`.
     */
    async answer(
      definition: Definition,
      params: Params,
      caller: () => AbortSignal,
      owner: string,
      format?: OtherFormat,
    ): Promise<{ answer: Answer; cache: CacheResult }> {
      shares.note(owner);
      if (definition.cacheSeconds === 0) {
        const signal = AbortSignal.any([caller(), closing.signal]);
        return { answer: await queryInSlot({ definition, params }, signal, owner, format), cache: 'none' };
      }
      const key = cacheKey(definition, params);
      const asked = clock();
      const found = cache.ask(key, asked, owner);
      if (found?.isFresh === true) return { answer: found.value.answer, cache: 'hit' };
      try {
        const newerThan = asked - definition.cacheSeconds * 1000;
        const call = { key, definition, params };
        const run = (signal: AbortSignal): Promise<Answer> => queryInSlot(call, signal, owner);
        const { answer, ran } = await joinOrRun(call, caller(), newerThan, run, { owner, at: asked });
        return { answer, cache: ran ? 'miss' : 'hit' };
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'unavailable') throw error;
        const last = found?.value.answer ?? (await sharedQueries.last(key, asked));
        if (last === undefined) throw error;
        return { answer: last, cache: 'stale' };
      }
    },
    inForm,
    encoded,
    requery,
    /** Cancels every query in flight. */
    close(): void {
      const reason = new ApiError('unavailable', 'the service is stopping', { retryAfterSeconds: 1 });
      closing.abort(reason);
      flights.cancel(reason);
    },
    cache,
  };
}
