import { describe, expect, test } from 'vitest';
import type { LaneState } from '../delivery/ports.ts';
import { STUCK_MS } from './stuck-lanes.ts';
import { Turns, TURN_MS, type Partition } from './turns.ts';

const MB = 2 ** 20;
const LIMITS = { maxBytes: 32 * MB, maxRecords: 32_768 };

interface Fake extends Partition {
  readonly lane: {
    state: LaneState;
    isRecovering: boolean;
    inbox: { next: number; written: number; end: number; bytes: number; size: number; heldBytes: number };
  };
  end: number;
  lastFetch: { bytes: number; records: number };
}

/** A partition that holds so many megabytes, one record each, and has `behind` more in Kafka. */
function partition(holds: number, behind: number, written = 0): Fake {
  return {
    lane: {
      state: 'running',
      isRecovering: false,
      inbox: { next: 0, written: 0, end: holds, bytes: holds * MB, size: holds, heldBytes: (holds + written) * MB },
    },
    target: 'edge_logs',
    end: holds + behind,
    lastFetch: { bytes: 4 * MB, records: 4 },
  };
}

let now = 0;
const started = (...all: Fake[]): Turns<Fake> => {
  const turns = new Turns<Fake>(LIMITS, () => now);
  turns.pass(all);
  return turns;
};
const allowed = (turns: Turns<Fake>, all: Fake[]): boolean[] => all.map((p) => turns.mayFetch(p, 1));

describe('of partitions that are behind', () => {
  test('one is fetched; those at the end of their log are fetched too', () => {
    const all = [partition(0, 0), partition(0, 9), partition(3, 9), partition(3, 0)];
    expect(allowed(started(...all), all)).toEqual([true, true, false, true]);
  });

  test('all are at the end before their first fetch', () => {
    const all = [partition(0, 0), partition(0, 0)];
    expect(allowed(started(...all), all)).toEqual([true, true]);
  });

  test('the next one follows when its next fetch would not fit, by bytes or by records', () => {
    for (const full of [
      { ...partition(29, 9) },
      { ...partition(2, 9), lastFetch: { bytes: MB, records: LIMITS.maxRecords - 1 } },
    ]) {
      const all = [partition(1, 9), partition(1, 9)];
      const turns = started(...all);
      Object.assign(all[0]!, full);
      expect(turns.pass(all)).toEqual([all[0]]);
      expect(allowed(turns, all)).toEqual([false, true]);
    }
  });

  test('a fetch larger than a batch is no reason to be left out', () => {
    const all = [{ ...partition(0, 9), lastFetch: { bytes: 40 * MB, records: 40 } }];
    expect(allowed(started(...all), all)).toEqual([true]);
  });

  test('the next one follows at the end of the log, after a cut, and when the lane no longer runs', () => {
    for (const change of [
      (p: Fake) => (p.end = p.lane.inbox.end),
      (p: Fake) => (p.lane.inbox.next = 5),
      (p: Fake) => (p.lane.state = 'paused'),
    ]) {
      const all = [partition(1, 9), partition(1, 9)];
      const turns = started(...all);
      expect(turns.pass(all)).toEqual([]);
      change(all[0]!);
      expect(turns.pass(all)).toEqual([all[0]]);
      expect(turns.has(all[1]!)).toBe(true);
    }
  });

  test('if nothing comes for a second the next one is fetched beside it, and a late fetch is still wanted', () => {
    const all = [partition(0, 9), partition(0, 9), partition(0, 9)];
    const turns = started(...all);
    now += TURN_MS - 1;
    turns.pass(all);
    expect(allowed(turns, all)).toEqual([true, false, false]);
    turns.fetched(all[1]!);
    now += 1;
    expect(turns.pass(all)).toEqual([]);
    expect(allowed(turns, all)).toEqual([true, true, false]);
    now += TURN_MS - 1;
    turns.fetched(all[0]!);
    now += TURN_MS - 1;
    turns.pass(all);
    expect(allowed(turns, all)).toEqual([true, true, false]);
    now += 1;
    turns.pass(all);
    expect(allowed(turns, all)).toEqual([true, true, true]);
  });

  test('each comes in turn, also after the one that had it is lost', () => {
    const all = [partition(0, 9), partition(0, 9), partition(0, 9)];
    const turns = started(...all);
    const order: number[] = [];
    for (let i = 0; i < 4; i++) {
      order.push(all.findIndex((p) => turns.has(p)));
      all[order.at(-1)!]!.lane.inbox.next++;
      turns.pass(all);
    }
    expect(order).toEqual([0, 1, 2, 0]);
    const others = all.filter((p) => !turns.has(p));
    turns.pass(others);
    expect(turns.has(others[0]!)).toBe(true);
  });
});

