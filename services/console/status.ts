import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Clock } from '../../common/clock.ts';
import type { Caller } from '../../common/http/route.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { evaluateAlerts, type Facts } from './alerts.ts';
import { createHistory, stepOf, type History } from './history.ts';
import { createProcessSamples } from './process-samples.ts';
import { createStoreSamples, isWithin } from './store-samples.ts';
import {
  HISTORY_STEPS,
  STEP_SECONDS,
  mayCall,
  type AlertStatus,
  type EndpointStatus,
  type Status,
  type SystemStatus,
} from './wire.ts';

/** A sample serves everybody who asks within this time. */
const REFRESH_MS = 800;

export interface StatusOptions {
  /** refuses statements until the schema exists */
  readonly clickhouse: Pick<ClickHouse, 'read' | 'shards'>;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly clock: Clock;
}

/**
 * Reports the state of the system over the last hour. Traffic, dead letters, pauses and rollups come from ClickHouse,
 * so they are right whichever process ingests. Requests and lag come from this process' own metrics, read at the end of
 * every step.
 */
export function startStatus({ clickhouse, registry, logger, clock }: StatusOptions) {
  const startedAt = clock();
  const history = createHistory();
  const samples = createProcessSamples(registry, history);
  const storeSamples = createStoreSamples(clickhouse, history);

  const stopSampling = sampleEveryStep((step) => samples.take(step), clock, logger);
  const refresher = createRefresher((now) => storeSamples.refresh(now), clock, logger);

  let alerts: readonly AlertStatus[] = [];
  let alertsOf = '';
  function currentAlerts(facts: Facts, step: number): readonly AlertStatus[] {
    // they change with a step, and at once with a pause
    const paused = storeSamples.facts.paused.map((p) => `${p.topic} ${p.partition}`);
    const version = `${step} ${refresher.seenAt() === null} ${paused.join()}`;
    if (version !== alertsOf) [alerts, alertsOf] = [evaluateAlerts(facts, step), version];
    return alerts;
  }

  async function systemStatus(from: number, to: number): Promise<SystemStatus> {
    const { sources, totals, paused, rollups } = storeSamples.facts;
    const seenAt = refresher.seenAt();
    const ingestHere = samples.has('sluice_ingest_lag_records');
    const pushHere = samples.has('sluice_push_requests_total');
    const rollupHere = samples.has('sluice_rollup_audited_to_seconds');
    const [lagNow, auditedTo] = [await samples.lagNow(), await samples.auditedTo()];
    return {
      topics: topicStatus(history, from, to, seenAt === null ? null : 0, sources, lagNow),
      dead_letters: history
        .subjects('letters', hourUpTo(to), to)
        .map((reason) => ({ reason, letters: history.values(`letters:${reason}`, from, to, 0) })),
      dead_letter_totals: totals,
      paused,
      rollups: rollups.map((rollup) => ({
        ...rollup,
        audited_to: rollup.state === 'serving' ? (auditedTo.get(rollup.name) ?? null) : null,
      })),
      alerts: currentAlerts({ history, ingestHere, pushHere, rollupHere }, to + 1),
      store_answers: refresher.isAnswering(),
      store_seen_at: seenAt,
      ingest_here: ingestHere,
    };
  }

  return {
    /** Returns what a caller may see. `since`: unix seconds from which the series are wanted. */
    async status(caller: Caller, since: number | undefined): Promise<Status> {
      const isAdmin = caller.scopes.includes('admin');
      if (isAdmin) await refresher.refresh();
      const now = clock();
      const to = stepOf(now) - 1;
      const from = Math.min(to + 1, Math.max(hourUpTo(to), Math.floor((since ?? 0) / STEP_SECONDS)));
      const { id, name, scopes, projects, expiresAt } = caller;
      return {
        now,
        started_at: startedAt,
        step_seconds: STEP_SECONDS,
        from: from * STEP_SECONDS,
        steps: to - from + 1,
        key: {
          id,
          name,
          scopes,
          projects,
          expires_at: expiresAt === undefined ? null : new Date(expiresAt).toISOString(),
        },
        // requests are counted for all keys and projects together
        endpoints: projects.length > 0 ? [] : endpointStatus(history, caller, from, to),
        system: isAdmin ? await systemStatus(from, to) : null,
      };
    },
    stop: stopSampling,
  };
}

