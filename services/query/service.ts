import { readFileSync } from 'node:fs';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { systemClock, type Clock } from '../../common/clock.ts';
import { SHORTEST_API_KEY, type Settings } from '../../common/config/settings.ts';
import { EXIT_CONFIG, StartError } from '../../common/errors.ts';
import type { OpenRoute, Route } from '../../common/http/route.ts';
import type { Part } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import { portError, serveMetrics, type MetricsServer } from '../../common/metrics-server.ts';
import type { Registry } from '../../common/metrics.ts';
import type { Check } from '../../common/readiness.ts';
import { createAnswers } from './answer/answers.ts';
import { createApp } from './http/app.ts';
import { checkDefinition } from './definition/check.ts';
import { describe } from './definition/definition.ts';
import { foldersOf, readDefinitions, type Definitions } from './definition/definition-files.ts';
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
  /** readiness of other parts of the process, for /readyz */
  readonly checks?: Readonly<Record<string, Check>>;
  /** routes of other parts of the process */
  readonly routes?: readonly Route[];
  /** pages and files that need no key */
  readonly openRoutes?: readonly OpenRoute[];
  /** resolves when the schema exists; until then callers get 503 */
  readonly schema?: Promise<unknown>;
}

export interface QueryService extends Part {
  readonly failed: Promise<never>;
  /** `http://host:port`, or https */
  readonly address: string;
  /** undefined if /metrics has no port of its own */
  readonly metricsAddress: string | undefined;
  /** the first admin key if it was created now; show it this once */
  readonly createdKey: string | undefined;
  /** resolves when the definitions have been checked against ClickHouse and the keys are loaded */
  readonly ready: Promise<void>;
  /** Reads the definitions again. Wrong ones are refused, and the old ones stay. */
  reload(): Promise<void>;
}

const REQUERY_TICK_MS = 1_000;
const QUEUE_WAIT_MS = 2_000;
const CACHE_ENTRIES = 10_000;
const LOCK_MARGIN_MS = 3_000;
/** At stop, requests in flight get this long before their queries are cancelled, */
const DRAIN_MS = 5_000;
/** and this long after that to receive their error. */
const ANSWER_MS = 1_500;
const IDLE_CHECK_MS = 20;
const RETRY_MS = 1_000;

/**
 * Throws StartError (exit code 78) that names file and line of every mistake, or ClickHouseError if the engine is
 * unavailable.
 */
async function checkAll(clickhouse: ClickHouse, definitions: Definitions): Promise<void> {
  const mistakes = (await Promise.all(definitions.all.map((d) => checkDefinition(clickhouse, d)))).flat();
  if (mistakes.length > 0)
    throw new StartError(`the endpoint definitions have mistakes:\n${describe(mistakes)}`, {
      exitCode: EXIT_CONFIG,
    });
}

const never = new Promise<void>(() => {});

/**
 * Starts the query service. It listens at once and answers 503 until ClickHouse and the schema are available. Throws
 * StartError.
 */
