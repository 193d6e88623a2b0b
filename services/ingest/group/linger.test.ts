import { describe, expect, it } from 'vitest';
import { dueAt } from './linger.ts';

const trickle = { isFilling: false, topics: undefined, phase: 0 };

describe('when a batch that is not full is cut', () => {
  it('keeps all together to 30 inserts a second, and none waits longer than 10 s', () => {
    const ticks = [1, 9, 27, 1_000].map((partitions) => dueAt({ ...trickle, since: 0, partitions }));
    expect(ticks).toEqual([250, 300, 900, 10_000]);
  });

  it('where partitions of a topic share an insert, is 12 times a second over all topics, and 120 times over all partitions', () => {
    const of = (topics: number, partitions: number): number => dueAt({ ...trickle, since: 0, topics, partitions });
    expect([of(1, 1), of(1, 27), of(9, 27), of(9, 900), of(9, 9_000)]).toEqual([250, 250, 750, 7_500, 10_000]);
  });

  it('is at the next tick, however late in it the first record came', () => {
    expect([0, 1, 899, 900].map((since) => dueAt({ ...trickle, since, partitions: 27 }))).toEqual([
      900, 900, 900, 1_800,
    ]);
  });

  it('is at another moment of the tick for each phase, and never later than a tick', () => {
    for (const phase of [0.25, 0.5, 0.999]) {
      for (const since of [0, 100, 450, 899]) {
        const due = dueAt({ ...trickle, since, partitions: 27, phase });
        expect(due).toBeGreaterThan(since);
        expect(due).toBeLessThanOrEqual(since + 900);
        expect(due % 900).toBeCloseTo(phase * 900, 6);
      }
    }
  });

  it('leaves time for a full batch while more of the partition stands in Kafka', () => {
    const filling = { ...trickle, since: 10, isFilling: true };
    expect([1, 3, 27].map((partitions) => dueAt({ ...filling, partitions }))).toEqual([2_010, 2_010, 2_010]);
  });
});
