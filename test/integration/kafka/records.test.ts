import { afterEach, expect, test } from 'vitest';
import {
  createTopic,
  kafkaBrokers,
  produce,
  produceInTransactions,
  produceWithLibrdkafka,
  readAll,
  testKafka,
  uniqueName,
  withAdmin,
} from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantees of reading: the same records at the same offsets wherever a fetch begins; nothing of an aborted
// transaction; nothing that stops a partition for ever.

test('records of aborted transactions are nowhere, with several open at once and wherever the fetch begins', async () => {
  const topic = await createTopic('transactions');
  await produceInTransactions(topic, [
    ...['a', 'b', 'c', 'a', 'b', 'c'].map((transaction) => ({ transaction, value: `${transaction} aborted` })),
    { abort: 'b' },
    { abort: 'c' },
    { abort: 'a' },
    { transaction: 'd', value: 'committed' },
    { transaction: 'e', value: 'aborted' },
    { commit: 'd' },
    { abort: 'e' },
    { value: 'plain' },
  ]);
  const everything = await readAll(topic, { readUncommitted: true });
  const wanted = everything
    .map((r) => ({ offset: r.offset, value: r.message.value?.toString() }))
    .filter(({ value }) => value === 'committed' || value === 'plain');
  expect(wanted.map((w) => w.value)).toEqual(['committed', 'plain']);
  for (const from of [0n, 1n, 2n, 3n, 5n]) {
    const read = await readAll(topic, { from });
    expect(
      read.map((r) => ({ offset: r.offset, value: r.message.value?.toString() })),
      `from ${from}`,
    ).toEqual(wanted.filter((w) => w.offset >= from));
  }
});

test('compaction: what is left comes at its own offsets, and the position goes over what is gone to the end', async () => {
  const topic = await createTopic('compacted', {
    config: {
      'cleanup.policy': 'compact',
      'segment.ms': '100',
      'min.cleanable.dirty.ratio': '0.01',
      'max.compaction.lag.ms': '100',
      'delete.retention.ms': '0',
    },
  });
  const keys = Array.from({ length: 3_000 }, (_, i) => (i % 100 === 7 ? `once ${i}` : 'again and again'));
  await produceWithLibrdkafka(
    keys.map((key, i) => ({ topic, key, value: `${i}` })),
    { compression: 'lz4' },
  );
  await waitFor(
    async () => {
      await produce([{ topic, key: 'next segment', value: 'x' }]);
      return (await readAll(topic)).length < 200;
    },
    55_000,
    'the log is compacted',
  );
  const read = await readAll(topic);
  const once = read.filter((r) => r.message.key?.toString().startsWith('once') === true);
  expect(once.map((r) => [r.offset, r.message.key?.toString(), r.message.value?.toString()])).toEqual(
    keys.flatMap((key, i) => (key.startsWith('once') ? [[BigInt(i), key, `${i}`]] : [])),
  );
});

test('200,000 records in one record batch', async () => {
  const topic = await createTopic('many');
  await produceWithLibrdkafka(
    Array.from({ length: 200_000 }, () => ({ topic, value: 'x' })),
    { compression: 'lz4', oneBatch: true },
  );
  expect((await readAll(topic)).length).toBe(200_000);
});

test('an event that unfolds to 300 MB stops nobody: its beginning comes, and all that follows', async () => {
  const topic = await createTopic('bomb', { partitions: 2 });
  await produce(
    [
      { topic, value: 'before' },
      { topic, value: Buffer.alloc(300_000_000, ' ') },
      { topic, value: 'after' },
      { topic, partition: 1, value: 'other' },
    ],
    { compression: 'zstd' },
  );
  const before = process.memoryUsage().rss;
  const read = await readAll(topic, { maxDecompressedBytes: 16_000_000 });
  expect(read.map((r) => [r.partition, r.offset, r.message.value?.length])).toEqual([
    [0, 0n, 6],
    [0, 1n, 16_000_001],
    [0, 2n, 5],
    [1, 0n, 5],
  ]);
  expect(process.memoryUsage().rss - before).toBeLessThan(150_000_000);
});

const warnings: Error[] = [];
const onWarning = (warning: Error): void => {
  warnings.push(warning);
};

afterEach(() => {
  process.off('warning', onWarning);
});

test('the client warns of nothing and sleeps while there is nothing to do', async () => {
  process.on('warning', onWarning);
  const consumer = testKafka().consumer({ groupId: uniqueName('idle'), maxWaitTimeInMs: () => 1_000 });
  const topic = await createTopic('idle');
  await consumer.connect();
  await consumer.subscribe({ topics: [topic] });
  await consumer.run({ eachBatch: () => Promise.resolve() });
  await withAdmin((admin) => admin.listTopics(), kafkaBrokers());
  const turns = performance.nodeTiming.uvMetricsInfo.loopCount;
  await new Promise((resolve) => {
    setTimeout(resolve, 1_000);
  });
  expect(performance.nodeTiming.uvMetricsInfo.loopCount - turns).toBeLessThan(200);
  await consumer.disconnect();
  expect(warnings).toEqual([]);
});

test('how long a fetch waits is asked before each one', async () => {
  let waitMs = 60_000;
  let asked = 0;
  const consumer = testKafka().consumer({
    groupId: uniqueName('wait'),
    maxWaitTimeInMs: () => {
      asked++;
      return waitMs;
    },
  });
  const topic = await createTopic('wait');
  let fetches = 0;
  consumer.on('consumer.fetch', () => {
    fetches++;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ eachBatch: () => Promise.resolve() });
  await waitFor(() => asked > 0, 10_000, 'it fetches');
  expect(fetches).toBe(0);
  waitMs = 20;
  // ends the fetch that waits for a minute
  await produce([{ topic, value: '{}' }]);
  await waitFor(() => fetches > 10, 10_000, 'short fetches');
  await consumer.disconnect();
});
