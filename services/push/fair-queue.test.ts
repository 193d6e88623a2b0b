import { expect, test } from 'vitest';
import { createFairQueue } from './fair-queue.ts';

test('one piece runs at a time, and owners take turns however much one of them has waiting', async () => {
  const inTurn = createFairQueue();
  const order: string[] = [];
  let running = 0;
  const piece = (name: string) => async (): Promise<string> => {
    expect(++running).toBe(1);
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    running--;
    order.push(name);
    return name;
  };
  const all = [...Array(5).keys()].map((i) => inTurn('a', piece(`a${i}`)));
  all.push(inTurn('b', piece('b0')), inTurn('c', piece('c0')), inTurn('b', piece('b1')));
  expect(await Promise.all(all)).toHaveLength(8);
  expect(order).toEqual(['a0', 'a1', 'b0', 'c0', 'a2', 'b1', 'a3', 'a4']);
});

test('a piece that fails fails alone, and afterwards others run', async () => {
  const inTurn = createFairQueue();
  const failed = inTurn('a', () => Promise.reject(new Error('no')));
  const after = inTurn('a', () => Promise.resolve('yes'));
  await expect(failed).rejects.toThrow('no');
  expect(await after).toBe('yes');
  expect(await inTurn('b', () => Promise.resolve(1))).toBe(1);
});
