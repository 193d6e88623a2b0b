import type { Registry } from '../../common/metrics.ts';
import { SLOW_INSERT_SECONDS, SLOW_QUERY_SECONDS, STALLED_SECONDS } from './alerts.ts';
import type { History } from './history.ts';
import { STEP_SECONDS } from './wire.ts';

interface Sample {
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly value: number;
  readonly metricName?: string;
}

/** The increase of a counter since the previous step. */
interface Gain extends Pick<Sample, 'labels' | 'metricName'> {
  readonly n: number;
}

/** The label with a bucket's upper bound in Prometheus' histograms. */
const BOUND = 'le';

/** Gauges that a rule compares directly, and the label that names their subject. */
const LEVELS = [
  { metric: 'sluice_rollup_source_incomplete', prefix: 'incomplete', subject: 'rollup' },
  { metric: 'sluice_ingest_clock_ahead_seconds', prefix: 'clock', subject: '' },
  { metric: 'sluice_ingest_partition_waits_for_group', prefix: 'waits', subject: 'topic' },
] as const;

/** The series of checks that have a rule of their own. */
const READINESS: ReadonlyMap<string, string> = new Map([
  ['clickhouse', 'unreachable:ClickHouse'],
  ['consumer', 'apart:ingest'],
]);

/** The position of each partition, and the step since which it has it. */
type Positions = Map<string, { position: number; since: number }>;

/** The metrics of this process, and where they are recorded. */
interface Counters {
  readonly history: History;
  readonly read: (metric: string) => Promise<readonly Sample[]>;
  /** Returns the increase of each counter since the previous step. A new counter began at 0. */
  readonly gains: (metric: string) => Promise<readonly Gain[]>;
  /** Records what a rule compares directly. It is 0 in the first sample that lacks it. */
  readonly level: (name: string, step: number, value: number) => void;
}

const sumOf = (gains: readonly Gain[]): number => gains.reduce((sum, { n }) => sum + n, 0);

function byLabel<T extends Pick<Sample, 'labels'>>(samples: readonly T[], label: string): Map<string, T[]> {
  return Map.groupBy(samples, ({ labels }) => String(labels[label]));
}

async function requests({ history, gains }: Counters, step: number): Promise<void> {
  const calls = await gains('sluice_query_requests_total');
  history.set('calls:query', step, sumOf([...calls, ...(await gains('sluice_push_requests_total'))]));
  history.set('blocked calls:query', step, sumOf(await gains('sluice_query_blocked_requests_total')));
  for (const [endpoint, all] of byLabel(calls, 'endpoint')) {
    if (endpoint === 'other') continue;
    const set = (name: string, of: readonly Gain[]): void => history.set(`${name}:${endpoint}`, step, sumOf(of));
    const byCache = (...states: string[]): Gain[] => all.filter(({ labels }) => states.includes(`${labels['cache']}`));
    set('requests', all);
    set(
      'errors',
      all.filter(({ labels }) => Number(labels['status']) >= 500),
    );
    set('hits', byCache('hit'));
    set('cacheable', byCache('hit', 'miss', 'stale'));
  }
}

/** Returns the increase of the buckets of a histogram. */
async function bucketGains({ gains }: Counters, metric: string): Promise<Gain[]> {
  return (await gains(metric)).filter(({ metricName }) => metricName === `${metric}_bucket`);
}

async function durations(counters: Counters, step: number): Promise<void> {
  const { history } = counters;
  for (const [endpoint, gains] of byLabel(await bucketGains(counters, 'sluice_query_duration_seconds'), 'endpoint')) {
    const all = bucketsOf(gains);
    if (countOf(all) > 0) history.set(`p95:${endpoint}`, step, quantile(all, 0.95) * 1000);
    const queries = bucketsOf(gains.filter(({ labels }) => labels['cache'] === 'miss' || labels['cache'] === 'none'));
    history.set(`queries:${endpoint}`, step, countOf(queries));
    history.set(`slow queries:${endpoint}`, step, countAbove(queries, SLOW_QUERY_SECONDS));
  }
}

