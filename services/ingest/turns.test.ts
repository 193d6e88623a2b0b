import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { createTurns } from './turns.ts';

describe('turns', () => {
  test('are so many at a time, the longest waiting first', async () => {
    const turns = createTurns(2);
    const begun: number[] = [];
    const ends: (() => void)[] = [];
    const takePart = async (n: number): Promise<void> => {
      ends[n] = await turns.take();
      begun.push(n);
    };
    const all = Promise.all([0, 1, 2, 3, 4].map(takePart));
    await turn();
    expect(begun).toEqual([0, 1]);
    ends[1]!();
    await turn();
    expect(begun).toEqual([0, 1, 2]);
    // ended twice it counts once
    ends[1]!();
    await turn();
    expect(begun).toEqual([0, 1, 2]);
    ends[0]!();
    ends[2]!();
    await turn();
    await all;
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  test('are everybody\'s once they are open', async () => {
    const turns = createTurns(1);
    const ends = [await turns.take()];
    const waiting = [turns.take(), turns.take()];
    turns.open();
    ends.push(...(await Promise.all(waiting)), await turns.take());
    expect(ends).toHaveLength(4);
    for (const end of ends) end();
    expect(await turns.take()).toBeTypeOf('function');
  });
});
