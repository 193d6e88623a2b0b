import { expect, test, vi } from 'vitest';
import type { EachBatchPayload } from '../../../common/kafka/client.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createCommitter } from './committer.ts';
import { createMembership, keyOf } from './membership.ts';
import { createIngestMetrics } from '../metrics.ts';

test('a commit before the first fetch waits without spinning, and is sent as soon as there is one', async () => {
  vi.useFakeTimers();
  try {
    const membership = createMembership(() => 0, 10_000);
    membership.won([keyOf('t', 0)]);
    const owns = vi.spyOn(membership, 'owns');
    const committer = createCommitter(
      membership,
      () => false,
      createLogger('error'),
      createIngestMetrics(createRegistry()),
    );
    const commit = committer.commit({ topic: 't', partition: 0 }, membership.epoch, 5, 'e');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(owns.mock.calls.length).toBeLessThan(15);

    const sent: unknown[] = [];
    committer.fetched({
      commitOffsetsIfNecessary: async (offsets: unknown) => {
        sent.push(offsets);
      },
    } as EachBatchPayload);
    await vi.advanceTimersByTimeAsync(0);
    await expect(commit).resolves.toBe(true);
    expect(sent).toEqual([{ topics: [{ topic: 't', partitions: [{ partition: 0, offset: '5', metadata: 'e' }] }] }]);
  } finally {
    vi.useRealTimers();
  }
});
