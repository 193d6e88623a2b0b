import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { createLogger } from '../../logger.ts';
import { createAcknowledgedProducer } from '../acknowledged-producer.ts';
import type { KafkaClient, Message, ProducerRecord, RecordMetadata } from '../client.ts';
import { readFetchesWith, type ProduceRequest } from './kafkajs-internals.ts';

const require = createRequire(import.meta.url);
type Made<T> = (options: object) => T;

const MOVED = { type: 'NOT_LEADER_FOR_PARTITION', retriable: true, times: 1 };
const TOO_LARGE = { type: 'MESSAGE_TOO_LARGE', retriable: false, times: Infinity };

/**
 * An idempotent producer to partitions 0 and 1 of two brokers. The second refuses after refuseAfterMs, while the first
 * needs 50 ms. `moved`: the leaders after that.
 */
function producerWith(
  refuseAfterMs: number,
  moved: Readonly<Record<number, readonly number[]>>,
  refusal: typeof MOVED = MOVED,
) {
  const createSendMessages = require('kafkajs/src/producer/sendMessages.js') as Made<
    (call: object) => Promise<unknown>
  >;
  const createEosManager = require('kafkajs/src/producer/eosManager/index.js') as Made<{
    initProducerId(): Promise<void>;
  }>;
  const createRetry = require('kafkajs/src/retry/index.js') as Made<unknown>;
  const { prototype } = require('kafkajs/src/broker/index.js') as { prototype: object };
  const [sendRequest] = Object.getOwnPropertySymbols(prototype);

  const stored: Message[] = [];
  let refusals = 0;
  const brokers = [0, 1].map((nodeId) =>
    Object.assign(Object.create(prototype) as object, {
      nodeId,
      lookupRequest: () => (request: ProduceRequest) => request,
      [sendRequest!]: async ({ topicData }: ProduceRequest) => {
        await sleep(nodeId === 0 ? 50 : refuseAfterMs);
        if (nodeId === 1 && refusals++ < refusal.times) throw Object.assign(new Error('refused'), refusal);
        stored.push(
          ...topicData.flatMap(({ partitions }) => partitions.flatMap(({ messages }) => messages as Message[])),
        );
        return { topics: [{ topicName: 't', partitions: [{ partition: nodeId, errorCode: 0 }] }] };
      },
    }),
  );
  const logger = { debug: () => undefined, error: () => undefined };
  const cluster = {
    retry: {},
    targetTopics: new Set(),
    refreshMetadataIfNecessary: async () => undefined,
    refreshMetadata: async () => undefined,
    addMultipleTargetTopics: async () => undefined,
    isConnected: () => true,
    findTopicPartitionMetadata: () => [{}, {}],
    findLeaderForPartitions: (_: string, partitions: readonly string[]) => {
      const leaders = Object.entries(refusals === 0 ? { 0: [0], 1: [1] } : moved);
      return Object.fromEntries(
        leaders
          .map(([node, of]) => [node, of.filter((partition) => partitions.includes(String(partition)))] as const)
          .filter(([, of]) => of.length > 0),
      );
    },
    findBroker: async ({ nodeId }: { nodeId: string }) => brokers[Number(nodeId)],
    findControllerBroker: async () => ({ initProducerId: async () => ({ producerId: 'p', producerEpoch: 0 }) }),
  };
  const eosManager = createEosManager({ logger, cluster, transactional: false });
  const sendMessages = createSendMessages({
    logger,
    cluster,
    eosManager,
    partitioner: ({ message }: { message: Message }) => (message.partition = Number(message.key)),
    retrier: createRetry({ initialRetryTime: 1, retries: 3 }),
  });
  return {
    send: async (messages: readonly Message[]) => {
      await eosManager.initProducerId();
      return (await sendMessages({ topicMessages: [{ topic: 't', messages }] })) as RecordMetadata[];
    },
    messages: ['0', '1'].map((key): Message => ({ key, value: `of ${key}` })),
    stored,
  };
}

test('a produce call that one broker refuses at once is stored once by a broker that is slow', async () => {
  const { send, messages, stored } = producerWith(0, { 0: [0], 1: [1] });
  expect(await send(messages)).toHaveLength(2);
  expect(stored).toEqual(messages);
});

