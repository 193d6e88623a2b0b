import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { createAcknowledgedProducer } from '../../../common/kafka/acknowledged-producer.ts';
import { partitionOf } from '../../../common/kafka/partitioner.ts';
import { createLogger } from '../../../common/logger.ts';
import { readAll, testKafka, uniqueName, withAdmin } from '../../harness/kafka.ts';

const nameOf = (value: Buffer | null): string =>
  String(value)
    .split(' ')
    .slice(0, value!.length > 1_000 ? 1 : 2)
    .join(' ');

test('what a call holds beside a message that its topic refuses is stored once, also of another partition', async () => {
  const topic = uniqueName('too-large');
  const configEntries = [{ name: 'max.message.bytes', value: '100000' }];
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] }));
  const [here, there] = [0, 1].map((partition) =>
    ['a', 'b', 'c', 'd', 'e'].find((key) => partitionOf(Buffer.from(key), 2) === partition)!,
  );
  const producer = createAcknowledgedProducer(testKafka(), createLogger('silent'));
  const send = (key: string, value: string | Buffer): Promise<void> =>
    producer.send(topic, [{ key, value: Buffer.from(value), timestamp: Date.now() }]).acknowledged;
  const sendAll = (values: readonly Buffer[]): Promise<void> =>
    producer.send(
      topic,
      values.map((value) => ({ key: here!, value, timestamp: Date.now() })),
    ).acknowledged;
  try {
    // in flight, so the next ones share a call
    const outcomes = await Promise.allSettled([
      send(here!, 'first'),
      send(here!, 'same partition'),
      send(here!, randomBytes(200_000)),
      send(there!, 'other partition'),
    ]);
    expect(outcomes.map((o) => (o.status === 'rejected' ? o.reason : o.status))).toMatchObject([
      'fulfilled',
      'fulfilled',
      { reason: 'too_large' },
      'fulfilled',
    ]);
    await send(there!, 'afterwards');
    // each of them fits, and together they do not: they are stored; if one does not fit, none is
    const events = Array.from({ length: 9 }, (_, i) => Buffer.concat([Buffer.from(`${i} `), randomBytes(20_000 + i)]));
    await sendAll(events);
    await expect(sendAll([Buffer.from('small'), randomBytes(200_000)])).rejects.toMatchObject({ reason: 'too_large' });
    const stored = await readAll(topic);
    expect(stored.map(({ message }) => nameOf(message.value)).toSorted()).toEqual([
      ...events.map((_, i) => String(i)),
      'afterwards',
      'first',
      'other partition',
      'same partition',
    ]);
  } finally {
    await producer.stop();
  }
});
