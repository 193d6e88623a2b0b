import { expect, test } from 'vitest';
import { StartError } from '../../../common/errors.ts';
import { ensureTopics } from '../../../common/kafka/topics.ts';
import { freePort } from '../../../common/kafka/local-broker/local-broker.ts';
import { createTopic, testKafka, uniqueName } from '../../harness/kafka.ts';

async function partitionsOf(topics: string[]): Promise<Record<string, number>> {
  const admin = testKafka().admin();
  await admin.connect();
  try {
    const found = await admin.fetchTopicMetadata({ topics });
    return Object.fromEntries(found.topics.map(({ name, partitions }) => [name, partitions.length]));
  } finally {
    await admin.disconnect();
  }
}

test('missing topics are made with the wanted partitions, existing ones left as they are', async () => {
  const there = await createTopic('there', { partitions: 2 });
  const missing = uniqueName('missing');
  expect(await ensureTopics(testKafka(), [there, missing], 5)).toEqual([missing]);
  expect(await partitionsOf([there, missing])).toEqual({ [there]: 2, [missing]: 5 });
  expect(await ensureTopics(testKafka(), [there, missing], 7)).toEqual([]);
  expect(await partitionsOf([there, missing])).toEqual({ [there]: 2, [missing]: 5 });
});

test('processes that make the same topics at the same time do not disturb each other', async () => {
  const topics = Array.from({ length: 9 }, () => uniqueName('race'));
  const results = await Promise.all(Array.from({ length: 4 }, () => ensureTopics(testKafka(), topics, 3)));
  expect(results.flat().toSorted()).toEqual(topics.toSorted());
  expect(await partitionsOf(topics)).toEqual(Object.fromEntries(topics.map((t) => [t, 3])));
});

test('a name that Kafka does not allow is one clear line, at once', async () => {
  const started = performance.now();
  const there = await createTopic('a_name');
  const alike = there.replace('a_name', 'a.name');
  for (const name of ['no/such name', alike]) {
    const failed = ensureTopics(testKafka(), [name], 1);
    await expect(failed).rejects.toThrow(StartError);
    await expect(failed).rejects.toThrow(
      new RegExp(`: ${name}: Kafka does not allow the name, or a topic has it with \\. and _ exchanged$`),
    );
  }
  expect(performance.now() - started).toBeLessThan(5_000);
});

test('a broker that does not answer is one clear line within the deadline', async () => {
  const port = await freePort();
  const started = performance.now();
  const failed = ensureTopics(testKafka([`127.0.0.1:${port}`]), ['t'], 1, { deadlineMs: 1_500 });
  await expect(failed).rejects.toThrow(StartError);
  await expect(failed).rejects.toThrow(
    new RegExp(
      `^Kafka does not answer within 2 s \\(127\\.0\\.0\\.1:${port} ECONNREFUSED\\); start it, or set KAFKA_BROKERS$`,
    ),
  );
  expect(performance.now() - started).toBeLessThan(3_000);
  const advised = ensureTopics(testKafka([`127.0.0.1:${port}`]), ['t'], 1, { deadlineMs: 10, advice: 'wait' });
  await expect(advised).rejects.toThrow(/; wait$/);
});
