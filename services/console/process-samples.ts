import type { Registry } from '../../common/metrics.ts';
import { SLOW_INSERT_SECONDS, SLOW_QUERY_SECONDS, STALLED_SECONDS } from './alerts.ts';
import type { History } from './history.ts';
import { STEP_SECONDS } from './wire.ts';

interface Sample {
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly value: number;
  readonly metricName?: string;
}

/** The label with a bucket's upper bound in Prometheus' histograms. */
const BOUND = 'le';

/** Gauges that a rule compares directly, and the label that names their subject. */
const LEVELS = [
  { metric: 'sluice_rollup_source_incomplete', prefix: 'incomplete', subject: 'rollup' },
  { metric: 'sluice_ingest_clock_ahead_seconds', prefix: 'clock', subject: '' },
  { metric: 'sluice_ingest_partition_waits_for_group', prefix: 'waits', subject: 'topic' },
] as const;

/** The position of each partition, and the step since which it has it. */
type Positions = Map<string, { position: number; since: number }>;

/** The counters of this process, the increase of each since the previous step, and where it is recorded. */
interface Counters {
  readonly history: History;
  readonly read: (name: string) => Promise<readonly Sample[]>;
  /** Returns the increase of a counter since the previous step. A new counter began at 0. */
  readonly gained: (metric: string, sample: Sample) => number;
}

async function requests({ history, read, gained }: Counters, step: number): Promise<void> {
  const counts = new Map<string, { requests: number; errors: number; hits: number; cacheable: number }>();
  for (const sample of await read('sluice_query_requests_total')) {
    const endpoint = String(sample.labels['endpoint']);
    const [status, cache] = [Number(sample.labels['status']), sample.labels['cache']];
    const n = gained('requests', sample);
    if (endpoint === 'other') continue;
    const count = counts.get(endpoint) ?? { requests: 0, errors: 0, hits: 0, cacheable: 0 };
    count.requests += n;
    if (status >= 500) count.errors += n;
    if (cache === 'hit') count.hits += n;
    if (cache === 'hit' || cache === 'miss' || cache === 'stale') count.cacheable += n;
    counts.set(endpoint, count);
  }
  for (const [endpoint, count] of counts)
    for (const [name, value] of Object.entries(count)) history.set(`${name}:${endpoint}`, step, value);
}

/** Returns the increase of the buckets of a histogram. */
async function bucketGains({ read, gained }: Counters, metric: string): Promise<BucketGain[]> {
  return (await read(metric))
    .filter(({ metricName }) => metricName === `${metric}_bucket`)
    .map((sample) => {
      const bound = sample.labels[BOUND];
      return {
        labels: sample.labels,
        bound: bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound),
        n: gained(metric, sample),
      };
    });
}

async function durations(counters: Counters, step: number): Promise<void> {
  const { history } = counters;
  const byEndpoint = Map.groupBy(await bucketGains(counters, 'sluice_query_duration_seconds'), ({ labels }) =>
    String(labels['endpoint']),
  );
  for (const [endpoint, gains] of byEndpoint) {
    const all = bucketsOf(gains);
    if (countOf(all) > 0) {
      history.set(`p50:${endpoint}`, step, quantile(all, 0.5) * 1000);
      history.set(`p95:${endpoint}`, step, quantile(all, 0.95) * 1000);
    }
    const queries = bucketsOf(gains.filter(({ labels }) => labels['cache'] === 'miss' || labels['cache'] === 'none'));
    history.set(`queries:${endpoint}`, step, countOf(queries));
    history.set(`slow queries:${endpoint}`, step, countAbove(queries, SLOW_QUERY_SECONDS));
  }
}

