import { expect, test } from 'vitest';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createAnswers, type SharedAnswer } from './answers.ts';
import { BUILT_IN, readDefinitions } from '../definition/definition.ts';
import { createQueryMetrics } from '../metrics.ts';
import { readParams } from '../definition/params.ts';
import { createResponseMemory } from './response-memory.ts';
import { createShares } from './shares.ts';
import { createQuerySlots } from './query-slots.ts';

test('an answer that another process puts there between our look and our lock is taken, and no query made', async () => {
  const theirs: SharedAnswer = { body: '{"result":[]}', truncated: false, fetchedAt: 1_000_000 };
  let there: SharedAnswer | undefined;
  let locked = false;
  const shares = createShares();
  const zero = (): number => 0;
  const answers = createAnswers({
    clickhouse: { read: () => Promise.reject(new Error('a query was made')) },
    slots: createQuerySlots({ shares, concurrency: 1, queue: 0, waitMs: 1 }),
    responseMemory: createResponseMemory({ shares }),
    shares,
    clock: () => 1_000_000,
    logger: createLogger('silent'),
    metrics: createQueryMetrics(createRegistry(), {
      cacheEntries: zero,
      cacheBytes: zero,
      queriesRunning: zero,
      queriesWaiting: zero,
      requestsInFlight: zero,
      responseMemoryBytes: zero,
    }),
    limits: { timeoutSeconds: 1, maxMemoryBytes: 1, maxRowsToRead: 1, maxResultBytes: 1 },
    cacheLimits: { maxEntries: 1, maxBytes: 1_000 },
    shared: {
      get: () => Promise.resolve(there),
      put: () => Promise.resolve(),
      lock: () => {
        there = theirs;
        locked = true;
        return Promise.resolve(true);
      },
      unlock: () => {
        locked = false;
        return Promise.resolve();
      },
    },
  });
  const definition = readDefinitions([BUILT_IN]).find('functions.invocation-stats')!;
  const read = readParams(definition, new URLSearchParams({ project: 'p' }));
  if (!('params' in read)) throw new Error('refused');
  const { answer } = await answers.answer(definition, read.params, () => new AbortController().signal, 'k');
  expect([answer.body, locked]).toEqual([theirs.body, false]);
});
