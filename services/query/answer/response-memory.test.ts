import { expect, test, vi } from 'vitest';
import { createResponseMemory } from './response-memory.ts';
import { createShares } from './shares.ts';

test('the next large answer is made a second after the last one was released, when the engine has returned its memory', async () => {
  vi.useFakeTimers();
  try {
    const memory = createResponseMemory(createShares());
    const { signal } = new AbortController();
    const release = await memory.reserve(signal, 'a');
    let isNext = false;
    const next = memory.reserve(signal, 'a').then((give) => {
      isNext = true;
      return give;
    });
    release();
    await vi.advanceTimersByTimeAsync(990);
    expect([isNext, memory.used()]).toEqual([false, 0]);
    await vi.advanceTimersByTimeAsync(20);
    expect(isNext).toBe(true);
    (await next)();
    expect(memory.used()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
