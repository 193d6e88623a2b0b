import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ClickHouse, Statement } from '../../../common/clickhouse/clickhouse.ts';
import { createLogger } from '../../../common/logger.ts';
import { startKeyLoader } from './key-loader.ts';
import { createKeyRing, hashKey, type Key } from './key-ring.ts';

const NOW = 1_000_000_000;

function load(read: () => Promise<readonly string[]>) {
  const executed: Statement[] = [];
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
  const ring = createKeyRing([]);
  const loader = startKeyLoader(clickhouse, ring, () => NOW, createLogger('silent'));
  return { loader, ring, executed };
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
