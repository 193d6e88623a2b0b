import { expect, test } from 'vitest';
import { Counter, Gauge, Histogram } from 'prom-client';
import { createRegistry } from '../../common/metrics.ts';
import { evaluateAlerts } from './alerts.ts';
import { LONGEST_WINDOW_SECONDS, createHistory, stepOf } from './history.ts';
import { countAbove, createProcessSamples, quantile, type Bucket } from './process-samples.ts';
import { HISTORY_STEPS, STEP_SECONDS } from './wire.ts';

const buckets: Bucket[] = [
  { bound: 1, atMost: 50 },
  { bound: 2.5, atMost: 80 },
  { bound: 5, atMost: 98 },
  { bound: Number.POSITIVE_INFINITY, atMost: 100 },
];

test('a quantile is linear within its bucket, as Prometheus computes it', () => {
  expect(quantile(buckets, 0.5)).toBe(1);
  expect(quantile(buckets, 0.65)).toBe(1.75);
  expect(quantile(buckets, 0.99)).toBe(5);
  expect(quantile([{ bound: Number.POSITIVE_INFINITY, atMost: 0 }], 0.5)).toBeNaN();
});

test('the quantile q is above a bound exactly where more than 1 - q of all observations are', () => {
  const cases = [0.5, 1, 1.5, 2, 4, 5]
    .flatMap((bound) => [0.3, 0.5, 0.7, 0.9, 0.95].map((q) => ({ bound, q, above: countAbove(buckets, bound) / 100 })))
    // where both are equal but for rounding, either is right
    .filter(({ q, above }) => Math.abs(above - (1 - q)) > 1e-9);
  expect(cases.length).toBeGreaterThan(20);
  expect(cases.map(({ bound, q }) => ({ bound, q, isAbove: quantile(buckets, q) > bound }))).toEqual(
    cases.map(({ bound, q, above }) => ({ bound, q, isAbove: above > 1 - q })),
  );
});

test('each step has what was counted in it, and what was counted before the first belongs to none', async () => {
  const registry = createRegistry();
  const history = createHistory();
  const requests = new Counter({
    name: 'sluice_query_requests_total',
    help: 'x',
    labelNames: ['endpoint', 'status', 'cache'],
    registers: [registry],
  });
  const seconds = new Histogram({
    name: 'sluice_query_duration_seconds',
    help: 'x',
    labelNames: ['endpoint', 'cache'],
    buckets: [0.1, 1, 10],
    registers: [registry],
  });
  const blocked = new Counter({ name: 'sluice_query_blocked_requests_total', help: 'x', registers: [registry] });
  const samples = createProcessSamples(registry, history);
  requests.inc({ endpoint: 'e', status: 200, cache: 'hit' }, 7);
  await samples.take(100);
  requests.inc({ endpoint: 'e', status: 200, cache: 'hit' }, 2);
  requests.inc({ endpoint: 'e', status: 200, cache: 'miss' });
  requests.inc({ endpoint: 'e', status: 503, cache: '' }, 3);
  requests.inc({ endpoint: 'other', status: 404, cache: '' }, 3);
  blocked.inc(2);
  seconds.observe({ endpoint: 'e', cache: 'hit' }, 0.05);
  seconds.observe({ endpoint: 'e', cache: 'miss' }, 5);
  await samples.take(101);
  await samples.take(102);
  const of = (name: string): unknown => history.values(`${name}:e`, 100, 102, null);
  expect({ requests: of('requests'), errors: of('errors'), hits: of('hits'), cacheable: of('cacheable') }).toEqual({
    requests: [0, 6, 0],
    errors: [0, 3, 0],
    hits: [0, 2, 0],
    cacheable: [0, 3, 0],
  });
  expect(history.values('p95:e', 100, 102, null)).toEqual([null, expect.closeTo(9100), null]);
  expect(history.values('queries:e', 100, 102, null)).toEqual([null, 1, 0]);
  expect(history.get('slow queries:e', 101)).toBeCloseTo(8 / 9);
  expect(history.names(100, 102).some((name) => name.endsWith(':other'))).toBe(false);
  expect([history.get('blocked calls:query', 101), history.get('calls:query', 101)]).toEqual([2, 9]);
});

