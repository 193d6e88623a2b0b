import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ClickHouse, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { createLogger, type Logger } from '../../../common/logger.ts';
import { startKeyLoader } from './key-loader.ts';
import { KEYS_TRUSTED_MS, createKeyRing, hashKey, type Key } from './key-ring.ts';

const NOW = 1_000_000_000;

function load(
  read: () => Promise<readonly string[]>,
  clock: () => number = () => NOW,
  schema: Promise<void> = Promise.resolve(),
) {
  const executed: Statement[] = [];
  const said: string[] = [];
  const say = (_: unknown, event?: string): void => void said.push(event ?? String(_));
  const clickhouse = {
    async read() {
      const keys = (await read()).map((id) => ({
        id,
        name: id,
        hash: hashKey(`secret of ${id}`).toString('hex'),
        scopes: ['query'],
        projects: [],
        expires_at: null,
      }));
      return { body: Buffer.from(keys.map((key) => JSON.stringify(key)).join('\n')) };
    },
    execute: async (statement: Statement) => void executed.push(statement),
  } as unknown as ClickHouse;
  const ring = createKeyRing(keyOf('first'));
  const logger = { ...createLogger('silent'), warn: say, info: say } as unknown as Logger;
  return { loader: startKeyLoader({ clickhouse, ring, clock, logger, schema }), ring, executed, said };
}

const keyOf = (id: string): Key => ({ id, name: id, hash: hashKey(id), scopes: [], projects: [] });

test('the last use of a key that was revoked meanwhile is not saved, nor that of the first key', async () => {
  let listed = ['a', 'b'];
  const { loader, executed } = load(async () => listed);
  await loader.loaded;
  for (const id of ['a', 'b', 'first']) loader.noteUse(keyOf(id), NOW);
  listed = ['a'];
  await loader.refresh();
  await loader.stop();
  expect(executed.map(({ params }) => params)).toEqual([{ ids: ['a'], ats: [NOW] }]);
});

test('lists are read one at a time: one that was read before never replaces a newer one', async () => {
  const reads: PromiseWithResolvers<readonly string[]>[] = [];
  const { loader, ring } = load(() => {
    const read = Promise.withResolvers<readonly string[]>();
    reads.push(read);
    return read.promise;
  });
  while (reads.length < 1) await setImmediate();
  const refreshed = loader.refresh();
  await new Promise((resolve) => {
    setTimeout(resolve, 300);
  });
  expect(reads).toHaveLength(1);
  reads[0]!.resolve(['a']);
  await loader.loaded;
  while (reads.length < 2) await setImmediate();
  reads[1]!.resolve([]);
  await refreshed;
  expect(ring.check('secret of a', NOW)).toBe('unauthorized');
  await loader.stop();
});

test('keys that could not be loaded for an hour are not ready, as their callers get 503', async () => {
  let now = NOW;
  let isAway = false;
  const read = async (): Promise<readonly string[]> => {
    if (isAway) throw new Error('away');
    return ['a'];
  };
  const { loader, ring, said } = load(read, () => now);
  expect(await loader.check()).toBe('are not loaded yet');
  await loader.loaded;
  isAway = true;
  now += KEYS_TRUSTED_MS;
  await loader.refresh();
  await loader.refresh();
  expect([ring.check('secret of a', now), await loader.check()]).toEqual([{ key: expect.anything() }, undefined]);
  now++;
  expect([ring.check('secret of a', now), await loader.check()]).toEqual([
    'unavailable',
    'could not be loaded for an hour',
  ]);
  isAway = false;
  await loader.refresh();
  expect([await loader.check(), said]).toEqual([undefined, ['keys_load_failed', 'keys_load_recovered']]);
  await loader.stop();
});

test('that keys cannot be loaded is logged once there is a schema, however long that takes', async () => {
  let isAway = true;
  const { promise: schema, resolve: onSchema } = Promise.withResolvers<void>();
  const { loader, said } = load(
    async () => {
      if (isAway) throw new Error('no right');
      return [];
    },
    undefined,
    schema,
  );
  for (let i = 0; i < 3; i++) await loader.refresh();
  expect(said).toEqual([]);
  onSchema();
  await loader.refresh();
  await loader.refresh();
  expect(said).toEqual(['keys_load_failed']);
  isAway = false;
  await loader.refresh();
  expect(said).toEqual(['keys_load_failed', 'keys_load_recovered']);
  await loader.stop();
});