/** Returns the first step of the hour that ends with a step. */
const hourUpTo = (step: number): number => step - HISTORY_STEPS + 1;

/** Takes a sample at the end of every step. Returns a function that stops it. */
function sampleEveryStep(take: (step: number) => Promise<void>, clock: Clock, logger: Logger): () => void {
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;
  async function sample(): Promise<void> {
    try {
      // at the end of a step, so the increase belongs to that step
      await take(stepOf(clock()) - 1);
    } catch (error) {
      logger.warn({ err: error }, 'console_sample_failed');
    }
  }
  function atNextStep(): void {
    if (isStopped) return;
    const stepMs = STEP_SECONDS * 1000;
    timer = setTimeout(() => void sample().finally(atNextStep), stepMs - (clock() % stepMs) + 5);
    timer.unref();
  }
  // what was counted before the end of the first step is no increase
  void sample();
  atNextStep();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}

/** Refreshes the facts from ClickHouse for whoever asks: one refresh at a time, shared by all callers. */
function createRefresher(refreshStore: (now: number) => Promise<void>, clock: Clock, logger: Logger) {
  let refreshedAt = Number.NEGATIVE_INFINITY;
  let seenAt: number | null = null;
  let isAnswering = false;
  let refreshing: Promise<void> | undefined;
  async function refreshNow(): Promise<void> {
    const now = clock();
    try {
      await refreshStore(now);
      [seenAt, isAnswering] = [now, true];
    } catch (error) {
      if (!(error instanceof ClickHouseError)) throw error;
      if (isAnswering) logger.warn({ err: error }, 'console_store_unavailable');
      isAnswering = false;
    }
    refreshedAt = clock();
  }
  return {
    /** the instant of the newest facts; null before the first */
    seenAt: () => seenAt,
    /** false while ClickHouse does not answer */
    isAnswering: () => isAnswering,
    async refresh(): Promise<void> {
      if (isWithin(REFRESH_MS, refreshedAt, clock())) return;
      refreshing ??= refreshNow().finally(() => {
        refreshing = undefined;
      });
      await refreshing;
    },
  };
}

/** Returns the topics with events or lag within the hour up to `to`. `unseen`: the events of steps without a sample. */
function topicStatus(
  history: History,
  from: number,
  to: number,
  unseen: 0 | null,
  sources: ReadonlyMap<string, string>,
  lagNow: ReadonlyMap<string, number>,
): SystemStatus['topics'] {
  const hourFrom = hourUpTo(to);
  const topics = new Set(['events', 'lag'].flatMap((series) => history.subjects(series, hourFrom, to + 1)));
  return [...topics].sort().map((topic) => {
    const newest = Math.max(...history.values(`newest:${topic}`, hourFrom, to + 1, -1));
    return {
      topic,
      source: sources.get(topic) ?? topic,
      events: history.values(`events:${topic}`, from, to, unseen),
      events_last_hour: history.values(`events:${topic}`, hourFrom, to + 1, 0).reduce((a, b) => a + b, 0),
      age_ms: ages(history, topic, from, to),
      newest_ms: newest < 0 ? null : newest,
      lag: history.values(`lag:${topic}`, from, to, null),
      lag_now: lagNow.get(topic) ?? null,
    };
  });
}

/**
 * Returns the age of the newest visible record at the end of each step. It grows while nothing new becomes visible.
 */
function ages(history: History, topic: string, from: number, to: number): (number | null)[] {
  const hourFrom = hourUpTo(to);
  let newest: number | null = null;
  const all = history.values(`newest:${topic}`, hourFrom, to, null).map((value, i) => {
    if (value !== null) newest = Math.max(newest ?? 0, value);
    return newest === null ? null : Math.max(0, (hourFrom + i + 1) * STEP_SECONDS * 1000 - newest);
  });
  return all.slice(from - hourFrom);
}

function endpointStatus(history: History, caller: Caller, from: number, to: number): EndpointStatus[] {
  return history
    .subjects('requests', hourUpTo(to), to)
    .filter((endpoint) => mayCall(caller.scopes, endpoint))
    .map((endpoint) => {
      const of = (name: string): (number | null)[] => history.values(`${name}:${endpoint}`, from, to, null);
      return {
        endpoint,
        requests: of('requests'),
        errors: of('errors'),
        hits: of('hits'),
        cacheable: of('cacheable'),
        p95_ms: of('p95'),
      };
    });
}