describe('memory', () => {
  test('three batches are held, waiting or being written', () => {
    const all = [partition(0, 0, 64), partition(31, 0), partition(1, 0)];
    expect(allowed(started(...all), all)).toEqual([false, false, false]);
    all[2]!.lane.inbox.heldBytes = 0.5 * MB;
    expect(allowed(started(...all), all)).toEqual([true, true, true]);
  });

  test('a partition waits with its second batch until the first is written', () => {
    const all = [partition(32, 0)];
    expect(allowed(started(...all), all)).toEqual([false]);
  });

  test('one that holds nothing is fetched beside inserts that hang, up to four batches', () => {
    const all = [partition(0, 0), partition(0, 0, 64), partition(0, 0, 63)];
    expect(allowed(started(...all), all)).toEqual([true, false, false]);
    all[2]!.lane.inbox.heldBytes = 64 * MB;
    expect(allowed(started(...all), all)).toEqual([false, false, false]);
  });

  /** The first partition has a late batch of so many megabytes, and the others' target stored one just now. */
  const afterLate = (all: Fake[], megabytes: number): boolean[] => {
    const turns = started(...all);
    for (const [i, { lane }] of all.entries()) {
      lane.inbox.next = lane.inbox.end = 5;
      if (i === 0) lane.inbox.heldBytes = megabytes * MB;
    }
    turns.pass(all);
    now += STUCK_MS;
    for (const { lane } of all.slice(1)) lane.inbox.written = 5;
    turns.pass(all);
    return allowed(turns, all);
  };

  test('a lane whose batch is late fetches nothing more, also where its target works', () => {
    expect(afterLate([partition(0, 0), partition(0, 0)], 1)).toEqual([false, true]);
  });

  test('batches that are late count as two, until all partitions together hold eight', () => {
    const others = (): Fake[] => [partition(0, 0), { ...partition(0, 0), target: 'auth_logs' }];
    expect(afterLate(others(), 8 * 32 - 1)).toEqual([false, true]);
    expect(afterLate(others(), 8 * 32)).toEqual([false, false]);
  });

  test('a paused one waits for more room', () => {
    const all = [partition(1, 0), partition(0, 0, 87)];
    const turns = started(...all);
    expect(turns.mayFetch(all[0]!, 1)).toBe(true);
    expect(turns.mayFetch(all[0]!, 0.8)).toBe(false);
  });

  test('the batch that a former owner announced is fetched whole, whatever it takes', () => {
    const all = [partition(40, 9, 90), partition(0, 9, 40)];
    all[0]!.lane.isRecovering = true;
    const turns = started(all[1]!, all[0]!);
    expect(turns.has(all[1]!)).toBe(true);
    expect(turns.mayFetch(all[0]!, 1)).toBe(true);
  });
});

test('all decisions together cost in proportion to the partitions, also while batches are late', () => {
  const least = (count: number): number => {
    const all = Array.from({ length: count }, (_, i) => ({ ...partition(0, i % 2, 1), target: `topic${i % 9}` }));
    const turns = started(...all);
    for (const { lane } of all) lane.inbox.next = 5;
    turns.pass(all);
    now += STUCK_MS;
    const rounds = Array.from({ length: 20 }, () => {
      const from = performance.now();
      turns.pass(all);
      allowed(turns, all);
      return performance.now() - from;
    });
    return Math.min(...rounds);
  };
  least(100);
  // 64 times if each decision looked at every partition
  expect(least(2_000) / least(250)).toBeLessThan(24);
});
