import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { refusal } from './errors.ts';
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

test.each([
  [{ max_execution_time: 1 }, 'Query 7a is killed in pending state', 159],
  [{}, 'Query 7a is killed in pending state', 394],
  [{ max_execution_time: 1 }, 'Query was cancelled by the caller', 394],
])('under %o, "%s" has the number %i', async (settings, message, code) => {
  const read = (): Promise<never> => Promise.reject(refusal(394, message));
  await expect(withinTimeLimit(settings, read)).rejects.toMatchObject({ code });
});
