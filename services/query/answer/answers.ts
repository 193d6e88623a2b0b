import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import type { Clock } from '../../../common/clock.ts';
import type { Logger } from '../../../common/logger.ts';
import { STALE_MS, createCache, type Cache } from './cache.ts';
import type { Definition } from '../definition/definition.ts';
import { ApiError } from '../../../common/http/errors.ts';
import type { QueryMetrics } from '../metrics.ts';
import type { Params } from '../definition/params.ts';
import { runQuery, secondsOf, type ReadLimits } from './query.ts';
import { inFormat, type OtherFormat } from '../render/formats.ts';
import { etagOf } from '../render/render.ts';
import { convert } from '../render/renderer.ts';
import type { ResponseMemory } from './response-memory.ts';
import type { Shares } from './shares.ts';
import type { QuerySlots } from './query-slots.ts';

/** A result as callers get it. */
export interface Answer {
  /** bytes if it is large */
  readonly body: string | Buffer;
  /** of the body in UTF-8 */
  readonly bytes: number;
  /** weak, of the uncompressed body */
  readonly etag: string;
  readonly truncated: boolean;
  /** the instant the answer is true for, unix milliseconds */
  readonly fetchedAt: number;
  /** compressed copies and other forms, made on demand */
  readonly copies: Map<Encoding, Promise<Buffer>>;
  readonly forms: Map<OtherFormat, Promise<Answer>>;
}
export type CacheResult = 'hit' | 'miss' | 'stale' | 'none';
export type Encoding = 'br' | 'gzip';

export type SharedAnswer = Pick<Answer, 'truncated' | 'fetchedAt'> & { readonly body: string };

/**
 * A cache that several processes share. Never throws: while it is unavailable, it finds nothing and grants every lock.
 */
export interface SharedCache {
  get(key: string): Promise<SharedAnswer | undefined>;
  put(key: string, answer: SharedAnswer): Promise<void>;
  /**
   * True if this process should run the query, which takes at most `queryMs`. False if another process is running it.
   */
  lock(key: string, queryMs: number): Promise<boolean>;
  unlock(key: string): Promise<void>;
}

export interface Answers {
  /**
   * Answers a call of the key `owner` whose parameters were read and allowed. Throws ApiError. `caller` is called only
   * if there is something to wait for; its signal fires when the caller leaves.
   */
  answer(
    definition: Definition,
    params: Params,
    caller: () => AbortSignal,
    owner: string,
  ): Promise<{ answer: Answer; cache: CacheResult }>;
  /** Returns the same answer in another form. A cached answer is converted once. */
  inForm(answer: Answer, format: OtherFormat, definition: Definition): Promise<Answer>;
  /** Returns the body in an encoding. A cached answer is compressed once. */
  encoded(answer: Answer, encoding: Encoding): Promise<Buffer>;
  /** Queries again what is due. Resolves when that is done. */
  requery(): Promise<void>;
  /** Evicts the answers of definitions that are no longer served. */
  keep(definitions: readonly Definition[]): void;
  /** Cancels every query in flight. */
  close(): void;
  readonly cache: Pick<Cache<Kept>, 'size' | 'bytes'>;
}

/** A cached answer and the call that it answers. */
interface Kept {
  readonly key: string;
  readonly answer: Answer;
  readonly definition: Definition;
  readonly params: Params;
}

export interface AnswersOptions {
  readonly clickhouse: Reader;
  readonly slots: QuerySlots;
  readonly responseMemory: Pick<ResponseMemory, 'reserve'>;
  readonly shares: Shares;
  readonly clock: Clock;
  readonly limits: ReadLimits;
  readonly cacheLimits: { maxEntries: number; maxBytes: number };
  readonly logger: Logger;
  readonly metrics: QueryMetrics;
  readonly shared?: SharedCache;
}

interface Landed {
  readonly answer: Answer;
  /** true if this process ran the query, false if another process had the answer */
  readonly ran: boolean;
}

interface Flight {
  readonly promise: Promise<Landed>;
  readonly controller: AbortController;
  waiters: number;
}

