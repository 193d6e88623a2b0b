import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { produceOnce, readFetchesWith, type ProduceRequest } from './kafkajs-internals.ts';

const require = createRequire(import.meta.url);
type Made<T> = (options: object) => T;

/**
 * A produce call to partitions 0 and 1 of two brokers. The second refuses once, after refuseAfterMs, while the first
 * needs 50 ms. `moved`: the leaders after that.
 */
function callWith(refuseAfterMs: number, moved: Readonly<Record<number, readonly number[]>>) {
  produceOnce();
  const createSendMessages = require('kafkajs/src/producer/sendMessages.js') as Made<
    (call: object) => Promise<unknown>
  >;
  const createEosManager = require('kafkajs/src/producer/eosManager/index.js') as Made<{
    initProducerId(): Promise<void>;
  }>;
  const createRetry = require('kafkajs/src/retry/index.js') as Made<unknown>;
  const { prototype } = require('kafkajs/src/broker/index.js') as { prototype: object };
  const [sendRequest] = Object.getOwnPropertySymbols(prototype);

  const stored: object[] = [];
  let refusals = 1;
  let producers = 0;
  const brokers = [0, 1].map((nodeId) =>
    Object.assign(Object.create(prototype) as object, {
      nodeId,
      lookupRequest: () => (request: ProduceRequest) => request,
      [sendRequest!]: async ({ topicData }: ProduceRequest) => {
        await sleep(nodeId === 0 ? 50 : refuseAfterMs);
        if (nodeId === 1 && refusals-- > 0)
          throw Object.assign(new Error('moved'), { type: 'NOT_LEADER_FOR_PARTITION', retriable: true });
        stored.push(...topicData.flatMap(({ partitions }) => partitions.flatMap(({ messages }) => messages)));
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
      const leaders = Object.entries(refusals > 0 ? { 0: [0], 1: [1] } : moved);
      return Object.fromEntries(
        leaders
          .map(([node, of]) => [node, of.filter((partition) => partitions.includes(String(partition)))] as const)
          .filter(([, of]) => of.length > 0),
      );
    },
    findBroker: async ({ nodeId }: { nodeId: string }) => brokers[Number(nodeId)],
    findControllerBroker: async () => ({
      initProducerId: async () => ({ producerId: `of ${++producers}`, producerEpoch: 0 }),
    }),
  };
  /** of a producer of its own */
  const send = async (messages: readonly object[]): Promise<unknown> => {
    const eosManager = createEosManager({ logger, cluster, transactional: false });
    await eosManager.initProducerId();
    return await createSendMessages({
      logger,
      cluster,
      eosManager,
      partitioner: ({ message }: { message: { partition: number } }) => message.partition,
      retrier: createRetry({ initialRetryTime: 1, retries: 3 }),
    })({ topicMessages: [{ topic: 't', messages }] });
  };
  const messages = [0, 1].map((partition) => ({ partition, value: `of ${partition}` }));
  return { sent: send(messages), send, messages, stored };
}

test('a produce call that one broker refuses at once is stored once by a broker that is slow', async () => {
  const { sent, messages, stored } = callWith(0, { 0: [0], 1: [1] });
  expect(await sent).toHaveLength(2);
  expect(stored).toEqual(messages);
});

test('a produce call fails if an acknowledged partition has moved to a broker that is asked again', async () => {
  for (const refuseAfterMs of [0, 100]) {
    const { sent, send, messages, stored } = callWith(refuseAfterMs, { 1: [0, 1] });
    await expect(sent).rejects.toThrow('the leader of an acknowledged partition has moved');
    expect(stored).toEqual(messages.slice(0, 1));
    // of a call that failed for one message, the others are sent again by another producer (acknowledged-producer.ts)
    expect(await send(messages.slice(0, 1))).toHaveLength(1);
    expect(stored).toEqual([messages[0], messages[0]]);
  }
});

test('kafkajs reads records in the format before 0.11', async () => {
  readFetchesWith({ maxBytes: 1000, onUnreadable: () => undefined });
  const definition = require('kafkajs/src/protocol/requests/fetch/index.js') as {
    protocol(version: object): (parameters: object) => { response: { decode(raw: Buffer): Promise<unknown> } };
  };
  const topics = [{ topic: 't', partitions: [{ partition: 0, fetchOffset: '7' }] }];
  const { response } = definition.protocol({ version: 11 })({ topics });
  const hex = [
    // throttle time, error, session, one topic `t`, one partition 0, no error, three offsets, nothing aborted, replica
    '00000000 0000 00000000 00000001 000174 00000001 00000000 0000',
    `${'00'.repeat(24)} ffffffff ffffffff`,
    // 35 bytes: offset 7, 23 bytes, checksum, magic 1, attributes, time 5, no key, value `v`
    '00000023 0000000000000007 00000017 00000000 01 00 0000000000000005 ffffffff 00000001 76',
  ];
  const decoded = await response.decode(Buffer.from(hex.join('').replaceAll(' ', ''), 'hex'));
  const message = { offset: '7', timestamp: '5', key: null, value: Buffer.from('v') };
  expect(decoded).toMatchObject({ responses: [{ topicName: 't', partitions: [{ messages: [message] }] }] });
});
