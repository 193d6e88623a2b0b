import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createTurns } from './turns.ts';

describe('turns', () => {
  beforeEach(() => { vi.useFakeTimers(); });
  afterEach(() => { vi.useRealTimers(); });

  /** Five want a turn. */
  function wanted(): { readonly begun: number[]; readonly ends: (() => void)[] } {
    const turns = createTurns(2, 1_000);
    const begun: number[] = [];
    const ends: (() => void)[] = [];
    const take = async (n: number): Promise<void> => {
      ends[n] = await turns();
      begun.push(n);
    };
    for (let n = 0; n < 5; n++) void take(n);
    return { begun, ends };
  }

  test('are so many at a time, the longest waiting first', async () => {
    const { begun, ends } = wanted();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1]);
    ends[1]!();
    // ended twice it counts once
    ends[1]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2]);
    ends[0]!();
    ends[2]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  test('of what takes too long are over for the others, once', async () => {
    const { begun, ends } = wanted();
    await vi.advanceTimersByTimeAsync(999);
    expect(begun).toEqual([0, 1]);
    await vi.advanceTimersByTimeAsync(2);
    expect(begun).toEqual([0, 1, 2, 3]);
    ends[0]!();
    ends[1]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3]);
    ends[2]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });
});