/** The owner of requeries. */
const BACKGROUND = '';
/** Larger answers are not shared: they would stall Redis and its readers. */
const SHARED_BYTES = 8 * 1024 * 1024;
/** how often a process asks whether another one has the answer, milliseconds */
const SHARED_POLL_MS = 25;
/** An answer further in the future comes from a process with a wrong clock, so its age is unknown. */
const CLOCKS_DIFFER_MS = 10_000;
const compressors: Record<Encoding, (body: string | Buffer) => Promise<Buffer>> = {
  br: (body) => promisify(brotliCompress)(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (body) => promisify(gzip)(body),
};

/**
 * Returns the cache key: the endpoint, the content of its definition and the canonical parameters. It never contains
 * the caller or the form of the address.
 */
function cacheKey(definition: Definition, params: Params): string {
  return `${definition.id}:${definition.hash}:${JSON.stringify(Object.values(params))}`;
}

/** Returns an answer made of a body. All answers are made here. */
function answerOf({
  body,
  truncated,
  fetchedAt,
  etag,
}: Pick<Answer, 'body' | 'truncated' | 'fetchedAt' | 'etag'>): Answer {
  return { body, bytes: Buffer.byteLength(body), truncated, fetchedAt, etag, copies: new Map(), forms: new Map() };
}

function sharedAnswerOf(shared: SharedAnswer): Answer {
  return answerOf({ ...shared, etag: etagOf(shared.body) });
}

async function formOf(
  { body, truncated, fetchedAt }: Answer,
  format: OtherFormat,
  columns: Definition['columns'],
): Promise<Answer> {
  if (typeof body !== 'string') return answerOf({ ...(await convert(body, format, columns)), truncated, fetchedAt });
  const text = await inFormat(body, format, columns);
  return answerOf({ body: text, truncated, fetchedAt, etag: etagOf(text) });
}

/** Nothing runs by itself: the owner calls requery() every second, and close() at the end. */
export function createAnswers({
  clickhouse,
  slots,
  responseMemory,
  shares,
  clock,
  limits,
  cacheLimits,
  logger,
  metrics,
  shared,
}: AnswersOptions): Answers {
  const cache = createCache<Kept>(cacheLimits);
  const flights = new Map<string, Flight>();
  const cached = new WeakMap<Answer, Kept>();
  const closing = new AbortController();

  async function query(definition: Definition, params: Params, signal: AbortSignal, owner: string): Promise<Answer> {
    const fetchedAt = clock();
    const reserve = (until: AbortSignal): Promise<() => void> => responseMemory.reserve(until, owner);
    const { body, truncated, etag, readRows, readBytes } = await runQuery(clickhouse, {
      definition,
      params,
      now: fetchedAt,
      limits,
      signal,
      reserve,
    });
    metrics.rowsRead.inc({ endpoint: definition.name }, readRows ?? 0);
    metrics.bytesRead.inc({ endpoint: definition.name }, readBytes ?? 0);
    return answerOf({ body, truncated, fetchedAt, etag });
  }

  async function queryInSlot(
    definition: Definition,
    params: Params,
    signal: AbortSignal,
    owner: string,
  ): Promise<Answer> {
    const since = performance.now();
    const release = await slots.acquire(signal, owner);
    metrics.queueSeconds.observe((performance.now() - since) / 1000);
    try {
      return await query(definition, params, signal, owner);
    } finally {
      release();
    }
  }

  /**
   * Runs one query for all processes that share a cache: the one with the lock runs it, the others poll for its answer.
   */
  async function once(
    key: string,
    definition: Definition,
    newerThan: number,
    run: () => Promise<Answer>,
    signal: AbortSignal,
  ): Promise<Landed> {
    if (shared === undefined) return { answer: await run(), ran: true };
    const look = async (): Promise<Landed | undefined> => {
      const found = await shared.get(key);
      return found !== undefined && found.fetchedAt > newerThan && found.fetchedAt <= clock() + CLOCKS_DIFFER_MS
        ? { answer: sharedAnswerOf(found), ran: false }
        : undefined;
    };
    for (;;) {
      signal.throwIfAborted();
      const found = await look();
      if (found !== undefined) return found;
      if (await shared.lock(key, 2 * secondsOf(definition, limits) * 1000)) break;
      await new Promise((resolve) => setTimeout(resolve, SHARED_POLL_MS));
    }
    try {
      // the last holder of the lock may have stored its answer since we looked
      const found = await look();
      if (found !== undefined) return found;
      const answer = await run();
      if (answer.bytes <= SHARED_BYTES)
        await shared.put(key, {
          body: answer.body.toString(),
          truncated: answer.truncated,
          fetchedAt: answer.fetchedAt,
        });
      return { answer, ran: true };
    } finally {
      await shared.unlock(key);
    }
  }

  /** Returns the answer of another process while it may still be served. */
  async function lastShared(key: string, now: number): Promise<Answer | undefined> {
    const last = await shared?.get(key);
    return last !== undefined && now - last.fetchedAt <= STALE_MS ? sharedAnswerOf(last) : undefined;
  }

  /**
   * Joins the query in flight for a key, or starts one with `fetch`. When the last waiting caller leaves, the query is
   * cancelled.
   */
  async function fly(
    key: string,
    caller: AbortSignal,
    fetch: (signal: AbortSignal) => Promise<Landed>,
  ): Promise<Landed> {
    caller.throwIfAborted();
    let flight = flights.get(key);
    if (flight === undefined) {
      const controller = new AbortController();
      const promise = fetch(controller.signal).finally(() => {
        if (flights.get(key)?.controller === controller) flights.delete(key);
      });
      flight = { promise, controller, waiters: 0 };
      flights.set(key, flight);
    }
    const joined = flight;
    joined.waiters++;
    return await new Promise<Landed>((resolve, reject) => {
      const leave = (): void => {
        joined.waiters--;
        if (joined.waiters === 0) {
          if (flights.get(key) === joined) flights.delete(key);
          joined.controller.abort(caller.reason);
        }
        reject(caller.reason as Error);
      };
      caller.addEventListener('abort', leave, { once: true });
      joined.promise.then(resolve, reject).finally(() => caller.removeEventListener('abort', leave));
    });
  }

  function keepAnswer(kept: Kept, askedBy: string | undefined): void {
    cached.set(kept.answer, kept);
    cache.put(kept.key, kept, kept.answer.bytes, kept.definition, kept.answer.fetchedAt, askedBy);
  }

  async function requeryOne({ key, definition, params }: Kept): Promise<void> {
    try {
      // another process may have queried it a moment ago
      const newerThan = clock() - definition.requerySeconds * 500;
      await fly(key, new AbortController().signal, async (signal) => {
        const landed = await once(
          key,
          definition,
          newerThan,
          () => query(definition, params, signal, BACKGROUND),
          signal,
        );
        keepAnswer({ key, definition, params, answer: landed.answer }, undefined);
        return landed;
      });
      metrics.requeries.inc({ endpoint: definition.name, outcome: 'ok' });
    } catch (error) {
      cache.failed(key, clock());
      metrics.requeries.inc({ endpoint: definition.name, outcome: 'failed' });
      logger.warn(
        {
          endpoint: definition.name,
          code: error instanceof ApiError ? error.code : undefined,
          ...(error instanceof ApiError ? {} : { err: error }),
        },
        'requery_failed',
      );
    }
  }

  return {
    async answer(definition, params, caller, owner) {
      shares.note(owner);
      if (definition.cacheSeconds === 0)
        return {
          answer: await queryInSlot(definition, params, AbortSignal.any([caller(), closing.signal]), owner),
          cache: 'none',
        };
      const key = cacheKey(definition, params);
      const asked = clock();
      const found = cache.ask(key, asked, owner);
      if (found?.state === 'fresh') return { answer: found.value.answer, cache: 'hit' };
      try {
        const { answer, ran } = await fly(key, caller(), async (signal) => {
          const landed = await once(
            key,
            definition,
            asked - definition.cacheSeconds * 1000,
            () => queryInSlot(definition, params, signal, owner),
            signal,
          );
          keepAnswer({ key, definition, params, answer: landed.answer }, owner);
          return landed;
        });
        return { answer, cache: ran ? 'miss' : 'hit' };
      } catch (error) {
        if (!(error instanceof ApiError) || error.code !== 'unavailable') throw error;
        const last = found?.value.answer ?? (await lastShared(key, asked));
        if (last === undefined) throw error;
        return { answer: last, cache: 'stale' };
      }
    },

    async inForm(answer, format, { columns }) {
      let form = answer.forms.get(format);
      if (form === undefined) {
        form = formOf(answer, format, columns);
        answer.forms.set(format, form);
        const kept = cached.get(answer);
        if (kept !== undefined) {
          const made = await form;
          cached.set(made, kept);
          cache.grow(kept.key, kept, made.bytes);
        }
      }
      return await form;
    },

    async encoded(answer, encoding) {
      let copy = answer.copies.get(encoding);
      if (copy === undefined) {
        copy = compressors[encoding](answer.body);
        answer.copies.set(encoding, copy);
        const kept = cached.get(answer);
        if (kept !== undefined) cache.grow(kept.key, kept, (await copy).length);
      }
      return await copy;
    },

    async requery() {
      const now = clock();
      cache.sweep(now);
      const started: Promise<void>[] = [];
      for (const kept of cache.due(now)) {
        if (flights.has(kept.key)) continue;
        const release = slots.tryAcquireBackground();
        if (release === undefined) break;
        started.push(requeryOne(kept).finally(release));
      }
      await Promise.all(started);
    },

    keep(definitions) {
      const hashes = new Set(definitions.map((d) => d.hash));
      cache.drop((kept) => hashes.has(kept.definition.hash));
    },
    close() {
      const reason = new ApiError('unavailable', 'the service is stopping', { retryAfterSeconds: 1 });
      closing.abort(reason);
      for (const flight of flights.values()) flight.controller.abort(reason);
    },
    cache,
  };
}
