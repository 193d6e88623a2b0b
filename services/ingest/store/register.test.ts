import { expect, test } from 'vitest';
import { createRegister } from './register.ts';

function registerOf() {
  const state = { now: 0, reads: 0, fails: false, engineNow: 1_000, group: 'a' };
  const ahead: number[] = [];
  const reader = {
    async read() {
      state.reads++;
      if (state.fails) throw new Error('unavailable');
      return {
        body: Buffer.from(
          `${JSON.stringify({
            period: 7,
            now: state.engineNow,
            owners: [
              ['t', 0, state.group, 2, 'former', 0],
              ['t', 1, 'b', 1, '', 1],
            ],
          })}\n`,
        ),
        readRows: undefined,
        readBytes: undefined,
      };
    },
  };
  return {
    state,
    ahead,
    register: createRegister(
      reader,
      () => 61_500,
      (ms) => {
        ahead.push(ms);
      },
      () => state.now,
    ),
  };
}

test('is read once for all partitions, and again when it is two seconds old, or fresh is asked for', async () => {
  const { state, register } = registerOf();
  expect(await Promise.all([register.read('t', 0), register.read('t', 1), register.read('t', 2)])).toEqual([
    { period: 7, owner: { group: 'a', epoch: 2, former: 'former', isSettled: false } },
    { period: 7, owner: { group: 'b', epoch: 1, former: undefined, isSettled: true } },
    { period: 7, owner: undefined },
  ]);
  expect(state.reads).toBe(1);
  state.now = 1_999;
  await register.read('t', 0);
  expect(state.reads).toBe(1);
  state.now = 2_000;
  state.group = 'other';
  expect((await register.read('t', 0)).owner?.group).toBe('other');
  await register.read('t', 0, true);
  expect(state.reads).toBe(3);
});

test('partitions that ask for a fresh read at a time share one, and never one that was sent before', async () => {
  const { state, register } = registerOf();
  const before = register.read('t', 0);
  expect(state.reads).toBe(1);
  await Promise.all(Array.from({ length: 144 }, (_, partition) => register.read('t', partition, true)));
  expect(state.reads).toBe(2);
  await before;
  await register.read('t', 0);
  expect(state.reads).toBe(2);
  await register.read('t', 0, true);
  expect(state.reads).toBe(3);
});

test('a fresh read that failed is not remembered', async () => {
  const { state, register } = registerOf();
  state.fails = true;
  const asked = [register.read('t', 0, true), register.read('t', 1, true)];
  for (const read of asked) await expect(read).rejects.toThrow('unavailable');
  state.fails = false;
  expect((await register.read('t', 0, true)).period).toBe(7);
  expect((await register.read('t', 0)).period).toBe(7);
});

test('a read that failed is not remembered', async () => {
  const { state, register } = registerOf();
  state.fails = true;
  await expect(register.read('t', 0)).rejects.toThrow('unavailable');
  state.fails = false;
  expect((await register.read('t', 0)).period).toBe(7);
});

test('each read compares our clock with the clock of the engine', async () => {
  const { ahead, register } = registerOf();
  await register.read('t', 0);
  expect(ahead).toEqual([60_500]);
});
