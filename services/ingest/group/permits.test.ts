import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createPermits, type TakePermit } from './permits.ts';

describe('write permits', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** Many want one, each for a table of its own: two at a time, four with those that are slow. */
  function wanted(): { readonly begun: number[]; readonly releases: (() => void)[] } {
    const permit = createPermits({ size: 2, most: 4 });
    const begun: number[] = [];
    const releases: (() => void)[] = [];
    const take = async (n: number): Promise<void> => {
      releases[n] = await permit(`table ${n}`);
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

  /** Wants many permits for each of these tables of a shard, one after the other, and never gives one back. */
  async function hang(permit: TakePermit, tables: readonly string[], shard?: string): Promise<void> {
    for (const table of tables) {
      for (let n = 0; n < 100; n++) void permit(table, shard);
      await vi.advanceTimersByTimeAsync(20_000);
    }
  }

  test('of tables whose inserts hang leave room for the others', async () => {
    const permit = createPermits({ size: 16, most: 63 });
    await hang(permit, ['a', 'b', 'c', 'd']);
    const begun = vi.fn<() => void>();
    void permit('e').then(begun);
    await vi.advanceTimersByTimeAsync(0);
    expect(begun).toHaveBeenCalledOnce();
  });

  test('of a shard on which every insert hangs leave all room to the other shards', async () => {
    const permit = createPermits({ size: 2, most: 4 });
    await hang(permit, ['a', 'b', 'c', 'd'], 'shard 1');
    const begun = vi.fn<() => void>();
    for (const table of ['a', 'b']) void permit(table, 'shard 2').then(begun);
    await vi.advanceTimersByTimeAsync(0);
    expect(begun).toHaveBeenCalledTimes(2);
  });

  test('are refused to a table while it holds as many as are left; others that wait come first then', async () => {
    const permit = createPermits({ size: 2, most: 4 });
    const begun: string[] = [];
    const releases: (() => void)[] = [];
    const take = async (table: string): Promise<void> => {
      releases.push(await permit(table));
      begun.push(table);
    };
    for (const table of ['a', 'a', 'a', 'a', 'b', 'a']) void take(table);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(begun).toEqual(['a', 'a', 'b']);
    releases[0]!();
    releases[1]!();
    await vi.advanceTimersByTimeAsync(0);
    expect(begun).toEqual(['a', 'a', 'b', 'a', 'a']);
  });
});
