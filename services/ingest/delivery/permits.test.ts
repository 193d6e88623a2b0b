import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createPermits } from './permits.ts';

describe('write permits', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** Many want one: two at a time, four with those that are slow. */
  function wanted(): { readonly begun: number[]; readonly releases: (() => void)[] } {
    const permit = createPermits({ size: 2, most: 4 });
    const begun: number[] = [];
    const releases: (() => void)[] = [];
    const take = async (n: number): Promise<void> => {
      releases[n] = await permit();
      begun.push(n);
    };
    for (let n = 0; n < 8; n++) void take(n);
    return { begun, releases };
  }

  test('are so many at a time, the longest waiting first; released twice counts once', async () => {
    const { begun, releases } = wanted();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1]);
    releases[1]!();
    releases[1]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2]);
    releases[0]!();
    releases[2]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  test('of what takes long keep nobody waiting, up to the room that the engine has', async () => {
    const { begun, releases } = wanted();
    await vi.advanceTimersByTimeAsync(999);
    expect(begun).toEqual([0, 1]);
    await vi.advanceTimersByTimeAsync(2);
    expect(begun).toEqual([0, 1, 2, 3]);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(begun).toEqual([0, 1, 2, 3]);
    releases[0]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  test('are as few as before when those that took long are back', async () => {
    const { begun, releases } = wanted();
    await vi.advanceTimersByTimeAsync(1_001);
    expect(begun).toEqual([0, 1, 2, 3]);
    for (const n of [0, 1, 2, 3]) releases[n]!();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test('that are back before they took long do not count as slow later', async () => {
    const { begun, releases } = wanted();
    await vi.advanceTimersByTimeAsync(500);
    releases[0]!();
    releases[1]!();
    await vi.advanceTimersByTimeAsync(900);
    expect(begun).toEqual([0, 1, 2, 3]);
  });
});