test('a partition with records to take that has not moved for ten minutes is stalled, until it moves', async () => {
  const registry = createRegistry();
  const history = createHistory();
  const lag = new Gauge({
    name: 'sluice_ingest_lag_records',
    help: 'x',
    labelNames: ['topic', 'partition'],
    registers: [registry],
  });
  const position = new Gauge({
    name: 'sluice_ingest_position_offset',
    help: 'x',
    labelNames: ['topic', 'partition'],
    registers: [registry],
  });
  const paused = new Gauge({
    name: 'sluice_ingest_partition_paused',
    help: 'x',
    labelNames: ['topic', 'partition'],
    registers: [registry],
  });
  const untaken = new Gauge({
    name: 'sluice_ingest_partition_untaken',
    help: 'x',
    labelNames: ['topic', 'partition'],
    registers: [registry],
  });
  const samples = createProcessSamples(registry, history);
  lag.set({ topic: 't', partition: 0 }, 5);
  lag.set({ topic: 't', partition: 1 }, 0);
  for (const partition of [0, 1]) position.set({ topic: 't', partition }, 7);
  for (let step = 0; step < 60; step++) await samples.take(step);
  const ofRequests = ['blocked calls:query', 'calls:query', 'pushes:push', 'refused pushes:push'];
  expect(history.names(0, 60).toSorted()).toEqual(['behind:t', 'lag:t', ...ofRequests].toSorted());
  await samples.take(60);
  expect(history.get('stalled:t 0', 60)).toBe(1);
  position.set({ topic: 't', partition: 0 }, 8);
  await samples.take(61);
  expect(history.get('stalled:t 0', 61)).toBe(0);
  expect(history.values('lag:t', 60, 61, null)).toEqual([5, 5]);
  paused.set({ topic: 't', partition: 0 }, 1);
  paused.set({ topic: 't', partition: 1 }, 0);
  lag.set({ topic: 't', partition: 1 }, 2);
  await samples.take(62);
  expect([history.get('lag:t', 62), history.get('behind:t', 61), history.get('behind:t', 62)]).toEqual([7, 5, 2]);
  // another one, which cannot be taken
  for (const [step, value] of [1, 0].entries()) {
    untaken.set({ topic: 't', partition: 2 }, value);
    await samples.take(63 + step);
    expect(history.get('stalled:t 2', 63 + step)).toBe(value);
  }
});

test('an alert ends with the gauges that a rebalance takes away, and does not return with others', async () => {
  const registry = createRegistry();
  const history = createHistory();
  const gauge = (name: string): Gauge =>
    new Gauge({ name, help: 'x', labelNames: ['topic', 'partition'], registers: [registry] });
  const lag = gauge('sluice_ingest_lag_records');
  const position = gauge('sluice_ingest_position_offset');
  const waits = gauge('sluice_ingest_partition_waits_for_group');
  const untaken = gauge('sluice_ingest_partition_untaken');
  const samples = createProcessSamples(registry, history);
  const facts = { history, ingestHere: true, pushHere: true, rollupHere: true };
  let step = 1000;
  /** Returns what fires after so many steps, while the current one has no sample yet. */
  async function take(steps: number, before: (i: number) => void = () => undefined): Promise<string[]> {
    for (let i = 0; i < steps; i++) {
      before(i);
      await samples.take(step++);
    }
    return evaluateAlerts(facts, step)
      .filter(({ state }) => state !== 'ok')
      .flatMap(({ alert, state, subjects }) => subjects.map(({ name }) => `${alert} ${state}: ${name}`));
  }
  const all = ['SluiceLag firing: t', 'SluiceStalled firing: t 0', 'SluiceWaitsForGroup firing: u'];
  lag.set({ topic: 't', partition: 0 }, 600_000);
  position.set({ topic: 't', partition: 0 }, 7);
  waits.set({ topic: 'u', partition: 0 }, 1);
  untaken.set({ topic: 't', partition: 1 }, 1);
  expect((await take(100)).toSorted()).toEqual([...all.slice(0, 2), 'SluiceStalled firing: t 1', all[2]]);
  // a step without a sample ends nothing
  step++;
  untaken.set({ topic: 't', partition: 1 }, 0);
  expect((await take(1)).toSorted()).toEqual(all);
  for (const of of [lag, position, waits, untaken]) of.reset();
  expect(await take(1)).toEqual([]);
  expect(history.values('lag:t', step - 2, step - 1, null)).toEqual([600_000, null]);
  const moves = (i: number): void => {
    lag.set({ topic: 't', partition: 0 }, 0);
    position.set({ topic: 't', partition: 0 }, 8 + i);
  };
  expect(await take(100, moves)).toEqual([]);
});

