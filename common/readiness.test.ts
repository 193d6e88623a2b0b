import { expect, test } from 'vitest';
import { readinessOf } from './readiness.ts';

test('what is not ready is named; a note is said and holds nothing up; a check that fails does not answer', async () => {
  const ok = async (): Promise<undefined> => undefined;
  const noted = async (): Promise<{ note: string }> => ({ note: 'rollups differ' });
  expect(await readinessOf({ a: ok, b: noted })).toEqual({ status: 'ready', checks: { a: 'ok', b: 'ok, rollups differ' } });
  expect(await readinessOf({ a: ok, b: async () => 'is away', c: () => Promise.reject(new Error('x')) })).toEqual({ status: 'not_ready', checks: { a: 'ok', b: 'is away', c: 'does not answer' } });
});