/** Returns the records that wait now, by topic. */
async function lagNow({ read }: Counters): Promise<ReadonlyMap<string, number>> {
  const byTopic = byLabel(await read('sluice_ingest_lag_records'), 'topic');
  return new Map([...byTopic].map(([topic, of]) => [topic, of.reduce((sum, { value }) => sum + value, 0)]));
}

/** Records lag, stalled partitions and slow inserts. */
async function ingest(counters: Counters, positions: Positions, step: number): Promise<void> {
  const { history, read, level } = counters;
  for (const [topic, lag] of await lagNow(counters)) history.set(`lag:${topic}`, step, lag);
  const partitionOf = ({ labels }: Sample): string => `${labels['topic']} ${labels['partition']}`;
  const partitionsWith1 = async (metric: string): Promise<string[]> =>
    (await read(metric)).filter(({ value }) => value === 1).map(partitionOf);
  const lags = await read('sluice_ingest_lag_records');
  const lagOf = new Map(lags.map((lag) => [partitionOf(lag), lag.value]));
  const paused = new Set(await partitionsWith1('sluice_ingest_partition_paused'));
  // what waits for the end of a pause is no part of it
  for (const [topic, of] of byLabel(lags, 'topic'))
    level(
      `behind:${topic}`,
      step,
      of.reduce((sum, l) => sum + (paused.has(partitionOf(l)) ? 0 : l.value), 0),
    );
  // a partition that cannot be taken has neither lag nor position; one that never stalled needs no series
  const stalled = await partitionsWith1('sluice_ingest_partition_untaken');
  for (const sample of await read('sluice_ingest_position_offset')) {
    const partition = partitionOf(sample);
    let last = positions.get(partition);
    if (last?.position !== sample.value) positions.set(partition, (last = { position: sample.value, since: step }));
    const unmoved = (step - last.since) * STEP_SECONDS;
    if (unmoved >= STALLED_SECONDS && (lagOf.get(partition) ?? 0) > 0) stalled.push(partition);
  }
  for (const partition of stalled) level(`stalled:${partition}`, step, 1);
  for (const [source, gains] of byLabel(await bucketGains(counters, 'sluice_ingest_insert_seconds'), 'source')) {
    const inserts = bucketsOf(gains);
    history.set(`inserts:${source}`, step, countOf(inserts));
    history.set(`slow inserts:${source}`, step, countAbove(inserts, SLOW_INSERT_SECONDS));
  }
}

async function pushes({ history, gains }: Counters, step: number): Promise<void> {
  const all = await gains('sluice_push_requests_total');
  const refused = all.filter(({ labels }) => Number(labels['status']) === 429 || Number(labels['status']) >= 500);
  history.set('pushes:push', step, sumOf(all));
  history.set('refused pushes:push', step, sumOf(refused));
}

/** Returns the event time up to which each rollup was compared with its raw table, unix seconds. */
async function auditedTo({ read }: Counters): Promise<ReadonlyMap<string, number>> {
  return new Map(
    (await read('sluice_rollup_audited_to_seconds')).map(({ labels, value }) => [String(labels['rollup']), value]),
  );
}

async function rollups(counters: Counters, step: number): Promise<void> {
  const { history } = counters;
  for (const [rollup, time] of await auditedTo(counters))
    history.set(`unaudited:${rollup}`, step, (step + 1) * STEP_SECONDS - time);
}

/** Records gauges; of several for one subject the largest. */
async function levels({ history, read, gains, level }: Counters, step: number): Promise<void> {
  for (const { metric, prefix, subject } of LEVELS)
    for (const [name, of] of Map.groupBy(await read(metric), ({ labels }) => String(labels[subject] ?? 'ingest')))
      level(`${prefix}:${name}`, step, Math.max(...of.map(({ value }) => Math.abs(value))));
  for (const { n } of await gains('sluice_ingest_commits_refused_total'))
    history.set('refused commits:ingest', step, n);
  for (const { labels, n } of await gains('sluice_ingest_gone_offsets_total'))
    history.set(`gone:${labels['topic']}`, step, n);
}

