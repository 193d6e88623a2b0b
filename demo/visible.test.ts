import { expect, test } from 'vitest';
import { createVisible, lookUntil } from './visible.ts';

const metrics = (edge: number, auth: number, ...ages: number[]): string =>
  [
    '# TYPE sluice_ingest_events_total counter',
    `sluice_ingest_events_total{source="edge_logs"} ${edge}`,
    `sluice_ingest_events_total{source="auth_logs"} ${auth}`,
    'sluice_ingest_events_total_other 7',
    ...ages.map((age, i) => `sluice_ingest_freshness_seconds{source="s${i}"} ${age}`),
    '',
  ].join('\n');

test('counts what became visible since the first look, over all sources, also when the service is started anew; absent while none answers', async () => {
  const answers = [
    'sluice_query_requests_total 1\n',
    metrics(100, 10),
    metrics(150, 30, 0.7, 1.25),
    undefined,
    metrics(5, 1, 0.5),
    metrics(8, 1, 0.5),
  ];
  const look = createVisible(async () => answers.shift());
  // a query process without ingest
  expect(await look()).toBeUndefined();
  expect(await look()).toEqual({ events: 0, freshnessSeconds: undefined });
  expect(await look()).toEqual({ events: 70, freshnessSeconds: 1.25 });
  expect(await look()).toBeUndefined();
  expect(await look()).toEqual({ events: 76, freshnessSeconds: 0.5 });
  expect(await look()).toEqual({ events: 79, freshnessSeconds: 0.5 });
});

test('at the end looks again until everything acknowledged is visible, for a limited time, and not where none answers', async () => {
  const looking = (...seen: (number | undefined)[]) => {
    const look = async () => {
      const events = seen.length > 1 ? seen.shift() : seen[0];
      return events === undefined ? undefined : { events, freshnessSeconds: undefined };
    };
    return lookUntil(look, 10, 250);
  };
  expect(await looking(5, 8, 11, 12)).toMatchObject({ events: 11 });
  expect(await looking(5)).toMatchObject({ events: 5 });
  expect(await looking(undefined, 10)).toBeUndefined();
});

test('looks that overlap are answered in order', async () => {
  const answers = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  const asked = answers.values();
  const look = createVisible(async () => await asked.next().value!.promise);
  const [first, second] = [look(), look()];
  answers[1]!.resolve(metrics(150, 10));
  answers[0]!.resolve(metrics(100, 10));
  expect(await first).toMatchObject({ events: 0 });
  expect(await second).toMatchObject({ events: 50 });
});
