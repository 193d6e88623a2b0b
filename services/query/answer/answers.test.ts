import { setImmediate } from 'node:timers/promises';
import type { FastifyReply } from 'fastify';
import { expect, test, vi } from 'vitest';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { compressors } from './answer.ts';
import { createAnswers } from './answers.ts';
import type { SharedAnswer, SharedCache } from './shared-cache.ts';
import { STALE_MS } from './cache.ts';
import { BUILT_IN, readDefinitions } from '../definition/definition-files.ts';
import type { Definition } from '../definition/definition.ts';
import { createQueryMetrics } from '../metrics.ts';
import { readParams } from '../definition/params.ts';
import { createResponseMemory } from './response-memory.ts';
import { createShares } from './shares.ts';
import { createQuerySlots } from './query-slots.ts';

const NOW = 1_000_000_000;
const definition = readDefinitions([BUILT_IN]).find('functions.invocation-stats')!;
const read = readParams(definition, new URLSearchParams({ project: 'p' }));
if (!('params' in read)) throw new Error('refused');
const { params } = read;
const calm = new AbortController().signal;
/** no row of the endpoint's */
const EMPTY = Buffer.from(
  JSON.stringify({ meta: definition.columns.map(({ from: name }) => ({ name, type: 'String' })), data: [] }),
);

function make(
  clickhouse: Reader,
  shared?: SharedCache,
  {
    clock = () => NOW,
    maxBytes = 1_000,
    slots = { concurrency: 8, queue: 0, waitMs: 1 },
    reserve,
    take,
    isServed = () => true,
  }: {
    clock?: () => number;
    maxBytes?: number;
    slots?: { concurrency: number; queue: number; waitMs: number };
    reserve?: (signal: AbortSignal, owner: string) => Promise<() => void>;
    take?: (bytes: number, owner: string) => () => void;
    isServed?: (of: Definition) => boolean;
  } = {},
): ReturnType<typeof createAnswers> {
  const shares = createShares();
  const zero = (): number => 0;
  return createAnswers({
    clickhouse,
    slots: createQuerySlots({ shares, ...slots }),
    responseMemory: { ...createResponseMemory(shares), ...(reserve && { reserve }), ...(take && { take }) },
    shares,
    clock,
    logger: createLogger('silent'),
    metrics: createQueryMetrics(createRegistry(), {
      cacheEntries: zero,
      cacheBytes: zero,
      queriesRunning: zero,
      queriesWaiting: zero,
      requestsInFlight: zero,
      responseMemoryBytes: zero,
    }),
    limits: {
      max_execution_time: 1,
      max_memory_usage: 1,
      max_rows_to_read: 1,
      max_result_bytes: 128 * 1024 * 1024,
    },
    cacheLimits: { maxEntries: 1, maxBytes },
    ...(shared && { shared }),
    isServed,
  });
}

test('an answer that another process puts there between our look and our lock is taken, and no query made', async () => {
  const theirs: SharedAnswer = { body: '{"result":[]}', truncated: false, fetchedAt: NOW };
  let there: SharedAnswer | undefined;
  let locked = false;
  const answers = make(
    { read: () => Promise.reject(new Error('a query was made')) },
    {
      get: () => Promise.resolve(there),
      fetchedAt: () => Promise.resolve(there?.fetchedAt),
      put: () => Promise.resolve(),
      lock: () => {
        there = theirs;
        locked = true;
        return Promise.resolve(() => {
          locked = false;
          return Promise.resolve();
        });
      },
    },
  );
  const { answer } = await answers.answer(definition, params, () => calm, 'k');
  expect([answer.body, locked]).toEqual([theirs.body, false]);
});

test('what another process had is served for an hour while ClickHouse is away, and no longer nor for another reason', async () => {
  let fetchedAt = NOW - STALE_MS;
  let error = refusal(210, 'away');
  const answers = make(
    { read: () => Promise.reject(error) },
    {
      get: () => Promise.resolve({ body: '{"result":[]}', truncated: false, fetchedAt }),
      fetchedAt: () => Promise.resolve(fetchedAt),
      put: () => Promise.resolve(),
      lock: () => Promise.resolve(() => Promise.resolve()),
    },
  );
  const answer = () => answers.answer(definition, params, () => calm, 'k');
  expect(await answer()).toMatchObject({ cache: 'stale' });
  error = refusal(158, 'too many rows');
  await expect(answer()).rejects.toMatchObject({ code: 'timeout' });
  error = refusal(210, 'away');
  fetchedAt -= 1;
  await expect(answer()).rejects.toMatchObject({ code: 'unavailable' });
});

