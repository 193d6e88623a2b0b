import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';

test.each([
  [{}, '16'],
  [{ QUERY_CONCURRENCY: '4' }, '16'],
  [{ QUERY_CONCURRENCY: '12' }, '24'],
  [{ QUERY_CONCURRENCY: 'many' }, '16'],
  [{ UV_THREADPOOL_SIZE: '' }, '16'],
  [{ QUERY_CONCURRENCY: '12', UV_THREADPOOL_SIZE: '8' }, '8'],
])('with %j the pool has %s threads', (env, threads) => {
  const module = new URL('thread-pool.ts', import.meta.url).href;
  const code = `console.log((await import('${module}')).THREAD_POOL_SIZE)`;
  expect(execFileSync(process.execPath, ['--input-type=module', '-e', code], { env, encoding: 'utf8' }).trim()).toBe(
    threads,
  );
});