/** Records lag, stalled partitions and slow inserts. */
async function ingest(counters: Counters, positions: Positions, step: number): Promise<void> {
  const { history, read } = counters;
  const lags = await read('sluice_ingest_lag_records');
  const byTopic = Map.groupBy(lags, ({ labels }) => String(labels['topic']));
  for (const [topic, of] of byTopic)
    history.set(
      `lag:${topic}`,
      step,
      of.reduce((sum, { value }) => sum + value, 0),
    );
  const lagOf = new Map(lags.map(({ labels, value }) => [`${labels['topic']} ${labels['partition']}`, value]));
  for (const { labels, value } of await read('sluice_ingest_position_offset')) {
    const partition = `${labels['topic']} ${labels['partition']}`;
    const last = positions.get(partition);
    if (last?.position !== value) positions.set(partition, { position: value, since: step });
    const unmoved = (step - (positions.get(partition)?.since ?? step)) * STEP_SECONDS;
    const isStalled = unmoved >= STALLED_SECONDS && (lagOf.get(partition) ?? 0) > 0;
    // a partition that never stalled needs no series
    if (isStalled || history.get(`stalled:${partition}`, step - 1) === 1)
      history.set(`stalled:${partition}`, step, isStalled ? 1 : 0);
  }
  for (const [source, gains] of Map.groupBy(
    await bucketGains(counters, 'sluice_ingest_insert_seconds'),
    ({ labels: of }) => String(of['source']),
  )) {
    const inserts = bucketsOf(gains);
    history.set(`inserts:${source}`, step, countOf(inserts));
    history.set(`slow inserts:${source}`, step, countAbove(inserts, SLOW_INSERT_SECONDS));
  }
}

async function pushes({ history, read, gained }: Counters, step: number): Promise<void> {
  let [all, refused] = [0, 0];
  for (const sample of await read('sluice_push_requests_total')) {
    const n = gained('pushes', sample);
    const status = Number(sample.labels['status']);
    all += n;
    if (status === 429 || status >= 500) refused += n;
  }
  history.set('pushes:push', step, all);
  history.set('refused pushes:push', step, refused);
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
async function levels({ history, read, gained }: Counters, step: number): Promise<void> {
  for (const { metric, prefix, subject } of LEVELS)
    for (const [name, of] of Map.groupBy(await read(metric), ({ labels }) => String(labels[subject] ?? 'ingest')))
      history.set(`${prefix}:${name}`, step, Math.max(...of.map(({ value }) => Math.abs(value))));
  for (const sample of await read('sluice_ingest_commits_refused_total'))
    history.set('refused commits:ingest', step, gained('refused commits', sample));
}

/** Records what /readyz says. Without ClickHouse no member joins a group, so only ClickHouse is reported then. */
async function readiness({ history, read }: Counters, step: number): Promise<void> {
  const ready = new Map((await read('sluice_ready')).map(({ labels, value }) => [labels['check'], value]));
  const [clickhouse, consumer] = [ready.get('clickhouse'), ready.get('consumer')];
  if (clickhouse !== undefined) history.set('unreachable:ClickHouse', step, 1 - clickhouse);
  if (consumer !== undefined) history.set('apart:ingest', step, clickhouse === 0 ? 0 : 1 - consumer);
}

/** Reads the counters of this process at the end of every step and records their increase. */
export function createProcessSamples(registry: Registry, history: History) {
  const before = new Map<string, number>();
  const positions: Positions = new Map();
  let isFirst = true;
  const counters: Counters = {
    history,
    read: async (name) => (await registry.getSingleMetric(name)?.get())?.values ?? [],
    gained(metric, { labels, value, metricName = metric }) {
      const key = `${metricName} ${JSON.stringify(labels)}`;
      const last = before.get(key) ?? 0;
      before.set(key, value);
      return isFirst ? 0 : Math.max(0, value - last);
    },
  };

  return {
    /** Records the increase since the last call as that of this step. */
    async take(step: number): Promise<void> {
      for (const record of [requests, durations, pushes, rollups, levels, readiness]) await record(counters, step);
      await ingest(counters, positions, step);
      isFirst = false;
    },
    has: (metric: string): boolean => registry.getSingleMetric(metric) !== undefined,
    auditedTo: () => auditedTo(counters),
    /** Returns the records that wait now, by topic. */
    async lagNow(): Promise<ReadonlyMap<string, number>> {
      const lags = await counters.read('sluice_ingest_lag_records');
      const byTopic = Map.groupBy(lags, ({ labels }) => String(labels['topic']));
      return new Map([...byTopic].map(([topic, of]) => [topic, of.reduce((sum, { value }) => sum + value, 0)]));
    },
  };
}

/** Observations at or below a bound, as Prometheus counts them, ascending; the last bound is +Inf. */
export interface Bucket {
  readonly bound: number;
  readonly atMost: number;
}

interface BucketGain {
  readonly labels: Sample['labels'];
  readonly bound: number;
  readonly n: number;
}

function bucketsOf(gains: readonly BucketGain[]): Bucket[] {
  return [...Map.groupBy(gains, ({ bound }) => bound)]
    .map(([bound, same]) => ({ bound, atMost: same.reduce((sum, { n }) => sum + n, 0) }))
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