test('a block without records is handed over; a fetch without anything is not', () => {
  type Batch = new (
    topic: string,
    fetchedOffset: string,
    data: object,
  ) => {
    readonly fetchedOffset: string;
    readonly messages: readonly object[];
    isEmpty(): boolean;
    lastOffset(): string;
  };
  const Made = require('kafkajs/src/consumer/batch.js') as Batch;
  const fetched = (messages: readonly object[]) =>
    new Made('t', '4', { partition: 0, highWatermark: '9', abortedTransactions: [], messages });
  const block = { offset: '5', records: [], stableEnd: 6 };
  const batch = fetched([block]);
  expect(batch.isEmpty()).toBe(false);
  expect([batch.fetchedOffset, batch.messages, batch.lastOffset()]).toEqual(['4', [block], '5']);
  expect(fetched([]).isEmpty()).toBe(true);
});

test('a produce call fails if an acknowledged partition has moved to a broker that is asked again', async () => {
  for (const refuseAfterMs of [0, 100]) {
    const { send, messages, stored } = producerWith(refuseAfterMs, { 1: [0, 1] });
    await expect(send(messages)).rejects.toThrow('the leader of an acknowledged partition has moved');
    expect(stored).toEqual(messages.slice(0, 1));
  }
});

test.each([
  ['refuses a message as too large', { 0: [0], 1: [1] }, TOO_LARGE, 'too_large'],
  ['does not answer for its partition', { 1: [0, 1] }, MOVED, 'failed'],
])('what one broker stored is acknowledged and not sent again if another one %s', async (_, moved, refusal, reason) => {
  const { send, stored } = producerWith(0, moved, refusal);
  const kafka = {
    producer: () => ({
      connect: async () => undefined,
      disconnect: async () => undefined,
      send: ({ messages }: ProducerRecord) => send(messages),
    }),
  } as unknown as KafkaClient;
  const producer = createAcknowledgedProducer(kafka, createLogger('silent'));
  const outcomes = await Promise.allSettled(
    // the first one is in flight, so the others share a call
    ['0', '0', '1'].map(
      (key, i) => producer.send('t', [{ key, value: Buffer.from(String(i)), timestamp: 1 }]).acknowledged,
    ),
  );
  expect(outcomes).toMatchObject([
    { status: 'fulfilled' },
    { status: 'fulfilled' },
    { status: 'rejected', reason: { reason } },
  ]);
  expect(stored.map(({ value }) => String(value))).toEqual(['0', '1']);
});

test('a broker whose fetch responses are not read here is refused', () => {
  readFetchesWith({ maxBytes: 1000, onUnreadable: () => undefined });
  const definition = require('kafkajs/src/protocol/requests/fetch/index.js') as {
    protocol(version: object): (parameters: object) => object;
  };
  expect(() => definition.protocol({ version: 10 })({ topics: [] })).toThrow('the broker is older than Kafka 2.3');
  expect(definition.protocol({ version: 11 })({ topics: [] })).toHaveProperty('response');
});

test('a member whose wall clock is set back goes on with its heartbeats', async () => {
  interface Group {
    memberId: string;
    coordinator: object;
    heartbeat(options: { readonly interval: number }): Promise<void>;
  }
  const ConsumerGroup = require('kafkajs/src/consumer/consumerGroup.js') as new (options: object) => Group;
  const heartbeats = vi.fn<() => Promise<void>>(() => Promise.resolve());
  const group = new ConsumerGroup({
    topics: [],
    topicConfigurations: {},
    assigners: [],
    instrumentationEmitter: { emit: () => undefined },
    logger: { namespace: () => undefined },
  });
  Object.assign(group, { memberId: 'm', coordinator: { heartbeat: heartbeats } });
  const interval = 1_000;
  const now = vi.spyOn(Date, 'now');
  try {
    const begin = 1_800_000_000_000;
    for (const at of [begin + 3_600_000, begin, begin + interval - 1, begin + interval]) {
      now.mockReturnValue(at);
      await group.heartbeat({ interval });
    }
    expect(heartbeats).toHaveBeenCalledTimes(2);
  } finally {
    now.mockRestore();
  }
});

const LED = { partitionErrorCode: 0, partitionId: 1, leader: 7 };
const LEADERLESS = { partitionErrorCode: 5, partitionId: 0, leader: -1 };

