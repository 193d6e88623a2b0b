import { expect, test } from 'vitest';
import { createSharedBudget } from './budget.ts';
import { ApiError } from './errors.ts';

const budget = (): ReturnType<typeof createSharedBudget> =>
  createSharedBudget(120, () => new ApiError('rate_limited', 'full'));

test('one owner alone has half, and others find their share while it holds all that it may', () => {
  const { take, used } = budget();
  take('a', 60);
  expect(() => take('a', 1)).toThrow('full');
  take('b', 30);
  expect(() => take('b', 1)).toThrow('full');
  take('c', 15);
  expect(used()).toBe(105);
});

test('what is given back can be taken again, and is given back once', () => {
  const { take, used } = budget();
  const release = take('a', 60);
  const rest = take('b', 20);
  release();
  release();
  expect(used()).toBe(20);
  rest();
  expect(used()).toBe(0);
  take('b', 60);
});

test('what is refused is not held', () => {
  const { take, used } = budget();
  expect(() => take('a', 61)).toThrow('full');
  expect(used()).toBe(0);
});
