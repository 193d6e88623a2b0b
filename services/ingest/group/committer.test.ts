import { queryObjects } from 'node:v8';
import { expect, test, vi } from 'vitest';
import type { EachBatchPayload } from '../../../common/kafka/client.ts';
import { keyOf } from '../../../common/kafka/partition.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createCommitter } from './committer.ts';
import { createMembership } from './membership.ts';
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
    const commit = committer.commit({ topic: 't', partition: 0 }, membership.stint, 5, 'e');
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

test('commits that wait for the first fetch share a timer, and keep nothing of their waiting', async () => {
  vi.useFakeTimers();
  try {
    const membership = createMembership(() => 0, 10_000);
    const partitions = Array.from({ length: 27 }, (_, partition) => partition);
    membership.won(partitions.map((partition) => keyOf('t', partition)));
    const committer = createCommitter(
      membership,
      () => false,
      createLogger('error'),
      createIngestMetrics(createRegistry()),
    );
    const commits = partitions.map((partition) =>
      committer.commit({ topic: 't', partition }, membership.stint, 5, 'e'),
    );
    await vi.advanceTimersByTimeAsync(10_000);
    expect(vi.getTimerCount()).toBe(1);
    const before = queryObjects(Promise, { format: 'count' });
    await vi.advanceTimersByTimeAsync(100_000);
    expect(queryObjects(Promise, { format: 'count' }) - before).toBeLessThan(100);
    committer.fetched({ commitOffsetsIfNecessary: async () => {} } as unknown as EachBatchPayload);
    expect(await Promise.all(commits)).toEqual(partitions.map(() => true));
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
