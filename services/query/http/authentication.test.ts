import fastify from 'fastify';
import { expect, test } from 'vitest';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import type { KeyRing } from '../keys/key-ring.ts';
import { createQueryMetrics } from '../metrics.ts';
import { createAuthentication } from './authentication.ts';
import { CALLER_LEFT } from './request.ts';

/** `refresh` loads the list of keys. */
function open(keys: Pick<KeyRing, 'check'>, refresh: () => Promise<void> = async () => {}) {
  const none = (): number => 0;
  const app = fastify();
  const { admit } = createAuthentication(app, {
    keys: keys as KeyRing,
    loader: { noteUse: () => {}, refresh },
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
  return { app, admit };
}

test('a caller whose connection is reset, so that nobody knows its address, has left', async () => {
  const { app, admit } = open({ check: () => 'unauthorized' });
  const errors: unknown[] = [];
  app.addHook('onRequest', async (request, reply) => {
    Object.defineProperty(request, 'ip', { value: undefined });
    await admit(request, reply);
  });
  app.setErrorHandler(async (error, _, reply) => {
    errors.push(error);
    await reply.code(400).send('');
  });
  app.get('/api/x', async () => '');
  await app.inject({ url: '/api/x', headers: { 'x-api-key': 'any' } });
  expect(errors).toEqual([CALLER_LEFT]);
});

test('a wrong key counts as a failure also if the list of keys comes while its caller waits', async () => {
  let isLoaded = false;
  const { app, admit } = open({ check: () => (isLoaded ? 'unauthorized' : 'unavailable') }, async () => {
    isLoaded = true;
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