test('an endpoint shares its answers neither with another one nor with another definition of its own', async () => {
  const keys = new Set<string>();
  const answers = make(
    { read: async () => ({ body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 }) },
    {
      get: () => Promise.resolve(undefined),
      fetchedAt: async (key) => void keys.add(key),
      put: () => Promise.resolve(),
      lock: () => Promise.resolve(() => Promise.resolve()),
    },
  );
  for (const of of [definition, { ...definition, hash: 'of other files' }, { ...definition, id: 'another' }])
    await answers.answer(of, params, () => calm, 'k');
  expect(keys.size).toBe(3);
});

test('each query gives its slot back, a requery too', async () => {
  let now = NOW;
  let queries = 0;
  const answers = make(
    {
      read: async () => {
        queries++;
        return { body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 };
      },
    },
    undefined,
    { clock: () => now, slots: { concurrency: 2, queue: 0, waitMs: 1 } },
  );
  const uncached = { ...definition, cacheSeconds: 0 };
  for (const of of [uncached, uncached, uncached, definition]) await answers.answer(of, params, () => calm, 'k');
  for (let i = 0; i < 3; i++) {
    now += 300_000;
    await answers.requery();
  }
  expect(queries).toBe(7);
});

test('who comes after the last one left shares a new query, though the old one ends later', async () => {
  const queries: PromiseWithResolvers<void>[] = [];
  const answers = make({
    read: async () => {
      const query = Promise.withResolvers<void>();
      queries.push(query);
      await query.promise;
      return { body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 };
    },
  });
  const first = new AbortController();
  const left = answers.answer(definition, params, () => first.signal, 'k');
  await setImmediate();
  first.abort(new Error('left'));
  await expect(left).rejects.toThrow('left');
  const second = answers.answer(definition, params, () => calm, 'k');
  await setImmediate();
  expect(queries).toHaveLength(2);
  queries[0]?.reject(new Error('cancelled'));
  await setImmediate();
  const third = answers.answer(definition, params, () => calm, 'k');
  await setImmediate();
  expect(queries).toHaveLength(2);
  queries[1]?.resolve();
  expect((await Promise.all([second, third])).map(({ cache }) => cache)).toEqual(['miss', 'miss']);
});

test('after a requery that failed, the next one waits 30 seconds', async () => {
  let now = NOW;
  let queries = 0;
  const answers = make(
    {
      read: () => {
        queries++;
        return now === NOW
          ? Promise.resolve({ body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 })
          : Promise.reject(refusal(210, 'away'));
      },
    },
    undefined,
    { clock: () => now },
  );
  await answers.answer(definition, params, () => calm, 'k');
  const queriesAt = async (seconds: number): Promise<number> => {
    now = NOW + seconds * 1000;
    await answers.requery();
    return queries;
  };
  expect([await queriesAt(300), await queriesAt(301), await queriesAt(329)]).toEqual([2, 2, 2]);
  expect(await queriesAt(330)).toBe(3);
});

test('an answer of another process is kept warm from the moment at which its caller asked', async () => {
  let now = NOW;
  let queries = 0;
  const theirs: SharedAnswer = { body: '{"result":[]}', truncated: false, fetchedAt: NOW - 850_000 };
  const answers = make(
    {
      read: async () => {
        queries++;
        return { body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 };
      },
    },
    {
      get: () => Promise.resolve(theirs),
      fetchedAt: () => Promise.resolve(theirs.fetchedAt),
      put: () => Promise.resolve(),
      lock: () => Promise.resolve(() => Promise.resolve()),
    },
    { clock: () => now },
  );
  expect(await answers.answer(definition, params, () => calm, 'k')).toMatchObject({ cache: 'hit' });
  const seen: number[] = [];
  for (const seconds of [1, 301, 601, 901]) {
    now = NOW + seconds * 1000;
    await answers.requery();
    seen.push(queries);
  }
  expect(seen).toEqual([1, 2, 3, 3]);
});

test('a key that joined the query of another key gets a slot of its own if that key gets none', async () => {
  const answers = make(
    {
      read: ({ params: bound, signal }) =>
        bound?.['project'] === 'slow'
          ? new Promise((_, reject) => {
              signal?.addEventListener('abort', () => reject(new Error('cancelled')));
            })
          : Promise.resolve({ body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 }),
    },
    undefined,
    { slots: { concurrency: 2, queue: 2, waitMs: 50 } },
  );
  const busy = answers.answer(definition, { ...params, project: 'slow' }, () => calm, 'busy').catch(() => undefined);
  const refused = answers.answer(definition, params, () => calm, 'busy').catch((error: unknown) => error);
  const joined = await Promise.all(['a', 'b'].map((key) => answers.answer(definition, params, () => calm, key)));
  expect(joined.map(({ cache }) => cache)).toEqual(['miss', 'miss']);
  expect(await refused).toMatchObject({ code: 'unavailable', message: 'too many queries are running' });
  answers.close();
  await busy;
});

