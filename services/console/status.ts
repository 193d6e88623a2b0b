import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import type { Clock } from '../../common/clock.ts';
import type { Caller } from '../../common/http/route.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import { evaluateAlerts, type Facts } from './alerts.ts';
import { createHistory, stepOf, type History } from './history.ts';
import { createProcessSamples } from './process-samples.ts';
import { createRunbook } from './runbook.ts';
import { createStoreSamples } from './store-samples.ts';
import {
  HISTORY_STEPS,
  STEP_SECONDS,
  type AlertStatus,
  type EndpointStatus,
  type Status,
  type SystemStatus,
} from './wire.ts';

/** A sample serves everybody who asks within this time. */
const REFRESH_MS = 800;

interface StatusOptions {
  readonly clickhouse: Pick<ClickHouse, 'read' | 'shards'>;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly clock: Clock;
}

interface StatusSource extends Component {
  /** Returns what a caller may see. `since`: unix seconds from which the series are wanted. */
  status(caller: Caller, since: number | undefined): Promise<Status>;
}

/**
 * Reports the state of the system over the last hour. Traffic, dead letters, pauses and rollups come from ClickHouse,
 * so they are right whichever process ingests. Requests and lag come from this process' own metrics, read at the end of
 * every step.
 */
export function startStatus({ clickhouse, registry, logger, clock }: StatusOptions): StatusSource {
  const startedAt = clock();
  const store = createHistory();
  const ofProcess = createHistory();
  const samples = createProcessSamples(registry, ofProcess);
  const storeSamples = createStoreSamples(clickhouse, store);
  const runbook = createRunbook();

  const stopSampling = sampleEveryStep((step) => samples.take(step), clock, logger);
  const refresher = createRefresher((now) => storeSamples.refresh(now), clock, logger);

  let alerts: readonly AlertStatus[] = [];
  let alertsOf = '';
  function currentAlerts(step: number): readonly AlertStatus[] {
    const facts: Facts = {
      store,
      process: ofProcess,
      ingestHere: samples.has('sluice_ingest_lag_records'),
      pushHere: samples.has('sluice_push_requests_total'),
      rollupHere: samples.has('sluice_rollup_audited_to_seconds'),
    };
    // they change with a step, and at once with a pause
    const version = `${step} ${refresher.seenAt() === null} ${storeSamples
      .facts()
      .paused.map((p) => `${p.topic} ${p.partition}`)
      .join()}`;
    if (version !== alertsOf) [alerts, alertsOf] = [evaluateAlerts(facts, step, runbook), version];
    return alerts;
  }

  async function systemStatus(from: number, to: number): Promise<SystemStatus> {
    const facts = storeSamples.facts();
    const seenAt = refresher.seenAt();
    const hourFrom = to - HISTORY_STEPS + 1;
    const [lagNow, auditedTo] = [await samples.lagNow(), await samples.auditedTo()];
    return {
      topics: topicStatus({ store, ofProcess, from, to }, { sources: facts.sources, seenAt, lagNow }),
      dead_letters: store
        .names(hourFrom, to)
        .filter((name) => name.startsWith('letters:'))
        .map((name) => ({ reason: name.slice('letters:'.length), letters: store.values(name, from, to, 0) })),
      dead_letter_totals: facts.totals,
      paused: facts.paused,
      rollups: facts.rollups.map((rollup) => ({
        ...rollup,
        audited_to: rollup.state === 'serving' ? (auditedTo.get(rollup.name) ?? null) : null,
      })),
      alerts: currentAlerts(to + 1),
      store_answers: refresher.isAnswering(),
      store_seen_at: seenAt,
      ingest_here: samples.has('sluice_ingest_lag_records'),
    };
  }

  return {
    name: 'console',
    async status(caller, since) {
      const isAdmin = caller.scopes.includes('admin');
      if (isAdmin) await refresher.refresh();
      const now = clock();
      const to = stepOf(now) - 1;
      const from = Math.min(to + 1, Math.max(to - HISTORY_STEPS + 1, Math.floor((since ?? 0) / STEP_SECONDS)));
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
        endpoints: endpointStatus(ofProcess, caller, from, to),
        system: isAdmin ? await systemStatus(from, to) : null,
      };
    },
    async stop() {
      stopSampling();
    },
  };
}

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
      if (clock() - refreshedAt < REFRESH_MS) return;
      refreshing ??= refreshNow().finally(() => {
        refreshing = undefined;
      });
      await refreshing;
    },
  };
}

/** Returns the topics with events or lag within the hour up to `to`. */
function topicStatus(
  {
    store,
    ofProcess,
    from,
    to,
  }: { readonly store: History; readonly ofProcess: History; readonly from: number; readonly to: number },
  {
    sources,
    seenAt,
    lagNow,
  }: {
    readonly sources: ReadonlyMap<string, string>;
    readonly seenAt: number | null;
    readonly lagNow: ReadonlyMap<string, number>;
  },
): SystemStatus['topics'] {
  const hourFrom = to - HISTORY_STEPS + 1;
  const topics = new Set(
    [...store.names(hourFrom, to + 1), ...ofProcess.names(hourFrom, to + 1)].flatMap(
      (name) => /^(?:events|lag):(.*)$/s.exec(name)?.[1] ?? [],
    ),
  );
  return [...topics].sort().map((topic) => ({
    topic,
    source: sources.get(topic) ?? topic,
    events:
      seenAt === null ? store.values(`events:${topic}`, from, to, null) : store.values(`events:${topic}`, from, to, 0),
    events_last_hour: store.values(`events:${topic}`, hourFrom, to + 1, 0).reduce((a, b) => a + b, 0),
    age_ms: ages(store, topic, from, to),
    newest_ms: store
      .values(`newest:${topic}`, hourFrom, to + 1, null)
      .reduce<number | null>((a, b) => (b === null ? a : Math.max(a ?? 0, b)), null),
    lag: ofProcess.values(`lag:${topic}`, from, to, null),
    lag_now: lagNow.get(topic) ?? null,
  }));
}

/**
 * Returns the age of the newest visible record at the end of each step. It grows while nothing new becomes visible.
 */
function ages(store: History, topic: string, from: number, to: number): (number | null)[] {
  let newest: number | null = null;
  const all = store.values(`newest:${topic}`, to - HISTORY_STEPS + 1, to, null).map((value, i) => {
    if (value !== null) newest = Math.max(newest ?? 0, value);
    return newest === null ? null : Math.max(0, (to - HISTORY_STEPS + 2 + i) * STEP_SECONDS * 1000 - newest);
  });
  return all.slice(from - (to - HISTORY_STEPS + 1));
}

function endpointStatus(ofProcess: History, caller: Caller, from: number, to: number): EndpointStatus[] {
  const mayCall = (endpoint: string): boolean =>
    ['admin', 'query', `query:${endpoint}`].some((scope) => caller.scopes.includes(scope));
  return ofProcess
    .names(to - HISTORY_STEPS + 1, to)
    .flatMap((name) => /^requests:(.*)$/s.exec(name)?.[1] ?? [])
    .filter(mayCall)
    .map((endpoint) => {
      const of = (name: string): (number | null)[] => ofProcess.values(`${name}:${endpoint}`, from, to, null);
      return {
        endpoint,
        requests: of('requests'),
        errors: of('errors'),
        hits: of('hits'),
        cacheable: of('cacheable'),
        p50_ms: of('p50'),
        p95_ms: of('p95'),
      };
    });
}
