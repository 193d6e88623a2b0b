import { createHmac, hash, randomUUID, timingSafeEqual } from 'node:crypto';
import { createClient } from '@redis/client';
import { within } from '../../../common/lifecycle/within.ts';
import type { Logger } from '../../../common/logger.ts';
import type { SharedAnswer, SharedCache } from './shared-cache.ts';
import { STALE_MS } from './cache.ts';

/**
 * Answers in Redis, shared by several query processes: one process queries, all have the answer, and one lock per key
 * keeps it to one query at a time. An unavailable, slow or full Redis is never an error for a caller: then every
 * process uses its own cache.
 */
const ANSWERS = 'sluice:answer:';
const LOCKS = 'sluice:lock:';
/** a slower Redis counts as unavailable, milliseconds */
const COMMAND_TIMEOUT_MS = 500;
const CONNECT_TIMEOUT_MS = 2_000;
/** After a late answer nothing waits for Redis for this long, milliseconds. A miss would wait five times. */
const SILENCE_MS = 5_000;
/** deletes a lock that is still ours */
const UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

export interface RedisCache extends SharedCache {
  close(): void;
}

/**
 * Returns `MAC unix-ms truncated newline body`. Another writer of this Redis can neither forge an answer nor move one
 * to another key.
 */
function encode(secret: Buffer, key: string, { body, truncated, fetchedAt }: SharedAnswer): string {
  const said = `${fetchedAt} ${truncated ? 1 : 0}\n${body}`;
  return `${mac(secret, key, said)} ${said}`;
}

function decode(secret: Buffer, key: string, text: string): SharedAnswer | undefined {
  const said = text.slice(MAC_CHARACTERS + 1);
  const given = Buffer.from(text.slice(0, MAC_CHARACTERS).padEnd(MAC_CHARACTERS), 'latin1');
  if (!timingSafeEqual(given, Buffer.from(mac(secret, key, said)))) return undefined;
  const head = /^(\d{1,15}) ([01])\n/.exec(said);
  return head === null
    ? undefined
    : { fetchedAt: Number(head[1]), truncated: head[2] === '1', body: said.slice(head[0].length) };
}

const MAC_CHARACTERS = 43;
/** MAC and time */
const HEAD = new RegExp(String.raw`^.{${MAC_CHARACTERS}} (\d{1,15}) `);
const HEAD_BYTES = MAC_CHARACTERS + ' '.length + 15 + ' '.length;

function mac(secret: Buffer, key: string, said: string): string {
  return createHmac('sha256', secret)
    .update(`${Buffer.byteLength(key)}:`)
    .update(key)
    .update(said)
    .digest('base64url');
}

interface RedisOptions {
  readonly url: string;
  /** the same for all processes that share answers */
  readonly secret: Buffer;
  /** how much longer than the time limits of its queries a lock lasts; it ends by itself if its process died */
  readonly lockMarginMs: number;
  readonly logger: Logger;
}

/** Connects, and reconnects for as long as it takes. */
function connect(url: string, logger: Logger) {
  const client = createClient({
    url,
    disableOfflineQueue: true,
    commandsQueueMaxLength: 10_000,
    socket: { connectTimeout: CONNECT_TIMEOUT_MS, reconnectStrategy: (attempt) => Math.min(100 * 2 ** attempt, 3_000) },
  });
  let isUnavailable = false;
  client.on('error', (error: unknown) => {
    if (!isUnavailable) logger.warn({ err: error }, 'redis_unavailable');
    isUnavailable = true;
  });
  client.on('ready', () => {
    if (isUnavailable) logger.info('redis_recovered');
    isUnavailable = false;
  });
  // until it is connected, every command counts as unanswered
  client.connect().catch(() => undefined);
  return client;
}

export function openRedisCache({ url, secret, lockMarginMs, logger }: RedisOptions): RedisCache {
  const client = connect(url, logger);
  const hashed = (key: string): string => hash('sha256', key, 'base64url');
  let silentUntil = -Infinity;
  /** Returns the command's result, or `otherwise` if Redis does not answer in time, or has not lately. */
  async function attempt<T>(command: () => Promise<T>, otherwise: T): Promise<T> {
    if (!client.isReady || performance.now() < silentUntil) return otherwise;
    const late = Symbol('late');
    try {
      const answer = await within(COMMAND_TIMEOUT_MS, command(), late);
      if (answer !== late) return answer;
      silentUntil = performance.now() + SILENCE_MS;
      throw new Error(`no answer in ${COMMAND_TIMEOUT_MS} ms`);
    } catch (error) {
      logger.warn({ err: error }, 'redis_command_failed');
      return otherwise;
    }
  }

  return {
    async get(key) {
      const text = await attempt(() => client.get(ANSWERS + hashed(key)), null);
      if (text === null) return undefined;
      const answer = decode(secret, key, text);
      if (answer === undefined) logger.warn('redis_answer_refused');
      return answer;
    },
    async fetchedAt(key) {
      const head = await attempt(() => client.getRange(ANSWERS + hashed(key), 0, HEAD_BYTES - 1), null);
      if (head === null || head === '') return undefined;
      const [, fetchedAt] = HEAD.exec(head) ?? [];
      if (fetchedAt === undefined) logger.warn('redis_answer_refused');
      return fetchedAt === undefined ? undefined : Number(fetchedAt);
    },
    async put(key, answer) {
      const expiration = { type: 'PX', value: STALE_MS } as const;
      await attempt(() => client.set(ANSWERS + hashed(key), encode(secret, key, answer), { expiration }), null);
    },
    async lock(key, queryMs) {
      const [lock, token] = [LOCKS + hashed(key), randomUUID()];
      const expiration = { type: 'PX', value: queryMs + lockMarginMs } as const;
      const taken = await attempt(() => client.set(lock, token, { condition: 'NX', expiration }), 'unavailable');
      if (taken === null) return undefined;
      // also if Redis did not answer in time: it may still take the lock, and runs the release after that
      return async () => {
        const released = client.eval(UNLOCK, { keys: [lock], arguments: [token] });
        released.catch(() => undefined);
        await attempt(() => released, null);
      };
    },
    close() {
      client.destroy();
    },
  };
}