/** Reserves memory as often as asked, and records it. */
function recordReservations() {
  const events: string[] = [];
  const reserve = async (): Promise<() => void> => {
    events.push('reserved');
    return () => void events.push('released');
  };
  return { events, reserve };
}
/** A result of one row with about this many bytes. */
const resultOf = ({ columns }: typeof definition, bytes: number): Buffer =>
  Buffer.from(
    JSON.stringify({
      meta: columns.map(({ from: name }) => ({ name, type: 'String' })),
      data: [columns.map(({ render }) => (render === 'number' || render === 'string' ? 'x'.repeat(bytes) : null))],
    }),
  );

test('a large answer that is not cached is made in its form while its memory is reserved', async () => {
  const { events, reserve } = recordReservations();
  const logs = readDefinitions([BUILT_IN]).find('logs.all')!;
  const answers = make(
    {
      read: async ({ settings }) => {
        if (Number(settings?.['max_result_bytes']) < 100_000_000) throw refusal(396, 'too large');
        return { body: resultOf({ ...logs, columns: [logs.columns[0]!] }, 2_000_000), readRows: 1, readBytes: 1 };
      },
    },
    undefined,
    { reserve },
  );
  const one = { ...logs, columns: [logs.columns[0]!] };
  const { answer, cache } = await answers.answer(one, params, () => calm, 'k', 'ndjson');
  expect([cache, answer.bytes > 2_000_000, answer.body.toString().slice(0, 9)]).toEqual(['none', true, '{"id":"xx']);
  expect(events).toEqual(['reserved', 'released']);
});

test('a large cached answer reserves memory while it is converted, and a refused conversion may be repeated', async () => {
  const { events, reserve } = recordReservations();
  let refuses = true;
  const answers = make(
    {
      read: async () => ({ body: resultOf(definition, 3_000_000), readRows: 1, readBytes: 1 }),
    },
    undefined,
    { reserve: () => (refuses ? Promise.reject(new Error('no memory')) : reserve()) },
  );
  const { answer } = await answers.answer(definition, params, () => calm, 'k');
  expect(answer.bytes).toBeGreaterThan(8 * 1024 * 1024);
  await expect(answers.inForm(answer, 'ndjson', definition, 'k')).rejects.toThrow('no memory');
  refuses = false;
  const both = ['k', 'l'].map((key) => answers.inForm(answer, 'ndjson', definition, key));
  await setImmediate();
  expect(events).toEqual(['reserved']);
  const [form] = await Promise.all(both);
  expect([form?.body.length, events]).toEqual([answer.bytes - '{"result":[]}'.length + 1, ['reserved', 'released']]);
});

/** Memory of which the key `full` has its share already, while another key may have some. */
function memoryBeside(): Pick<ReturnType<typeof createResponseMemory>, 'reserve' | 'take'> {
  const shares = createShares();
  const memory = createResponseMemory(shares);
  const reply = { raw: { destroyed: false, once: () => undefined } } as unknown as FastifyReply;
  memory.hold(reply, 90 * 1024 * 1024, 'full');
  for (const key of ['b', 'full']) shares.note(key);
  return memory;
}

test('a key that joined the query of another key gets memory of its own if that key gets none', async () => {
  const answers = make(
    {
      read: async ({ settings }) => {
        if (Number(settings?.['max_result_bytes']) < 100_000_000) throw refusal(396, 'too large');
        return { body: EMPTY, readRows: 0, readBytes: 0 };
      },
    },
    undefined,
    memoryBeside(),
  );
  const [refused, joined] = await Promise.allSettled(
    ['full', 'b'].map((key) => answers.answer(definition, params, () => calm, key)),
  );
  expect(refused).toMatchObject({ reason: { code: 'unavailable', retryAfterSeconds: 5 } });
  expect(joined).toMatchObject({ value: { cache: 'miss' } });
});

