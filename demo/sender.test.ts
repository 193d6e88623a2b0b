import { expect, test } from 'vitest';
import { readSettings } from '../common/config/settings.ts';
import type { Producer } from '../common/kafka/client.ts';
import { createLogger } from '../common/logger.ts';
import { callsOf, createSender } from './sender.ts';
import { createTraffic } from './traffic.ts';

type Batch = Parameters<Producer['sendBatch']>[0];

/** A broker that answers when it is told to. */
function heldBroker(leaderless = new Set<number>()): {
  readonly batches: Batch[];
  readonly answer: ((error?: Error) => void)[];
  readonly sendBatch: Producer['sendBatch'];
} {
  const batches: Batch[] = [];
  const answer: ((error?: Error) => void)[] = [];
  return {
    batches,
    answer,
    sendBatch: (batch) => {
      batches.push(batch);
      const sent = (batch.topicMessages ?? []).flatMap(({ topic, messages }) => messages.map((m) => ({ topic, m })));
      // as client.ts does
      for (const [i, { m }] of sent.entries()) m.partition = i % 2;
      const answers = sent
        .filter(({ m }) => !leaderless.has(m.partition!))
        .map(({ topic, m }) => ({ topicName: topic, partition: m.partition!, errorCode: 0 }));
      return new Promise((resolve, reject) =>
        answer.push((error) => (error === undefined ? resolve(answers) : reject(error))),
      );
    },
  };
}

const { KAFKA_TOPICS } = readSettings({ KAFKA_TOPICS: 'edge_logs=cloudflare.logs.prod' });
const logger = createLogger('fatal');
const events = (count: number) => {
  const traffic = createTraffic({ seed: 1, projects: 10, functionsPerProject: 2 });
  return Array.from({ length: count }, (_, i) => traffic.next(1_772_355_600_000_000 + i * 1000));
};

test('every event goes to the topic of its source with its key and record time, unchanged', () => {
  const broker = heldBroker();
  const made = events(300);
  createSender(broker, KAFKA_TOPICS, logger).send(made);
  const produced = (broker.batches[0]?.topicMessages ?? []).flatMap(({ topic, messages }) =>
    messages.map(({ partition: _, ...m }) => ({ topic, ...m })),
  );
  const expected = made.map(({ source, key, json, recordMillis }) => ({
    topic: source === 'edge_logs' ? 'cloudflare.logs.prod' : source,
    key,
    value: json,
    timestamp: String(recordMillis),
  }));
  const byValue = (a: { value: unknown }, b: { value: unknown }): number =>
    String(a.value) < String(b.value) ? -1 : 1;
  expect(produced.toSorted(byValue)).toEqual(expected.toSorted(byValue));
  expect(broker.batches[0]?.acks).toBe(-1);
});

test('events of a partition without a leader count as failed', async () => {
  const broker = heldBroker(new Set([1]));
  const sender = createSender(broker, KAFKA_TOPICS, logger);
  sender.send(events(10));
  broker.answer[0]!();
  await sender.settled();
  expect(sender.totals()).toEqual({ sent: 10, acknowledged: 5, failed: 5 });
});

test('only what Kafka answered counts as acknowledged, what it refused as failed', async () => {
  const broker = heldBroker();
  const sender = createSender(broker, KAFKA_TOPICS, logger);
  sender.send(events(10));
  sender.send(events(20));
  sender.send([]);
  expect(broker.batches).toHaveLength(2);
  expect(sender.totals()).toEqual({ sent: 30, acknowledged: 0, failed: 0 });
  broker.answer[0]?.();
  broker.answer[1]?.(new Error('gone'));
  await sender.settled();
  expect(sender.totals()).toEqual({ sent: 30, acknowledged: 10, failed: 20 });
  expect(Object.values(sender.bySource()).reduce((a, b) => a + b, 0)).toBe(10);
});

test('events that wait for an answer are bounded', () => {
  const sender = createSender(heldBroker(), KAFKA_TOPICS, logger);
  const room = sender.room();
  sender.send(events(1000));
  expect(sender.room()).toBe(room - 1000);
});

test('no call is larger than a broker takes, whatever is sent at once, and nothing is lost or reordered', () => {
  const made = events(3000);
  const calls = callsOf(made);
  expect(calls.flat()).toEqual(made);
  expect(calls.length).toBeGreaterThan(3);
  for (const call of calls)
    expect(call.reduce((sum, e) => sum + Buffer.byteLength(e.json), 0)).toBeLessThan(1024 * 1024);
  expect(callsOf([])).toEqual([]);
});
