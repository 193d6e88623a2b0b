import { shardsOf, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { isLost } from '../../../common/clickhouse/cluster/node-list.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import type { Settings } from '../../../common/config/settings.ts';
import type { Logger } from '../../../common/logger.ts';
import type { RollupMetrics } from './metrics.ts';
import { HOUR, type Clocks } from './time.ts';

export interface Context extends Clocks {
  readonly clickhouse: ClickHouse;
  readonly settings: Pick<
    Settings,
    | 'RAW_RETENTION_DAYS'
    | 'ROLLUP_1M_RETENTION_DAYS'
    | 'ROLLUP_1H_RETENTION_DAYS'
    | 'ROLLUP_BUILD_PERCENT'
    | 'ROLLUP_AUDIT_DAYS'
    | 'FSYNC'
  >;
  readonly logger: Logger;
  readonly metrics: RollupMetrics;
  /** Resolves after this many milliseconds. Rejects when the service stops. */
  readonly wait: (ms: number) => Promise<void>;
}

/**
 * The work on rows is done on each shard by itself, with its context. What a period or a rollup is, all shards have in
 * common. Without several shards, returns a copy of the context.
 */
export const onShards = (context: Context): readonly Context[] =>
  shardsOf(context.clickhouse).map((clickhouse) => ({ ...context, clickhouse }));

/** Returns the values. If some of the work failed, throws the error that must end the process if there is one. */
export function valuesOf<T>(settled: readonly PromiseSettledResult<T>[]): T[] {
  const errors = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
  if (errors.length > 0) throw errors.find((e) => !(e instanceof ClickHouseError && e.kind === 'retry')) ?? errors[0];
  return settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
}

/** Names work on one rollup or period: what kind it is, and more for the log. */
type Work = Readonly<Record<string, unknown>> & { readonly work: string };

/** ClickHouse's numbers of a server that is cut off, overloaded or about to stop: other work would meet them too. */
const OF_THE_SERVER = new Set([95, 96, 198, 202, 203, 209, 210, 236, 279, 394, 410, 439, 700, 722, 745, 749, 762]);

/**
 * Does work on one rollup or period. What ClickHouse reports of its statements (a block of raw that cannot be read, a
 * limit of memory, a full disk, a right that is missing) is the failure of this work alone: it is logged and counted,
 * and undefined returned. The caller goes on with other work, and tries it again later. Throws what other work meets
 * too: ClickHouse, a shard or Keeper that is unavailable or overloaded, and our own defects.
 */
export async function attempt<T>(
  { clickhouse, logger, metrics, wait }: Context,
  work: Work,
  act: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ClickHouseError) || error.code === undefined) throw error;
    if (OF_THE_SERVER.has(error.code) || isLost(error)) throw error;
    // rejects if the service stops: then it is no failure
    await wait(0);
    metrics.failures.inc({ work: work.work });
    logger.error({ ...work, shard: clickhouse.shard, err: error }, 'rollup_work_failed');
    return undefined;
  }
}

/**
 * Returns a function that gives each context its own value: what this process remembers while it works. It may be lost
 * at any moment, because nothing but repeated work and repeated log lines depends on it.
 */
export function perContext<T>(make: () => T): (context: Context) => T {
  const values = new WeakMap<Context, T>();
  return (context) => {
    const value = values.get(context) ?? make();
    values.set(context, value);
    return value;
  };
}

const saidOf = perContext(() => new Map<string, number>());

/** True once an hour: what lasts for so long is said again. `what`: the subject of the log line. */
export function isToldNow(context: Context, what: string): boolean {
  const now = context.clock();
  const said = saidOf(context);
  if (now < (said.get(what) ?? 0) + HOUR * 1000) return false;
  said.set(what, now);
  return true;
}

/** Failed work is left alone for this long at least, milliseconds. */
export const FAILED_REST_MS = 60_000;
/** Until then, refused work has used up its share of the time, by performance.now(). */
const usedUntil = new WeakMap<Context, number>();

/** Pauses after a build, so that it has taken ROLLUP_BUILD_PERCENT of the time. `ms`: what it took. */
export async function pauseAfter({ settings, wait }: Context, ms: number): Promise<void> {
  await wait((ms * (100 - settings.ROLLUP_BUILD_PERCENT)) / settings.ROLLUP_BUILD_PERCENT);
}

/**
 * Returns when work that was not done is tried again, by performance.now(). `since`: when its attempt began. Each
 * attempt reads raw: together they take ROLLUP_BUILD_PERCENT of the time. What waits for batches in flight, or for
 * another build, will soon be over and waits for itself only.
 */
export function restUntil(context: Context, outcome: string, since: number): number {
  const ms = ((performance.now() - since) * 100) / context.settings.ROLLUP_BUILD_PERCENT;
  if (!isLasting(outcome)) return since + ms;
  const until = Math.max(since, usedUntil.get(context) ?? 0) + ms;
  usedUntil.set(context, until);
  return outcome === 'failed' ? Math.max(until, since + FAILED_REST_MS) : until;
}

/** True if an attempt was refused, and the next one may be refused too. */
export const isLasting = (outcome: string): boolean => ['incomplete', 'differs', 'failed'].includes(outcome);
