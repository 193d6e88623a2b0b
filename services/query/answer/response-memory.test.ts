import type { FastifyReply } from 'fastify';
import { expect, test, vi } from 'vitest';
import { createResponseMemory } from './response-memory.ts';
import { createShares } from './shares.ts';

const MIB = 1024 * 1024;
const ROOM = 100 * MIB;
const READ_WITHIN_MS = 10_000;
const { signal } = new AbortController();
const refused = expect.objectContaining({ code: 'unavailable', retryAfterSeconds: 5 });

/** Memory of 100 MiB; other keys call, or only one. */
function memoryOf(hasOthers: boolean) {
  return createResponseMemory({ note: () => {}, hasOthers: () => hasOthers }, ROOM, READ_WITHIN_MS);
}

/** A caller that reads for ever until `close()`. */
function callerOf() {
  let close = (): void => {};
  const destroy = vi.fn<() => void>();
  const raw = { destroyed: false, destroy, once: (_: string, release: () => void) => void (close = release) };
  return { reply: { raw } as unknown as FastifyReply, destroy, close: () => close() };
}

async function withFakeTimers(run: () => Promise<void>): Promise<void> {
  vi.useFakeTimers();
  try {
    await run();
  } finally {
    vi.useRealTimers();
  }
}

test('the next large answer is made a second after the last one was released, when the engine has returned its memory', () =>
  withFakeTimers(async () => {
    const memory = createResponseMemory(createShares());
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
  }));

test('one large answer is made at a time; four wait for two seconds at most', () =>
  withFakeTimers(async () => {
    const memory = memoryOf(false);
    await memory.reserve(signal, 'a');
    expect(memory.used()).toBe(ROOM / 2);
    const ended: unknown[] = [];
    for (const key of ['b', 'c', 'd', 'e'])
      memory.reserve(signal, key).then(
        () => ended.push('reserved'),
        (error: unknown) => ended.push(error),
      );
    await expect(memory.reserve(signal, 'f')).rejects.toEqual(refused);
    await vi.advanceTimersByTimeAsync(1_999);
    expect(ended).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(ended).toEqual(Array(4).fill(refused));
  }));

test('a caller that leaves while it waits is told so', async () => {
  const memory = memoryOf(false);
  await memory.reserve(signal, 'a');
  await expect(memory.reserve(AbortSignal.abort(new Error('left')), 'a')).rejects.toThrow('left');
});

test('an answer that finds no memory does not hold up the next one', async () => {
  const memory = memoryOf(false);
  const giveBack = memory.take(51 * MIB, 'a');
  await expect(memory.reserve(signal, 'a')).rejects.toEqual(refused);
  giveBack();
  await memory.reserve(signal, 'a');
});

test.each<[string, boolean, number[], number]>([
  ['all of it if it is the only one', false, [50, 50], 1],
  ['half of it beside others', true, [20, 30], 1],
  ['more than half for its only answer', true, [90], 11],
  ['all of it for an answer that is larger', true, [1_000], 1],
])('a key may use %s', (_, hasOthers, sizes, tooMuch) => {
  const memory = memoryOf(hasOthers);
  for (const size of sizes) memory.take(size * MIB, 'a');
  expect(() => memory.take(tooMuch * MIB, 'a')).toThrow(refused);
});

test('keys may not use more than there is together', () => {
  const memory = memoryOf(true);
  memory.take(60 * MIB, 'a');
  memory.take(40 * MIB, 'b');
  expect(() => memory.take(1, 'c')).toThrow(refused);
});

test('an answer from 256 KiB on is held until it is read', () => {
  const memory = memoryOf(false);
  const { reply, close } = callerOf();
  memory.hold(reply, 256 * 1024 - 1, 'a');
  expect(memory.used()).toBe(0);
  memory.hold(reply, 256 * 1024, 'a');
  expect(memory.used()).toBe(256 * 1024);
  close();
  expect(memory.used()).toBe(0);
});

test('a caller that reads too slowly is disconnected, and one that has read is left alone', () =>
  withFakeTimers(async () => {
    const memory = memoryOf(false);
    const [slow, done] = [callerOf(), callerOf()];
    for (const { reply } of [slow, done]) memory.hold(reply, MIB, 'a');
    done.close();
    await vi.advanceTimersByTimeAsync(READ_WITHIN_MS - 1);
    expect(slow.destroy).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(slow.destroy).toHaveBeenCalledOnce();
    expect(done.destroy).not.toHaveBeenCalled();
  }));
