import { readFileSync } from 'node:fs';
import type { FastifyInstance } from 'fastify';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { systemClock, type Clock } from '../../common/clock.ts';
import { SHORTEST_API_KEY } from '../../common/config/contradictions.ts';
import type { Settings } from '../../common/config/settings.ts';
import type { AnyRoute } from '../../common/http/route.ts';
import type { Logger } from '../../common/logger.ts';
import { portError, serveMetrics, type MetricsServer } from '../../common/metrics-server.ts';
import type { Registry } from '../../common/metrics.ts';
import type { Checks } from '../../common/readiness.ts';
import { createAnswers } from './answer/answers.ts';
import type { RedisCache } from './answer/redis-cache.ts';
import { createApp, type AppOptions } from './http/app.ts';
import { listenOnSockets, type Listening } from './http/listen.ts';
import { foldersOf } from './definition/definition-files.ts';
import { serveDefinitions } from './definition/served-definitions.ts';
import { firstKey } from './keys/first-key.ts';
import { keyRoutes } from './keys/key-routes.ts';
import { startKeyLoader } from './keys/key-loader.ts';
import { createKeyRing, hashKey } from './keys/key-ring.ts';
import { createQueryMetrics } from './metrics.ts';
import { limitsOf } from './answer/query.ts';
import { createResponseMemory } from './answer/response-memory.ts';
import { createShares } from './answer/shares.ts';
import { createQuerySlots } from './answer/query-slots.ts';
import { whenOpen } from './when-open.ts';

export interface QueryOptions {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly clock?: Clock;
  /** readiness of other components, for /readyz */
  readonly checks?: Checks;
  /** routes of other components */
  readonly routes?: readonly AnyRoute[];
  /** Resolves when the schema exists. Until then, and until the definitions are checked, callers get 503. */
  readonly schema?: Promise<unknown>;
}

export type QueryService = Awaited<ReturnType<typeof startQuery>>;

const REQUERY_TICK_MS = 1_000;
const QUEUE_WAIT_MS = 2_000;
const CACHE_ENTRIES = 10_000;
/**
 * A lock in Redis covers the wait for a slot and the time limits of both queries. It lasts this much longer, for the
 * wait for memory and for rendering.
 */
const LOCK_MARGIN_MS = 3_000;
/** At stop, requests in flight get this long before their queries are cancelled, */
const DRAIN_MS = 5_000;
/** and this long after that to receive their error. */
const ANSWER_MS = 1_500;
const IDLE_CHECK_MS = 20;

/**
 * Starts the query service. It listens at once, and answers 503 until ClickHouse and the schema are available and the
 * definitions have been checked. Until then it answers from Redis what another process has answered by the same
 * definitions. Throws StartError.
 */
export async function startQuery(options: QueryOptions) {
  const { clickhouse, settings, logger, registry, clock = systemClock, schema = Promise.resolve() } = options;
  const definitions = serveDefinitions(foldersOf(settings), clickhouse, logger);
  const first = firstKey(settings);
  if (settings.API_KEY !== undefined && settings.API_KEY.length < SHORTEST_API_KEY)
    logger.warn({ characters: settings.API_KEY.length, wanted: SHORTEST_API_KEY }, 'api_key_short');

  const stopping = new AbortController();
  const checked = definitions.checkFirst(schema, stopping.signal);
  const { answers, responseMemory, metrics, shared } = await startAnswers(
    // wait for the schema and the check: a wrong definition could show rows of other projects before the check stops us
    { ...options, clock, clickhouse: whenOpen(checked.then(() => clickhouse)) },
    definitions,
    first.key.hash,
    // not called before `app` exists: only a scrape calls it
    () => app.inFlight(),
  );
  const ring = createKeyRing(first.key);
  const loader = startKeyLoader({ clickhouse, ring, clock, logger, schema });

  const checks: Checks = {
    clickhouse: () => clickhouse.ping().then(() => undefined),
    endpoints: definitions.check,
    keys: () => loader.check(),
    ...options.checks,
  };
  const app = await createApp({
    definitions: definitions.current,
    answers,
    responseMemory,
    clock,
    logger,
    registry,
    metrics,
    keys: ring,
    loader,
    checks,
    routes: [...keyRoutes(clickhouse, loader, clock), ...(options.routes ?? [])],
    ratePerKey: settings.RATE_LIMIT_PER_KEY,
    ratePerAddress: settings.RATE_LIMIT_PER_ADDRESS,
    trustProxy: settings.TRUST_PROXY,
    tls: tlsOf(settings),
    serveMetrics: settings.METRICS_PORT === undefined,
  });

  const { listening, metricsServer } = await listen(app, settings, registry, checks).catch(async (error: unknown) => {
    stopping.abort();
    await loader.stop();
    shared?.close();
    throw error;
  });
  const { address } = listening;

  const ready = (async () => {
    await checked;
    // a load before there was a schema failed, and the next is seconds away
    void loader.refresh();
    await loader.loaded;
  })();
  ready.catch(() => undefined);

  const requeryTimer = setInterval(() => void answers.requery(), REQUERY_TICK_MS);
  const onHangUp = (): void => void definitions.reload();
  process.on('SIGHUP', onHangUp);
  logger.info({ address, endpoints: definitions.current().all.map((d) => d.name) }, 'query_listening');

  return {
    name: 'query',
    /** `http://host:port`, or https */
    address,
    /** undefined if /metrics has no port of its own */
    metricsAddress: metricsServer && `${metricsServer.address}/metrics`,
    /** the first admin key if it was created now; show it this once */
    createdKey: first.made,
    /** resolves when the definitions have been checked against ClickHouse and the keys are loaded */
    ready,
    /** rejects if a definition is wrong: then the process must end */
    failed: ready,
    reload: definitions.reload,
    async stop(): Promise<void> {
      stopping.abort();
      process.off('SIGHUP', onHangUp);
      clearInterval(requeryTimer);
      await drain(app, listening, () => answers.close());
      answers.close();
      await metricsServer?.stop();
      await loader.stop();
      shared?.close();
    },
  };
}

