import { setImmediate as turnOfLoop } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createPool, type Pool, type PoolOptions } from './pool.ts';

interface Probe {
  readonly key: string;
  readonly name: number;
  uses: number;
}

function probePool(options: Partial<PoolOptions<Probe>> = {}): {
  pool: Pool<Probe>;
  open: () => Probe[];
  closed: Probe[];
} {
  const all: Probe[] = [];
  const closed: Probe[] = [];
  const pool = createPool<Probe>({
    size: 2,
    queueLimit: 3,
    idleLimit: 3,
    open: (key) => {
      const probe = { key, name: all.length, uses: 0 };
      all.push(probe);
      return Promise.resolve(probe);
    },
    recover: () => Promise.resolve(true),
    close: (probe) => {
      closed.push(probe);
    },
    ...options,
  });
  return { pool, open: () => all.filter((p) => !closed.includes(p)), closed };
}

/** Work that ends when told to. */
function work<T>(value: T): {
  run: (session: Probe) => Promise<T>;
  end: () => void;
  fail: (error: Error) => void;
  session: () => Probe | undefined;
} {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  let used: Probe | undefined;
  return {
    run: (session) => {
      used = session;
      session.uses++;
      return promise.finally(() => {
        session.uses--;
      });
    },
    end: () => resolve(value),
    fail: reject,
    session: () => used,
  };
}

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error,
  );

test('a session serves one statement at a time, first come first served', async () => {
  const { pool } = probePool();
  const works = [0, 1, 2, 3].map((n) => work(n));
  const ended: number[] = [];
  const all = works.map((w) => pool.use('k', w.run).then((n) => ended.push(n)));
  await turnOfLoop();
  expect(works.map((w) => w.session()?.uses)).toEqual([1, 1, undefined, undefined]);
  works[1]!.end();
  await turnOfLoop();
  expect(works[2]!.session()).toBe(works[1]!.session());
  expect(works[3]!.session()).toBeUndefined();
  for (const w of works) w.end();
  await Promise.all(all);
  expect(ended).toEqual([1, 0, 2, 3]);
});

test('a full queue refuses with 202, a waiting statement leaves it on abort', async () => {
  const { pool } = probePool();
  const works = [0, 1, 2, 3, 4, 5].map((n) => work(n));
  const abort = new AbortController();
  const first = works.slice(0, 4).map((w) => pool.use('k', w.run));
  const aborted = failure(pool.use('k', works[4]!.run, abort.signal));
  await expect(pool.use('k', works[5]!.run)).rejects.toMatchObject({
    code: 202,
    kind: 'retry',
    outcome: 'not_written',
  });
  abort.abort();
  expect(await aborted).toMatchObject({ code: 394 });
  const late = pool.use('k', works[5]!.run);
  for (const w of works) w.end();
  await Promise.all([...first, late]);
  expect(works[4]!.session()).toBeUndefined();
});

test('after an error nobody gets the session before it is in order again', async () => {
  const recovering = Promise.withResolvers<boolean>();
  const { pool } = probePool({ size: 1, recover: () => recovering.promise });
  const [bad, next] = [work(0), work(1)];
  const failed = failure(pool.use('k', bad.run));
  const waited = pool.use('k', next.run);
  await turnOfLoop();
  bad.fail(new Error('half way'));
  await turnOfLoop();
  expect(next.session()).toBeUndefined();
  recovering.resolve(true);
  expect(await failed).toMatchObject({ message: 'half way' });
  await turnOfLoop();
  expect(next.session()).toBe(bad.session());
  next.end();
  await waited;
});

test('a session that cannot be brought into order is closed and replaced', async () => {
  const { pool, closed } = probePool({ size: 1, recover: () => Promise.resolve(false) });
  const [bad, next] = [work(0), work(1)];
  bad.fail(new Error('half way'));
  await expect(pool.use('k', bad.run)).rejects.toThrow('half way');
  next.end();
  await pool.use('k', next.run);
  expect(closed).toEqual([bad.session()]);
  expect(next.session()).not.toBe(bad.session());
});

test('a session is only used again for its own key; idle ones beyond the limit are closed, oldest first', async () => {
  const { pool, open, closed } = probePool({ idleLimit: 2 });
  const done = async (key: string): Promise<Probe> => {
    const w = work(0);
    w.end();
    await pool.use(key, w.run);
    return w.session()!;
  };
  const a = await done('a');
  const b = await done('b');
  expect(await done('a')).toBe(a);
  await done('c');
  expect(closed).toEqual([b]);
  expect(open().map((p) => p.key)).toEqual(['a', 'c']);
});

test('a session that cannot be opened takes no place', async () => {
  let attempts = 0;
  const { pool } = probePool({ size: 1, open: () => Promise.reject(new Error(`attempt ${++attempts}`)) });
  await expect(pool.use('k', () => Promise.resolve())).rejects.toThrow('attempt 1');
  await expect(pool.use('k', () => Promise.resolve())).rejects.toThrow('attempt 2');
});

test('closing refuses what waits, lets run what runs, closes every session', async () => {
  const { pool, open } = probePool({ size: 1 });
  const [running, waiting] = [work(0), work(1)];
  const run = pool.use('k', running.run);
  const refused = failure(pool.use('k', waiting.run));
  await turnOfLoop();
  const closing = pool.close();
  expect(await refused).toMatchObject({ code: 236 });
  await expect(pool.use('k', waiting.run)).rejects.toMatchObject({ code: 236 });
  expect(open()).toHaveLength(1);
  running.end();
  expect(await run).toBe(0);
  await closing;
  expect(open()).toHaveLength(0);
});
