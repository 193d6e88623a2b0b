import { expect, test } from 'vitest';
import { createShares } from './shares.ts';

test('a key has others beside it for a minute after the last call of any other one', () => {
  let now = 0;
  const shares = createShares(() => now);
  const others = (): boolean[] => ['a', 'b'].map((owner) => shares.hasOthers(owner));
  expect(others()).toEqual([false, false]);
  shares.note('a');
  expect(others()).toEqual([false, true]);
  now = 59_000;
  shares.note('b');
  shares.note('b');
  expect(others()).toEqual([true, true]);
  now = 60_000;
  expect(others()).toEqual([true, false]);
  now = 119_000;
  expect(others()).toEqual([false, false]);
});