test('metadata that has a partition without a leader is read, and a topic that is gone is an error', async () => {
  const definition = require('kafkajs/src/protocol/requests/metadata/index.js') as {
    protocol(version: object): (parameters: object) => { response: { parse(data: object): Promise<object> } };
  };
  const { response } = definition.protocol({ version: 6 })({ topics: ['t'], allowAutoTopicCreation: false });
  const ofTopic = (topicErrorCode: number): object => ({
    brokers: [],
    topicMetadata: [{ topicErrorCode, topic: 't', partitionMetadata: [LEADERLESS, LED] }],
  });
  expect(await response.parse(ofTopic(0))).toMatchObject({
    topicMetadata: [{ topic: 't', partitionMetadata: [{ partitionId: 0, leader: -1 }, LED] }],
  });
  await expect(response.parse(ofTopic(3))).rejects.toThrow('does not host this topic-partition');
});

test('offsets are asked, and messages sent, of the partitions of a topic that have a leader', async () => {
  const { prototype } = require('kafkajs/src/cluster/index.js') as { prototype: object };
  const asked: string[] = [];
  const cluster = Object.assign(Object.create(prototype) as object, {
    brokerPool: {
      metadata: {
        topicMetadata: [
          { topic: 't', partitionMetadata: [LEADERLESS, LED] },
          { topic: 'without', partitionMetadata: [LEADERLESS] },
        ],
      },
    },
    findBroker: async ({ nodeId }: { nodeId: string }) => {
      asked.push(nodeId);
      return {
        listOffsets: async ({ topics }: { topics: readonly { topic: string; partitions: readonly object[] }[] }) => ({
          responses: topics.map(({ topic, partitions }) => ({
            topic,
            partitions: partitions.map((of) => ({ ...of, offset: '9' })),
          })),
        }),
      };
    },
  }) as object as {
    fetchTopicsOffset(topics: readonly object[]): Promise<unknown>;
    findLeaderForPartitions(topic: string, partitions: readonly string[]): object;
  };
  expect(cluster.findLeaderForPartitions('t', ['0', '1'])).toEqual({ 7: [1] });
  const all = [{ partition: 0 }, { partition: 1 }];
  const topics = [
    { topic: 't', partitions: all, fromBeginning: true },
    { topic: 'without', partitions: all.slice(0, 1), fromBeginning: true },
  ];
  expect(await cluster.fetchTopicsOffset(topics)).toEqual([
    { topic: 't', partitions: [{ partition: 1, offset: '9' }] },
    { topic: 'without', partitions: [] },
  ]);
  expect(asked).toEqual(['7']);
});

test('metadata is read again in time: after the clock was set back, and soon while a partition has no leader', async () => {
  type Pool = new (options: object) => { refreshMetadataIfNecessary(topics: readonly string[]): Promise<void> };
  const BrokerPool = require('kafkajs/src/cluster/brokerPool.js') as Pool;
  const begin = 1_800_000_000_000;
  /** how often metadata is read at these times, milliseconds since the beginning */
  const readsAt = async (partition: object, metadataMaxAge: number, times: readonly number[]): Promise<number[]> => {
    let reads = 0;
    const pool = new BrokerPool({ logger: { namespace: () => undefined }, metadataMaxAge });
    const metadata = async (): Promise<object> => {
      reads++;
      return { brokers: [], topicMetadata: [{ topic: 't', partitionMetadata: [partition] }] };
    };
    Object.assign(pool, { seedBroker: { connectionPool: {} }, findConnectedBroker: async () => ({ metadata }) });
    const after: number[] = [];
    for (const time of times) {
      now.mockReturnValue(begin + time);
      await pool.refreshMetadataIfNecessary(['t']);
      after.push(reads);
    }
    return after;
  };
  const now = vi.spyOn(Date, 'now');
  try {
    const hour = 3_600_000;
    expect(await readsAt(LED, 10_000, [hour, 0, 9_000, 10_001, 19_000, 20_002])).toEqual([1, 1, 1, 2, 2, 3]);
    // an admin's metadata is five minutes old at most by default: its questions fail where a leader has moved
    expect(await readsAt(LED, 300_000, [0, 1_000, 11_001, 12_000])).toEqual([1, 1, 2, 2]);
    expect(await readsAt(LEADERLESS, 10_000, [0, 100, 500, 1_101, 1_200, 2_201])).toEqual([1, 1, 1, 2, 2, 3]);
  } finally {
    now.mockRestore();
  }
});
