import fastify from 'fastify';
import { expect, test } from 'vitest';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import type { KeyRing } from '../keys/key-ring.ts';
import { createQueryMetrics } from '../metrics.ts';
import { createAuthentication } from './authentication.ts';

test('a wrong key counts as a failure also if the list of keys comes while its caller waits', async () => {
  let isLoaded = false;
  const keys: Pick<KeyRing, 'check'> = { check: () => (isLoaded ? 'unauthorized' : 'unavailable') };
  const none = (): number => 0;
  const app = fastify();
  const { admit } = createAuthentication(app, {
    keys: keys as KeyRing,
    loader: {
      noteUse: () => {},
      refresh: async () => {
        isLoaded = true;
      },
    },
    clock: Date.now,
    logger: createLogger('silent'),
    metrics: createQueryMetrics(createRegistry(), {
      cacheEntries: none,
      cacheBytes: none,
      queriesRunning: none,
      queriesWaiting: none,
      requestsInFlight: none,
      responseMemoryBytes: none,
    }),
    ratePerKey: 0,
    ratePerAddress: 0,
  });
  const codes: string[] = [];
  app.addHook('onRequest', async (request, reply) => {
    isLoaded = false;
    await admit(request, reply);
  });
  app.setErrorHandler(async (error, _, reply) => {
    codes.push((error as { code: string }).code);
    await reply.code(400).send('');
  });
  app.get('/api/x', async () => '');
  for (let i = 0; i < 61; i++) await app.inject({ url: '/api/x', headers: { 'x-api-key': 'wrong' } });
  expect(codes.slice(0, 60)).toEqual(Array.from({ length: 60 }, () => 'unauthorized'));
  expect(codes[60]).toBe('rate_limited');
});