/** Builds everything between a request and ClickHouse: slots, memory, metrics and cache. */
async function startAnswers(
  { clickhouse, settings, logger, registry, clock }: QueryOptions & { readonly clock: Clock },
  definitions: Pick<ReturnType<typeof serveDefinitions>, 'current'>,
  firstKeyHash: Buffer,
  requestsInFlight: () => number,
) {
  const shares = createShares();
  const slots = createQuerySlots({
    shares,
    concurrency: settings.QUERY_CONCURRENCY,
    queue: settings.QUERY_QUEUE,
    waitMs: QUEUE_WAIT_MS,
  });
  const responseMemory = createResponseMemory(shares);
  const metrics = createQueryMetrics(registry, {
    cacheEntries: () => answers.cache.size(),
    cacheBytes: () => answers.cache.bytes(),
    queriesRunning: slots.running,
    queriesWaiting: slots.waiting,
    requestsInFlight,
    responseMemoryBytes: responseMemory.used,
  });
  const shared = await openSharedCache(settings, firstKeyHash, logger);
  const answers = createAnswers({
    clickhouse,
    slots,
    responseMemory,
    shares,
    clock,
    logger,
    metrics,
    shared,
    isServed: ({ id, hash }) => definitions.current().find(id)?.hash === hash,
    limits: limitsOf(settings),
    cacheLimits: { maxEntries: CACHE_ENTRIES, maxBytes: settings.ANSWER_CACHE_BYTES },
  });
  return { answers, responseMemory, metrics, shared };
}

/** Undefined without REDIS_URL. Its client is loaded only if needed. */
async function openSharedCache(
  { REDIS_URL, REDIS_SECRET }: Settings,
  firstKeyHash: Buffer,
  logger: Logger,
): Promise<RedisCache | undefined> {
  if (REDIS_URL === undefined) return undefined;
  const { openRedisCache } = await import('./answer/redis-cache.ts');
  return openRedisCache({
    url: REDIS_URL,
    secret: REDIS_SECRET === undefined ? firstKeyHash : hashKey(REDIS_SECRET),
    lockMarginMs: QUEUE_WAIT_MS + LOCK_MARGIN_MS,
    logger,
  });
}

function tlsOf({ HTTPS_CERT, HTTPS_KEY }: Settings): AppOptions['tls'] {
  if (HTTPS_CERT === undefined || HTTPS_KEY === undefined) return undefined;
  return { cert: readFileSync(HTTPS_CERT), key: readFileSync(HTTPS_KEY) };
}

/** Opens PORT and METRICS_PORT. Throws StartError if one is not available. */
async function listen(
  app: FastifyInstance,
  settings: Settings,
  registry: Registry,
  checks: Checks,
): Promise<{ readonly listening: Listening; readonly metricsServer?: MetricsServer }> {
  const { HOST: host, PORT, METRICS_PORT } = settings;
  const listening = await listenOnSockets(app, host, PORT).catch((error: unknown) => {
    throw portError('PORT', PORT, host, error);
  });
  if (METRICS_PORT === undefined) return { listening };
  try {
    const metricsServer = await serveMetrics(registry, host, METRICS_PORT, checks);
    return { listening, metricsServer };
  } catch (error) {
    await Promise.all([app.close(), listening.close()]);
    throw error;
  }
}

/**
 * Closes the app. Requests in flight get DRAIN_MS, then `cancel` is called, and their sockets close ANSWER_MS later.
 */
async function drain(
  app: FastifyInstance,
  { close, destroyConnections }: Listening,
  cancel: () => void,
): Promise<void> {
  const closed = Promise.all([app.close(), close()]);
  const cancelling = setTimeout(cancel, DRAIN_MS);
  // close connections without a request; Node calls only some of them idle
  const idle = setInterval(() => {
    if (app.inFlight() === 0) destroyConnections();
  }, IDLE_CHECK_MS);
  const force = setTimeout(destroyConnections, DRAIN_MS + ANSWER_MS);
  await closed;
  clearTimeout(cancelling);
  clearInterval(idle);
  clearTimeout(force);
}