test('a key that joined the conversion or compression of another key gets memory of its own if that key gets none', async () => {
  const read = async () => ({ body: resultOf(definition, 3_000_000), readRows: 1, readBytes: 1 });
  const answers = make({ read }, undefined, memoryBeside());
  const { answer } = await answers.answer(definition, params, () => calm, 'b');
  const ofBoth = (run: (key: string) => Promise<unknown>) => Promise.allSettled(['full', 'b'].map(run));
  const converted = await ofBoth((key) => answers.inForm(answer, 'ndjson', definition, key));
  const compressed = await ofBoth((key) => answers.encoded(answer, 'gzip', key));
  for (const [refused, joined] of [converted, compressed])
    expect([refused, joined]).toMatchObject([
      { reason: { code: 'unavailable', retryAfterSeconds: 5 } },
      { status: 'fulfilled' },
    ]);
});

test('compressed copies and other forms of an answer count as bytes of the cache, each once', async () => {
  const answers = make({ read: () => Promise.resolve({ body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 }) });
  const { answer } = await answers.answer(definition, params, () => calm, 'k');
  const json = answers.cache.bytes();
  const copy = await answers.encoded(answer, 'gzip', 'k');
  expect(answers.cache.bytes()).toBe(json + copy.length);
  const csv = await answers.inForm(answer, 'csv', definition, 'k');
  const both = json + copy.length + csv.bytes;
  expect([csv.bytes > 0, answers.cache.bytes()]).toEqual([true, both]);
  const csvCopy = await answers.encoded(csv, 'br', 'k');
  expect(answers.cache.bytes()).toBe(both + csvCopy.length);
  await answers.encoded(answer, 'gzip', 'k');
  await answers.inForm(answer, 'csv', definition, 'k');
  expect(answers.cache.bytes()).toBe(both + csvCopy.length);
});

test('a large answer counts while it is compressed: it is neither reserved any more nor held yet', async () => {
  const events: string[] = [];
  const answers = make(
    { read: async () => ({ body: resultOf(definition, 3_000_000), readRows: 1, readBytes: 1 }) },
    undefined,
    {
      take: (bytes, owner) => {
        events.push(`${owner} takes ${bytes}`);
        return () => void events.push('given back');
      },
    },
  );
  const { answer } = await answers.answer(definition, params, () => calm, 'k');
  expect(answer.bytes).toBeGreaterThan(8 * 1024 * 1024);
  const br = vi.spyOn(compressors, 'br').mockImplementation(async () => {
    events.push('compressed');
    return Buffer.alloc(1);
  });
  await Promise.all(['k', 'l'].map((key) => answers.encoded(answer, 'br', key)));
  br.mockRestore();
  expect(events).toEqual([`k takes ${answer.bytes}`, 'compressed', 'given back']);
});

test('an answer above 8 MiB is not shared with other processes', async () => {
  const put: number[] = [];
  const stored = (size: number): Buffer =>
    Buffer.from(
      JSON.stringify({
        meta: definition.columns.map(({ from: name }) => ({ name, type: 'String' })),
        data: [definition.columns.map(({ render }) => (render === 'number' ? 'x'.repeat(size) : null))],
      }),
    );
  for (const size of [1_000, 8 * 1024 * 1024]) {
    const answers = make(
      { read: () => Promise.resolve({ body: stored(size), readRows: 0, readBytes: 0 }) },
      {
        get: () => Promise.resolve(undefined),
        fetchedAt: () => Promise.resolve(undefined),
        put: (_, { body }) => {
          put.push(body.length);
          return Promise.resolve();
        },
        lock: () => Promise.resolve(() => Promise.resolve()),
      },
    );
    const { answer } = await answers.answer(definition, params, () => calm, 'k');
    expect(answer.bytes).toBeGreaterThan(size);
  }
  expect(put).toHaveLength(1);
});

test('answers of a definition that is no longer served are not queried again', async () => {
  let now = NOW;
  let queries = 0;
  let served = definition.hash;
  const read = async () => {
    queries++;
    return { body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 };
  };
  const answers = make({ read }, undefined, { clock: () => now, isServed: ({ hash }) => hash === served });
  await answers.answer(definition, params, () => calm, 'k');
  now += 300_000;
  await answers.requery();
  expect(queries).toBe(2);
  served = 'of other files';
  now += 300_000;
  await answers.requery();
  expect(queries).toBe(2);
});

test('an encoding that failed once is tried again', async () => {
  const answers = make({ read: async () => ({ body: Buffer.from(EMPTY), readRows: 0, readBytes: 0 }) });
  const { answer } = await answers.answer(definition, params, () => calm, 'k');
  const gzip = vi.spyOn(compressors, 'gzip').mockRejectedValueOnce(new Error('no memory'));
  await expect(answers.encoded(answer, 'gzip', 'k')).rejects.toThrow('no memory');
  expect((await answers.encoded(answer, 'gzip', 'k')).length).toBeGreaterThan(0);
  gzip.mockRestore();
});
