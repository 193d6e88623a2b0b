import { getEventListeners } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { createShares } from './shares.ts';
import { createQuerySlots } from './query-slots.ts';

const calm = new AbortController().signal;
let callers = 0;
/** another key each time */
const someone = (): string => `key${++callers}`;
/** nobody has asked within the last minute */
const shares = createShares();

describe('slots', () => {
  it('runs as many as there are, the others in the order in which they came', async () => {
    const slots = createQuerySlots({ shares, concurrency: 2, queue: 10, waitMs: 10_000 });
    const order: number[] = [];
    const [first, second] = [await slots.acquire(calm, someone()), await slots.acquire(calm, someone())];
    const waiting = [1, 2, 3].map(async (i) => {
      const release = await slots.acquire(calm, someone());
      order.push(i);
      release();
    });
    expect([slots.running(), slots.waiting()]).toEqual([2, 3]);
    first();
    first();
    await Promise.all(waiting);
    expect(order).toEqual([1, 2, 3]);
    expect([slots.running(), slots.waiting()]).toEqual([1, 0]);
    second();
    expect(slots.running()).toBe(0);
  });

  it('lets the queries that wait go first when another key has not called for a minute', async () => {
    let now = 0;
    const timed = createShares(() => now);
    timed.note('b');
    timed.note('a');
    const slots = createQuerySlots({ shares: timed, concurrency: 4, queue: 10, waitMs: 10_000 });
    await Promise.all([slots.acquire(calm, 'a'), slots.acquire(calm, 'a')]);
    const order: number[] = [];
    const third = slots.acquire(calm, 'a').then(() => order.push(3));
    now = 60_001;
    const fourth = slots.acquire(calm, 'a').then(() => order.push(4));
    await third;
    expect([order, slots.running(), slots.waiting()]).toEqual([[3], 3, 1]);
    void fourth;
  });

  it('refuses at once where too many wait', async () => {
    const slots = createQuerySlots({ shares, concurrency: 1, queue: 1, waitMs: 10_000 });
    const release = await slots.acquire(calm, someone());
    const waits = slots.acquire(calm, someone());
    await expect(slots.acquire(calm, someone())).rejects.toMatchObject({
      code: 'unavailable',
      status: 503,
      retryAfterSeconds: 1,
    });
    release();
    (await waits)();
  });

  it('refuses who has waited too long, and not much later', async () => {
    const slots = createQuerySlots({ shares, concurrency: 1, queue: 1, waitMs: 200 });
    await slots.acquire(calm, someone());
    const from = performance.now();
    await expect(slots.acquire(calm, someone())).rejects.toMatchObject({ code: 'unavailable' });
    const waited = performance.now() - from;
    expect([waited > 190, waited < 2_000]).toEqual([true, true]);
    expect(slots.waiting()).toBe(0);
  });

  it('lets go of who leaves', async () => {
    const slots = createQuerySlots({ shares, concurrency: 1, queue: 1, waitMs: 10_000 });
    const release = await slots.acquire(calm, someone());
    const caller = new AbortController();
    const waits = slots.acquire(caller.signal, someone());
    caller.abort(new Error('left'));
    await expect(waits).rejects.toThrow('left');
    release();
    expect([slots.running(), slots.waiting()]).toEqual([0, 0]);
    await expect(slots.acquire(caller.signal, someone())).rejects.toThrow('left');
  });

  it('gives background work half of them at most, and none while callers wait', async () => {
    const slots = createQuerySlots({ shares, concurrency: 4, queue: 4, waitMs: 10_000 });
    const background = [slots.tryAcquireBackground(), slots.tryAcquireBackground(), slots.tryAcquireBackground()];
    expect(background.map((b) => b !== undefined)).toEqual([true, true, false]);
    background[0]?.();
    background[0]?.();
    expect(slots.running()).toBe(1);
    // given back twice, it was one
    expect([slots.tryAcquireBackground(), slots.tryAcquireBackground()].map((b) => b !== undefined)).toEqual([
      true,
      false,
    ]);
    background[1]?.();
    const callers = [
      await slots.acquire(calm, someone()),
      await slots.acquire(calm, someone()),
      await slots.acquire(calm, someone()),
    ];
    const waits = slots.acquire(calm, someone());
    expect(slots.tryAcquireBackground()).toBeUndefined();
    callers[0]?.();
    (await waits)();
    expect(slots.running()).toBe(3);
  });

  it('keeps neither a timer nor a listener of a wait that is over', async () => {
    const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const before = timers();
    const slots = createQuerySlots({ shares, concurrency: 1, queue: 1, waitMs: 10_000 });
    const caller = new AbortController();
    const release = await slots.acquire(calm, someone());
    const waits = slots.acquire(caller.signal, someone());
    expect([timers() - before, getEventListeners(caller.signal, 'abort').length]).toEqual([1, 1]);
    release();
    (await waits)();
    expect([timers() - before, getEventListeners(caller.signal, 'abort').length]).toEqual([0, 0]);
  });

  it('gives background work a free slot while a key waits for its own share', async () => {
    const slots = createQuerySlots({ shares, concurrency: 2, queue: 2, waitMs: 10_000 });
    const release = await slots.acquire(calm, 'a');
    const waits = slots.acquire(calm, 'a');
    expect([slots.running(), slots.waiting()]).toEqual([1, 1]);
    const background = slots.tryAcquireBackground();
    expect(background).toBeDefined();
    expect([slots.running(), slots.waiting()]).toEqual([2, 1]);
    release();
    (await waits)();
    background?.();
    expect(slots.running()).toBe(0);
  });

  it('gives a free slot to a waiting query that may run by now, before background work', async () => {
    let now = 0;
    const lately = createShares(() => now);
    const slots = createQuerySlots({ shares: lately, concurrency: 4, queue: 4, waitMs: 10_000 });
    lately.note('b');
    lately.note('a');
    for (const owner of ['a', 'a', 'b']) await slots.acquire(calm, owner);
    const waits = slots.acquire(calm, 'a');
    expect([slots.running(), slots.waiting()]).toEqual([3, 1]);
    // no other key has asked within the last minute: three slots are for this one
    now = 60_000;
    expect([slots.tryAcquireBackground(), slots.running(), slots.waiting()]).toEqual([undefined, 4, 0]);
    (await waits)();
  });

  it('gives background work none that callers have', async () => {
    const slots = createQuerySlots({ shares, concurrency: 2, queue: 2, waitMs: 10_000 });
    const callers = [await slots.acquire(calm, someone()), await slots.acquire(calm, someone())];
    expect(slots.tryAcquireBackground()).toBeUndefined();
    callers[0]?.();
    expect(slots.tryAcquireBackground()).toBeDefined();
    expect(slots.running()).toBe(2);
  });

  it('a single slot is for background work too', () => {
    expect(createQuerySlots({ shares, concurrency: 1, queue: 0, waitMs: 1 }).tryAcquireBackground()).toBeDefined();
  });
});