export async function startQuery(options: QueryOptions): Promise<QueryService> {
  const { clickhouse, settings, logger, registry, clock = systemClock, schema = Promise.resolve() } = options;
  const folders = foldersOf(settings);
  let definitions = readDefinitions(folders);
  const first = firstKey(settings);
  if (settings.API_KEY !== undefined && settings.API_KEY.length < SHORTEST_API_KEY)
    logger.warn({ characters: settings.API_KEY.length, wanted: SHORTEST_API_KEY }, 'api_key_short');

  const shares = createShares();
  const slots = createQuerySlots({
    shares,
    concurrency: settings.QUERY_CONCURRENCY,
    queue: settings.QUERY_QUEUE,
    waitMs: QUEUE_WAIT_MS,
  });
  const responseMemory = createResponseMemory({ shares });
  const metrics = createQueryMetrics(registry, {
    cacheEntries: () => answers.cache.size,
    cacheBytes: () => answers.cache.bytes,
    queriesRunning: slots.running,
    queriesWaiting: slots.waiting,
    requestsInFlight: () => app.inFlight(),
    responseMemoryBytes: responseMemory.used,
  });
  const shared =
    settings.REDIS_URL === undefined
      ? undefined
      : (await import('./answer/redis-cache.ts')).openRedisCache({
          url: settings.REDIS_URL,
          secret: settings.REDIS_SECRET === undefined ? first.key.hash : hashKey(settings.REDIS_SECRET),
          lockMarginMs: QUEUE_WAIT_MS + LOCK_MARGIN_MS,
          logger,
        });
  const answers = createAnswers({
    // wait for the schema: statements of this build may need what only its schema has
    clickhouse: whenOpen(schema.then(() => clickhouse)),
    slots,
    responseMemory,
    shares,
    clock,
    logger,
    metrics,
    ...(shared && { shared }),
    limits: limitsOf(settings),
    cacheLimits: { maxEntries: CACHE_ENTRIES, maxBytes: settings.ANSWER_CACHE_BYTES },
  });
  const ring = createKeyRing([first.key]);
  const loader = startKeyLoader({ clickhouse, ring, clock, logger });

  let definitionsChecked = false;
  const checks: Readonly<Record<string, Check>> = {
    clickhouse: async () => {
      await clickhouse.ping();
      return undefined;
    },
    endpoints: async () => (definitionsChecked ? undefined : 'are not checked yet'),
    keys: () => loader.check(),
    ...options.checks,
  };
  const app = await createApp({
    definitions: () => definitions,
    answers,
    responseMemory,
    clock,
    logger,
    registry,
    metrics,
    keys: ring,
    onKeyUsed: (key, now) => loader.noteUse(key, now),
    refreshKeys: () => loader.refresh(),
    checks,
    routes: [...keyRoutes({ clickhouse, loader, clock }), ...(options.routes ?? [])],
    ...(options.openRoutes && { openRoutes: options.openRoutes }),
    ratePerKey: settings.RATE_LIMIT_PER_KEY,
    ratePerAddress: settings.RATE_LIMIT_PER_ADDRESS,
    trustProxy: settings.TRUST_PROXY,
    ...(settings.HTTPS_CERT !== undefined &&
      settings.HTTPS_KEY !== undefined && {
        tls: { cert: readFileSync(settings.HTTPS_CERT), key: readFileSync(settings.HTTPS_KEY) },
      }),
    serveMetrics: settings.METRICS_PORT === undefined,
  });

  let address: string;
  try {
    address = await app.listen({ host: settings.HOST, port: settings.PORT });
  } catch (error) {
    await loader.stop();
    shared?.close();
    throw portError('PORT', settings.PORT, settings.HOST, error);
  }
  let metricsServer: MetricsServer | undefined;
  try {
    if (settings.METRICS_PORT !== undefined)
      metricsServer = await serveMetrics({ registry, host: settings.HOST, port: settings.METRICS_PORT, checks });
  } catch (error) {
    await Promise.all([app.close(), loader.stop()]);
    shared?.close();
    throw error;
  }

  const stopping = new AbortController();
  async function checkWhenReachable(): Promise<void> {
    await schema;
    while (!stopping.signal.aborted) {
      try {
        await checkAll(clickhouse, definitions);
        definitionsChecked = true;
        return;
      } catch (error) {
        if (!(error instanceof ClickHouseError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    await never;
  }
  const ready = checkWhenReachable();
  ready.catch(() => undefined);
  const failed = ready.then(() => new Promise<never>(() => {}));
  failed.catch(() => undefined);

  const requeryTimer = setInterval(() => void answers.requery(), REQUERY_TICK_MS);
  /** One reload at a time: files that were read first must not replace newer ones because their check took longer. */
  let reloading: Promise<void> = Promise.resolve();
  function reload(): Promise<void> {
    reloading = reloading.then(reloadNow);
    return reloading;
  }
  async function reloadNow(): Promise<void> {
    try {
      const next = readDefinitions(folders);
      await checkAll(clickhouse, next);
      definitions = next;
      answers.keep(next.all);
      logger.info({ endpoints: next.all.map((d) => d.name) }, 'endpoints_reloaded');
    } catch (error) {
      logger.error({ err: error }, 'endpoints_reload_failed');
    }
  }
  const onHangUp = (): void => void reload();
  process.on('SIGHUP', onHangUp);
  logger.info({ address, endpoints: definitions.all.map((d) => d.name) }, 'query_listening');

  return {
    name: 'query',
    address,
    metricsAddress: metricsServer === undefined ? undefined : `${metricsServer.address}/metrics`,
    createdKey: first.made,
    ready,
    failed,
    reload,
    async stop() {
      stopping.abort();
      process.off('SIGHUP', onHangUp);
      clearInterval(requeryTimer);
      const closed = app.close();
      const drain = setTimeout(() => answers.close(), DRAIN_MS);
      // close connections without a request; Node calls only some of them idle
      const idle = setInterval(() => {
        if (app.inFlight() === 0) app.server.closeAllConnections();
      }, IDLE_CHECK_MS);
      const force = setTimeout(() => app.server.closeAllConnections(), DRAIN_MS + ANSWER_MS);
      await closed;
      clearTimeout(drain);
      clearInterval(idle);
      clearTimeout(force);
      answers.close();
      await metricsServer?.stop();
      await loader.stop();
      shared?.close();
    },
  };
}
