import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { createAcknowledgedProducer } from '../../../common/kafka/acknowledged-producer.ts';
import { partitionOf } from '../../../common/kafka/partitioner.ts';
import { createLogger } from '../../../common/logger.ts';
import { waitFor } from '../../harness/wait-for.ts';
import { createTopic, readAll, testKafka } from '../../harness/kafka.ts';

interface Metadata {
  readonly topicMetadata: readonly { readonly partitionMetadata: readonly { readonly partitionId: number }[] }[];
}

test('a partition without a leader fails only its own messages, and takes them once it has one', async () => {
  const topic = await createTopic('leaderless', { partitions: 2 });
  const [led, leaderless] = [0, 1].map((partition) =>
    ['a', 'b', 'c', 'd', 'e'].find((key) => partitionOf(Buffer.from(key), 2) === partition)!,
  );
  const definition = createRequire(import.meta.url)('kafkajs/src/protocol/requests/metadata/index.js') as {
    protocol: (version: object) => (parameters: object) => { response: { decode(raw: Buffer): Promise<Metadata> } };
  };
  const { protocol } = definition;
  // as a broker says it while every replica of the partition is away
  definition.protocol = (version) => (parameters) => {
    const { response, ...request } = protocol(version)(parameters);
    const decode = async (raw: Buffer): Promise<Metadata> => {
      const metadata = await response.decode(raw);
      for (const { partitionMetadata } of metadata.topicMetadata)
        for (const partition of partitionMetadata)
          if (partition.partitionId === 1) Object.assign(partition, { partitionErrorCode: 5, leader: -1 });
      return metadata;
    };
    return { ...request, response: { ...response, decode } };
  };
  const producer = createAcknowledgedProducer(testKafka(), createLogger('silent'));
  const send = (key: string, value: string): Promise<void> =>
    producer.send(topic, [{ key, value: Buffer.from(value), timestamp: Date.now() }]).acknowledged;
  try {
    // the first is in flight, so the next ones share a call
    const outcomes = await Promise.allSettled([send(led!, 'first'), send(leaderless!, 'lost'), send(led!, 'beside')]);
    expect(outcomes).toMatchObject([
      { status: 'fulfilled' },
      { status: 'rejected', reason: { reason: 'failed' } },
      { status: 'fulfilled' },
    ]);
    definition.protocol = protocol;
    const later = (): Promise<boolean> =>
      send(leaderless!, 'later').then(
        () => true,
        () => false,
      );
    await waitFor(later, 10_000, 'the partition takes messages');
    const stored = (await readAll(topic)).map(({ partition, message }) => [partition, String(message.value)]);
    expect(stored).toEqual([
      [0, 'first'],
      [0, 'beside'],
      [1, 'later'],
    ]);
  } finally {
    definition.protocol = protocol;
    await producer.stop();
  }
});
