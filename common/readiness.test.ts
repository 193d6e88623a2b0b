import { afterEach, expect, test, vi } from 'vitest';
import { createRegistry } from './metrics.ts';
import { readinessOf, watchReadiness } from './readiness.ts';

afterEach(() => {
  vi.useRealTimers();
});

test('what is not ready is named; a note is said and holds nothing up; a check that fails does not answer', async () => {
  const ok = async (): Promise<undefined> => undefined;
  const noted = async (): Promise<{ note: string }> => ({ note: 'rollups differ' });
  expect(await readinessOf({ a: ok, b: noted })).toEqual({
    status: 'ready',
    checks: { a: 'ok', b: 'ok, rollups differ' },
  });
  expect(await readinessOf({ a: ok, b: async () => 'is away', c: () => Promise.reject(new Error('x')) })).toEqual({
    status: 'not_ready',
    checks: { a: 'ok', b: 'is away', c: 'does not answer' },
  });
});

test('callers share an evaluation, also one that hangs, and its answer for a second; none begins before the last one has ended', async () => {
  vi.useFakeTimers();
  const registry = createRegistry();
  let problem: string | undefined;
  const calls = { works: 0, hangs: 0 };
  const hanging = Promise.withResolvers<undefined>();
  const checks = {
    works: async () => (calls.works++, problem),
    hangs: () => (calls.hangs++, hanging.promise),
  };
  watchReadiness(registry, checks);
  const asked = [...Array(100).keys()].map(() => readinessOf(checks));
  const scrape = registry.getSingleMetric('sluice_ready')!.get();
  await vi.advanceTimersByTimeAsync(999);
  const late = readinessOf(checks);
  expect(calls).toEqual({ works: 1, hangs: 1 });
  problem = 'is away';
  await vi.advanceTimersByTimeAsync(1);
  const later = readinessOf(checks);
  expect(calls).toEqual({ works: 2, hangs: 1 });
  await vi.advanceTimersByTimeAsync(1_000);
  expect((await scrape).values.map(({ value }) => value)).toEqual([1, 0]);
  expect(new Set((await Promise.all([...asked, late])).map((r) => JSON.stringify(r.checks)))).toEqual(
    new Set([JSON.stringify({ works: 'ok', hangs: 'takes too long' })]),
  );
  expect((await later).checks).toEqual({ works: 'is away', hangs: 'takes too long' });
  expect((await readinessOf(checks)).checks).toEqual({ works: 'is away', hangs: 'takes too long' });
  expect(calls).toEqual({ works: 3, hangs: 1 });
  hanging.resolve(undefined);
  await hanging.promise;
  await vi.advanceTimersByTimeAsync(0);
  expect((await readinessOf(checks)).checks).toEqual({ works: 'is away', hangs: 'ok' });
  expect(calls).toEqual({ works: 3, hangs: 2 });
});

test('a scrape shows each check as 1 or 0, and waits two seconds at most for a check that hangs', async () => {
  vi.useFakeTimers();
  const registry = createRegistry();
  let problem: string | undefined;
  watchReadiness(registry, {
    changes: async () => problem,
    noted: async () => ({ note: 'rollups differ' }),
    fails: () => Promise.reject(new Error('x')),
    hangs: () => new Promise(() => undefined),
  });
  const scrape = async (): Promise<unknown> => {
    const values = registry.getSingleMetric('sluice_ready')!.get();
    await vi.advanceTimersByTimeAsync(2_000);
    return Object.fromEntries((await values).values.map(({ labels, value }) => [labels['check'], value]));
  };
  expect(await scrape()).toEqual({ changes: 1, noted: 1, fails: 0, hangs: 0 });
  problem = 'has not joined its group';
  expect(await scrape()).toEqual({ changes: 0, noted: 1, fails: 0, hangs: 0 });
});
