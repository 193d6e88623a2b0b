import { expect, test } from 'vitest';
import { consumerCheck, type RunningIngest } from './service.ts';

test('/readyz names partitions that cannot be taken, and the process stays ready', async () => {
  const nothing = { isJoined: () => true, untaken: () => [], paused: () => [], waiting: () => [], stuck: () => [] };
  const check = (more: Partial<RunningIngest>): unknown =>
    consumerCheck(() => ({ ...nothing, ...more }) as Partial<RunningIngest> as RunningIngest)();
  expect(await check({})).toBeUndefined();
  const untaken = (): string[] => ['edge_logs 0', 'edge_logs 3'];
  expect(await check({ untaken })).toEqual({
    note: 'not taken for more than a minute, the log says why: edge_logs 0, edge_logs 3',
  });
});
