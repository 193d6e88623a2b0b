import { afterEach, expect, test, vi } from 'vitest';
import { createLogger } from '../../common/logger.ts';
import { createRegistry, metricsIn } from '../../common/metrics.ts';
import { startStatus } from './status.ts';

const HOUR_MS = 3_600_000;
const ADMIN = { id: 'a', name: 'admin', scopes: ['admin'], projects: [] };
const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
  vi.useRealTimers();
});

test('the facts are read again after the clock was set back', async () => {
  let now = Date.parse('2026-01-01T12:00:00Z');
  let reads = 0;
  const status = startStatus({
    clickhouse: { read: async () => ({ body: Buffer.from(''), readRows: reads++, readBytes: 0 }) },
    registry: createRegistry(),
    logger: createLogger('silent'),
    clock: () => now,
  });
  ends.push(status.stop);
  await status.status(ADMIN, undefined);
  const once = reads;
  await status.status(ADMIN, undefined);
  expect(reads).toBe(once);
  now -= HOUR_MS;
  await status.status(ADMIN, undefined);
  expect(reads).toBeGreaterThan(once);
});

test('a key limited to projects sees no endpoint: requests are counted for all keys together', async () => {
  vi.useFakeTimers();
  const registry = createRegistry();
  const requests = metricsIn(registry).counter(
    'sluice_query_requests_total',
    'as the service counts',
    'endpoint',
    'status',
    'cache',
  );
  const status = startStatus({
    clickhouse: { read: () => Promise.reject(new Error('only an admin key reads')) },
    registry,
    logger: createLogger('silent'),
    clock: Date.now,
  });
  ends.push(status.stop);
  await vi.advanceTimersByTimeAsync(10_010);
  requests.inc({ endpoint: 'logs.all', status: 200, cache: 'none' });
  await vi.advanceTimersByTimeAsync(10_000);
  const seen = async (projects: readonly string[]): Promise<string[]> =>
    (await status.status({ id: 'k', name: 'k', scopes: ['query'], projects }, undefined)).endpoints.map(
      ({ endpoint }) => endpoint,
    );
  expect([await seen([]), await seen(['p'])]).toEqual([['logs.all'], []]);
});