describe('one key', () => {
  const flood = (
    slots: ReturnType<typeof createQuerySlots>,
    owner: string,
    count: number,
  ): { granted: (() => void)[]; refused: Error[] } => {
    const outcome: { granted: (() => void)[]; refused: Error[] } = { granted: [], refused: [] };
    for (let i = 0; i < count; i++)
      slots.acquire(calm, owner).then(
        (release) => outcome.granted.push(release),
        (error: unknown) => outcome.refused.push(error as Error),
      );
    return outcome;
  };

  it('leaves the last slot to another, which need not wait for it', async () => {
    const slots = createQuerySlots({ shares, concurrency: 4, queue: 10, waitMs: 10_000 });
    const { granted } = flood(slots, 'a', 8);
    await setImmediate();
    expect([slots.running(), slots.waiting(), granted.length]).toEqual([3, 5, 3]);
    (await slots.acquire(calm, 'b'))();
    expect([slots.running(), slots.waiting()]).toEqual([3, 5]);
  });

  it('has half of the slots while another has asked lately, and more again later', async () => {
    let now = 0;
    const lately = createShares(() => now);
    const slots = createQuerySlots({ shares: lately, concurrency: 4, queue: 10, waitMs: 10_000 });
    lately.note('b');
    lately.note('a');
    const { granted } = flood(slots, 'a', 4);
    await setImmediate();
    expect(granted).toHaveLength(2);
    now = 60_000;
    for (const release of granted.splice(0)) release();
    const more = flood(slots, 'a', 4);
    await setImmediate();
    expect([granted.length + more.granted.length, slots.running()]).toEqual([3, 3]);
  });

  it('that has fewer queries goes before one that came earlier', async () => {
    const slots = createQuerySlots({ shares, concurrency: 2, queue: 10, waitMs: 10_000 });
    const [a, b] = [await slots.acquire(calm, 'a'), await slots.acquire(calm, 'b')];
    const order: string[] = [];
    const waits = ['a', 'a', 'c'].map(async (owner) => {
      const release = await slots.acquire(calm, owner);
      order.push(owner);
      return release;
    });
    b();
    await setImmediate();
    expect(order).toEqual(['c']);
    a();
    (await waits[0])?.();
    (await waits[1])?.();
    (await waits[2])?.();
  });

  it('cannot fill the queue for others: its newest query makes room', async () => {
    const slots = createQuerySlots({ shares, concurrency: 1, queue: 4, waitMs: 10_000 });
    const release = await slots.acquire(calm, 'a');
    const { refused, granted } = flood(slots, 'a', 4);
    const others = [slots.acquire(calm, 'b'), slots.acquire(calm, 'b')];
    await setImmediate();
    expect([slots.waiting(), refused.length]).toEqual([4, 2]);
    // both have two by now
    await expect(slots.acquire(calm, 'b')).rejects.toMatchObject({
      code: 'unavailable',
      message: 'too many queries are waiting',
    });
    expect(refused[0]).toMatchObject({ code: 'unavailable', status: 503, retryAfterSeconds: 1 });
    release();
    while (granted.length < 2) {
      await setImmediate();
      for (const one of granted) one();
    }
    for (const other of others) (await other)();
  });
});
