import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { withinTimeLimit } from './time-limit.ts';

const after = (ms: number) => async (): Promise<string> => {
  await sleep(ms);
  return 'rows';
};

test('an answer that comes after its own time limit is none', async () => {
  await expect(withinTimeLimit({ max_execution_time: 0.05 }, after(60))).rejects.toMatchObject({
    code: 159,
    codeName: 'TIMEOUT_EXCEEDED',
  });
});

test.each([{ max_execution_time: 30 }, { max_execution_time: 0 }, {}])('within %o it is', async (settings) => {
  await expect(withinTimeLimit(settings, after(1))).resolves.toBe('rows');
});

test('what the read throws is thrown', async () => {
  await expect(withinTimeLimit({ max_execution_time: 0.01 }, () => Promise.reject(new Error('away')))).rejects.toThrow(
    'away',
  );
});