test('levels are noted by subject, the largest of each; a missing membership also without ClickHouse, which is for the rules', async () => {
  const registry = createRegistry();
  const history = createHistory();
  const gauge = (name: string, labelNames: string[]): Gauge =>
    new Gauge({ name, help: 'x', labelNames, registers: [registry] });
  const waits = gauge('sluice_ingest_partition_waits_for_group', ['topic', 'partition']);
  const clock = gauge('sluice_ingest_clock_ahead_seconds', []);
  const incomplete = gauge('sluice_rollup_source_incomplete', ['rollup']);
  const ready = gauge('sluice_ready', ['check']);
  const refused = new Counter({ name: 'sluice_ingest_commits_refused_total', help: 'x', registers: [registry] });
  const gone = new Counter({
    name: 'sluice_ingest_gone_offsets_total',
    help: 'x',
    labelNames: ['topic'],
    registers: [registry],
  });
  const samples = createProcessSamples(registry, history);
  const at = (step: number): Record<string, number | undefined> =>
    Object.fromEntries(
      [
        'waits:t',
        'clock:ingest',
        'incomplete:r',
        'unreachable:ClickHouse',
        'apart:ingest',
        'refused commits:ingest',
        'gone:t',
        'unready:keys',
      ].map((name) => [name, history.get(name, step)]),
    );
  waits.set({ topic: 't', partition: 0 }, 1);
  waits.set({ topic: 't', partition: 1 }, 0);
  clock.set(-61);
  incomplete.set({ rollup: 'r' }, 1);
  ready.set({ check: 'clickhouse' }, 1);
  ready.set({ check: 'consumer' }, 0);
  ready.set({ check: 'keys' }, 0);
  refused.inc(3);
  await samples.take(1);
  expect(at(1)).toEqual({
    'waits:t': 1,
    'clock:ingest': 61,
    'incomplete:r': 1,
    'unreachable:ClickHouse': 0,
    'apart:ingest': 1,
    'refused commits:ingest': 0,
    'gone:t': undefined,
    'unready:keys': 1,
  });
  ready.set({ check: 'clickhouse' }, 0);
  refused.inc(2);
  gone.inc({ topic: 't' }, 500);
  await samples.take(2);
  expect(at(2)).toMatchObject({
    'unreachable:ClickHouse': 1,
    'apart:ingest': 1,
    'refused commits:ingest': 2,
    'gone:t': 500,
  });
});

test('the history keeps an hour and a half, and a late value of before does not replace one of now', () => {
  const history = createHistory();
  const kept = HISTORY_STEPS + LONGEST_WINDOW_SECONDS / STEP_SECONDS + 2;
  history.set('a', 1000, 1);
  history.set('a', 1000 + kept, 2);
  history.set('a', 1000, 3);
  expect(history.get('a', 1000)).toBeUndefined();
  expect(history.get('a', 1000 + kept)).toBe(2);
  history.set('ab', 1500, 1);
  history.clearFrom(1300, 'ab');
  expect(history.names(1000, 2000)).toEqual(['a']);
  expect(stepOf(25_000)).toBe(2);
});
