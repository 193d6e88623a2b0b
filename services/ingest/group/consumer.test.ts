import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Admin, Consumer, KafkaClient } from '../../../common/kafka/client.ts';
import { createLogger } from '../../../common/logger.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { startConsumer, type RunningConsumer } from './consumer.ts';
import type { Store } from '../delivery/ports.ts';
import { createIngestMetrics } from '../metrics.ts';

const TOPIC = 'edge_logs';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const done = async (): Promise<void> => {};

/** A client without records. `handlers` gets what is called at its events. */
function clientOf(
  handlers: Record<string, (event: { payload: unknown }) => void>,
  fetchOffsets: Admin['fetchOffsets'] = async () => [],
): KafkaClient {
  return {
    consumer: () =>
      ({
        on: ((name: string, handler: (event: { payload: unknown }) => void) => {
          handlers[name] = handler;
        }) as unknown as Consumer['on'],
        connect: done,
        disconnect: done,
        subscribe: done,
        run: done,
        pause: () => {},
        resume: () => {},
        seek: () => {},
      }) as Partial<Consumer> as Consumer,
    admin: () =>
      ({
        connect: done,
        disconnect: done,
        fetchOffsets,
        fetchTopicOffsets: async () => [{ partition: 0, offset: '0', low: '0', high: '0' }],
      }) as Partial<Admin> as Admin,
  } as Partial<KafkaClient> as KafkaClient;
}

function start(kafka: KafkaClient, createStore: () => Store): Promise<RunningConsumer> {
  return startConsumer({
    kafka,
    groupId: 'ours',
    topics: [TOPIC],
    permits: { size: 2, most: 2 },
    batchMaxBytes: 1_000_000,
    mayShareInserts: false,
    shardOf: () => undefined,
    createStore,
    createBadShare: () => ({ paused: async () => undefined, add: () => {}, pauses: async () => false }),
    logger: createLogger('silent'),
    metrics: createIngestMetrics(createRegistry()),
    clock: Date.now,
  });
}

test('after a heartbeat whose answer took too long nothing is written: the group may have dropped this process', async () => {
  const handlers: Record<string, (event: { payload: unknown }) => void> = {};
  const emit = (name: string, payload: unknown = {}): void => handlers[name]!({ payload });
  const looked = Promise.withResolvers<void>();
  let claims = 0;
  const store = {
    endRunning: done,
    register: async () => ({
      period: 0,
      owner: claims === 0 ? undefined : { group: 'ours', epoch: 1, former: undefined, isSettled: true },
    }),
    ledgerEnd: async () => {
      await looked.promise;
      return undefined;
    },
    orphans: async () => [],
    claim: async () => {
      claims++;
    },
  } satisfies Partial<Store> as Partial<Store> as Store;
  const consumer = await start(clientOf(handlers), () => store);
  emit('consumer.group_join', { memberAssignment: { [TOPIC]: [0] } });
  await vi.advanceTimersByTimeAsync(6_000);
  looked.resolve();
  const answer = async (tookMs: number): Promise<number> => {
    emit('consumer.network.request', { apiName: 'Heartbeat', duration: tookMs });
    emit('consumer.heartbeat');
    await vi.advanceTimersByTimeAsync(500);
    return claims;
  };
  expect(await answer(5_000)).toBe(0);
  // a wall clock set back meanwhile
  expect(await answer(-3_600_000)).toBe(1);
  await consumer.stop();
});

test('once the client closes its connections, nothing is sent any more', async () => {
  const handlers: Record<string, (event: { payload: unknown }) => void> = {};
  const consumer = await start(clientOf(handlers), () => ({ endRunning: done }) as Partial<Store> as Store);
  handlers['consumer.group_join']!({ payload: { memberAssignment: { [TOPIC]: [0] } } });
  expect([consumer.isJoined(), consumer.taking()]).toEqual([true, [`${TOPIC} 0`]]);
  handlers['consumer.stop']!({ payload: {} });
  expect([consumer.isJoined(), consumer.taking()]).toEqual([false, []]);
  await consumer.stop();
});

test('a client that crashed starts again after a second, or when its retries say', async () => {
  const handlers: Record<string, (event: { payload: unknown }) => void> = {};
  const consumer = await start(clientOf(handlers), () => ({}) as Store);
  const retryAfter = (error: Error & { retryTime?: number }): number | undefined => {
    handlers['consumer.crash']!({ payload: { error, restart: true } });
    return error.retryTime;
  };
  expect(retryAfter(new Error('a topic is missing'))).toBe(1_000);
  expect(retryAfter(Object.assign(new Error('no more retries'), { retryTime: 4_800 }))).toBe(4_800);
  await consumer.stop();
});

test('a group that cannot be read ends the start after half a minute, also if the wall clock is set back', async () => {
  const unreadable = clientOf({}, () => Promise.reject(new Error('the coordinator is loading')));
  const failed = start(unreadable, () => ({}) as Store).catch((error: unknown) => String(error));
  await vi.advanceTimersByTimeAsync(1_000);
  vi.setSystemTime(Date.now() - 3_600_000);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(await failed).toContain('its group ours cannot be read');
});
