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
