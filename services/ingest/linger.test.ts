import { describe, expect, it } from 'vitest';
import { lingerMs } from './linger.ts';

describe('how long a batch waits for company', () => {
  it('keeps all partitions together to 40 inserts a second, and none for longer than 10 s', () => {
    expect([0, 1, 27, 1_000].map((active) => lingerMs({ isFilling: false, active }))).toEqual([0, 25, 675, 10_000]);
  });

  it('is long enough for a full batch while more of the partition stands in Kafka', () => {
    expect([1, 3, 27].map((active) => lingerMs({ isFilling: true, active }))).toEqual([500, 500, 675]);
  });
});