/** Records what /readyz says. */
async function readiness({ history, read }: Counters, step: number): Promise<void> {
  for (const { labels, value } of await read('sluice_ready'))
    history.set(READINESS.get(`${labels['check']}`) ?? `unready:${labels['check']}`, step, 1 - value);
}

/** Reads the counters of this process at the end of every step and records their increase. */
export function createProcessSamples(registry: Registry, history: History) {
  const before = new Map<string, number>();
  const positions: Positions = new Map();
  /** the step in which each level was recorded last */
  const recorded = new Map<string, number>();
  let isFirst = true;
  const read = async (metric: string): Promise<readonly Sample[]> =>
    (await registry.getSingleMetric(metric)?.get())?.values ?? [];
  const counters: Counters = {
    history,
    read,
    gains: async (metric) =>
      (await read(metric)).map(({ labels, value, metricName = metric }) => {
        const key = `${metricName} ${JSON.stringify(labels)}`;
        const last = before.get(key) ?? 0;
        before.set(key, value);
        return { labels, metricName, n: isFirst ? 0 : Math.max(0, value - last) };
      }),
    level: (name, step, value) => {
      history.set(name, step, value);
      recorded.set(name, step);
    },
  };

  return {
    /** Records the increase since the last call as that of this step. */
    async take(step: number): Promise<void> {
      for (const record of [requests, durations, pushes, rollups, levels, readiness]) await record(counters, step);
      await ingest(counters, positions, step);
      // a rebalance takes gauges away, and to a rule an unknown step is like the steps before it
      for (const [name, last] of recorded)
        if (last !== step) {
          history.set(name, step, 0);
          recorded.delete(name);
        }
      isFirst = false;
    },
    has: (metric: string): boolean => registry.getSingleMetric(metric) !== undefined,
    auditedTo: () => auditedTo(counters),
    lagNow: () => lagNow(counters),
  };
}

/** Observations at or below a bound, as Prometheus counts them, ascending; the last bound is +Inf. */
export interface Bucket {
  readonly bound: number;
  readonly atMost: number;
}

function bucketsOf(gains: readonly Gain[]): Bucket[] {
  return [...byLabel(gains, BOUND)]
    .map(([bound, same]) => ({
      bound: bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound),
      atMost: sumOf(same),
    }))
    .sort((a, b) => a.bound - b.bound);
}

const countOf = (buckets: readonly Bucket[]): number => buckets.at(-1)?.atMost ?? 0;

/**
 * Returns Prometheus' histogram_quantile: linear within a bucket, the largest finite bound beyond it. NaN without
 * observations.
 */
export function quantile(buckets: readonly Bucket[], q: number): number {
  const rank = q * countOf(buckets);
  if (rank === 0) return Number.NaN;
  const i = buckets.findIndex((b) => b.atMost >= rank);
  const [here, below] = [buckets[i], buckets[i - 1] ?? { bound: 0, atMost: 0 }];
  if (here === undefined) return Number.NaN;
  if (here.bound === Number.POSITIVE_INFINITY) return below.bound;
  return below.bound + ((here.bound - below.bound) * (rank - below.atMost)) / (here.atMost - below.atMost);
}

/**
 * Returns the observations above a bound, linear within its bucket. The quantile q is above the bound exactly if more
 * than 1 - q of all are.
 */
export function countAbove(buckets: readonly Bucket[], bound: number): number {
  const all = countOf(buckets);
  const i = buckets.findIndex((b) => b.bound >= bound);
  const [here, below] = [buckets[i], buckets[i - 1] ?? { bound: 0, atMost: 0 }];
  if (here === undefined || here.bound === Number.POSITIVE_INFINITY) return all - below.atMost;
  return all - below.atMost - ((here.atMost - below.atMost) * (bound - below.bound)) / (here.bound - below.bound);
}
