import { describe, expect, it } from 'vitest';
import { createSlots } from './slots.ts';

const calm = new AbortController().signal;

describe('slots', () => {
  it('runs as many as there are, the others in the order in which they came', async () => {
    const slots = createSlots({ concurrency: 2, queue: 10, waitMs: 10_000 });
    const order: number[] = [];
    const [first, second] = [await slots.acquire(calm), await slots.acquire(calm)];
    const waiting = [1, 2, 3].map(async (i) => {
      const release = await slots.acquire(calm);
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

  it('refuses at once where too many wait', async () => {
    const slots = createSlots({ concurrency: 1, queue: 1, waitMs: 10_000 });
    const release = await slots.acquire(calm);
    const waits = slots.acquire(calm);
    await expect(slots.acquire(calm)).rejects.toMatchObject({ code: 'unavailable', status: 503, retryAfterSeconds: 1 });
    release();
    (await waits)();
  });

  it('refuses who has waited too long', async () => {
    const slots = createSlots({ concurrency: 1, queue: 1, waitMs: 20 });
    await slots.acquire(calm);
    await expect(slots.acquire(calm)).rejects.toMatchObject({ code: 'unavailable' });
    expect(slots.waiting()).toBe(0);
  });

  it('lets go of who leaves', async () => {
    const slots = createSlots({ concurrency: 1, queue: 1, waitMs: 10_000 });
    const release = await slots.acquire(calm);
    const caller = new AbortController();
    const waits = slots.acquire(caller.signal);
    caller.abort(new Error('left'));
    await expect(waits).rejects.toThrow('left');
    release();
    expect([slots.running(), slots.waiting()]).toEqual([0, 0]);
    await expect(slots.acquire(caller.signal)).rejects.toThrow('left');
  });

  it('gives background work half of them at most, and none while callers wait', async () => {
    const slots = createSlots({ concurrency: 4, queue: 4, waitMs: 10_000 });
    const background = [slots.tryAcquireBackground(), slots.tryAcquireBackground(), slots.tryAcquireBackground()];
    expect(background.map((b) => b !== undefined)).toEqual([true, true, false]);
    background[0]?.();
    background[0]?.();
    expect(slots.running()).toBe(1);
    // given back twice, it was one
    expect([slots.tryAcquireBackground(), slots.tryAcquireBackground()].map((b) => b !== undefined)).toEqual([true, false]);
    background[1]?.();
    const callers = [await slots.acquire(calm), await slots.acquire(calm), await slots.acquire(calm)];
    const waits = slots.acquire(calm);
    expect(slots.tryAcquireBackground()).toBeUndefined();
    callers[0]?.();
    (await waits)();
    expect(slots.running()).toBe(3);
  });

  it('gives background work none that callers have', async () => {
    const slots = createSlots({ concurrency: 2, queue: 2, waitMs: 10_000 });
    const callers = [await slots.acquire(calm), await slots.acquire(calm)];
    expect(slots.tryAcquireBackground()).toBeUndefined();
    callers[0]?.();
    expect(slots.tryAcquireBackground()).toBeDefined();
    expect(slots.running()).toBe(2);
  });

  it('a single slot is for background work too', () => {
    expect(createSlots({ concurrency: 1, queue: 0, waitMs: 1 }).tryAcquireBackground()).toBeDefined();
  });
});
