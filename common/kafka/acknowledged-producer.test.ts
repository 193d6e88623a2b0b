import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { createLogger } from '../logger.ts';
import {
  createAcknowledgedProducer,
  type AcknowledgedProducer,
  type NotAcknowledged,
  type OutgoingMessage,
} from './acknowledged-producer.ts';
import type { KafkaClient, Producer, ProducerRecord, RecordMetadata } from './client.ts';

type Answer = (record: ProducerRecord) => Promise<RecordMetadata[]>;
interface Call {
  /** which of the producers made, from 0 */
  readonly producer: number;
  readonly values: string[];
}

/**
 * A Kafka client whose producers put messages with the key 1 into partition 1, all others into partition 0, and answer
 * by a script. What a real broker does is tested in test/integration/push.
 */
function scripted(
  answers: Answer[],
  acknowledgeMs = 60_000,
  connect = async (_producer: number): Promise<void> => {},
): { producer: AcknowledgedProducer; calls: Call[]; disconnected: number[]; atOnce: () => number } {
  const calls: Call[] = [];
  const disconnected: number[] = [];
  let made = 0;
  let running = 0;
  let most = 0;
  const kafka: Pick<KafkaClient, 'producer'> = {
    producer: () => {
      const producer = made++;
      const send = async (record: ProducerRecord): Promise<RecordMetadata[]> => {
        most = Math.max(most, ++running);
        for (const message of record.messages) message.partition = Number(message.key === '1');
        calls.push({ producer, values: record.messages.map((m) => String(m.value)) });
        try {
          return await (answers.shift() ?? acknowledge)(record);
        } finally {
          running--;
        }
      };
      return {
        connect: () => connect(producer),
        disconnect: async () => void disconnected.push(producer),
        send,
      } as unknown as Producer;
    },
  };
  return {
    producer: createAcknowledgedProducer(kafka, createLogger('silent'), acknowledgeMs),
    calls,
    disconnected,
    atOnce: () => most,
  };
}

const acknowledge: Answer = async ({ topic, messages }) =>
  [...new Set(messages.map((m) => m.partition!))].map((partition) => ({
    topicName: topic,
    partition,
    errorCode: 0,
    baseOffset: '0',
  }));
const message = (value: string): OutgoingMessage => ({ key: 'k', value: Buffer.from(value), timestamp: 1 });
const failure =
  (type: string): Answer =>
  () =>
    Promise.reject(Object.assign(new Error(type), { type }));

/** An answer that comes when it is told to. */
function held(): { answer: Answer; go: () => void } {
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  return {
    answer: async (record) => {
      await gate;
      return acknowledge(record);
    },
    go: () => go(),
  };
}

describe('the acknowledged producer', () => {
  it('takes no answer with an error for an acknowledgement, nor one of another partition', async () => {
    for (const answer of [
      { partition: 0, errorCode: 7 },
      { partition: 1, errorCode: 0 },
    ]) {
      const { producer } = scripted([async ({ topic: topicName }) => [{ topicName, ...answer }]]);
      await expect(producer.send('t', [message('a')]).acknowledged).rejects.toMatchObject({ reason: 'failed' });
    }
  });

  it('makes one call at a time per topic, and sends what arrives meanwhile in the next call', async () => {
    const first = held();
    const { producer, calls, atOnce } = scripted([first.answer]);
    const deliveries = ['a', 'b', 'c'].map((value) => producer.send('t', [message(value)]));
    first.go();
    await Promise.all(deliveries.map((d) => d.acknowledged));
    expect(calls.map((c) => c.values)).toEqual([['a'], ['b', 'c']]);
    expect(atOnce()).toBe(1);
  });

  it('acknowledges only if every partition has answered', async () => {
    const { producer } = scripted([
      async ({ topic }) => [{ topicName: topic, partition: 1, errorCode: 0, baseOffset: '0' }],
    ]);
    await expect(producer.send('t', [message('a')]).acknowledged).rejects.toMatchObject({ reason: 'failed' });
  });

  it.each([true, false])(
    'asks a partition without an answer, for instance one without a leader, again (%s)',
    async (isThere) => {
      const first = held();
      const { producer, calls } = scripted([
        first.answer,
        async ({ topic }) => [{ topicName: topic, partition: 0, errorCode: 0, baseOffset: '0' }],
        async ({ topic }) => (isThere ? [{ topicName: topic, partition: 1, errorCode: 0, baseOffset: '0' }] : []),
      ]);
      const [, there, here] = ['0', '1', '0'].map((key) => producer.send('t', [{ ...message(key), key }]).acknowledged);
      first.go();
      await here;
      if (isThere) await there;
      else await expect(there).rejects.toMatchObject({ reason: 'failed' });
      expect(calls.map((c) => c.values)).toEqual([['0'], ['1', '0'], ['1']]);
    },
  );

  it('drops the producer of a failed call, so its sequence numbers are never used again', async () => {
    const { producer, calls, disconnected } = scripted([failure('CONNECTION')]);
    await expect(producer.send('t', [message('a')]).acknowledged).rejects.toMatchObject({ reason: 'failed' });
    await producer.send('t', [message('b')]).acknowledged;
    expect(calls).toEqual([
      { producer: 0, values: ['a'] },
      { producer: 1, values: ['b'] },
    ]);
    expect(disconnected).toEqual([0]);
  });

  it('closes a producer that could not connect, and connects another one for the next call', async () => {
    const { producer, calls, disconnected } = scripted([], undefined, async (made) => {
      if (made === 0) throw new Error('no transaction coordinator');
    });
    await expect(producer.send('t', [message('a')]).acknowledged).rejects.toMatchObject({ reason: 'failed' });
    expect(disconnected).toEqual([0]);
    await producer.send('t', [message('b')]).acknowledged;
    expect(calls).toEqual([{ producer: 1, values: ['b'] }]);
  });

  it('fails no other caller because of a message that the topic refuses', async () => {
    const first = held();
    const { producer } = scripted([
      first.answer,
      failure('MESSAGE_TOO_LARGE'),
      failure('MESSAGE_TOO_LARGE'),
      acknowledge,
    ]);
    const [, large, small] = ['first', 'large', 'small'].map((value) => producer.send('t', [message(value)]));
    first.go();
    await expect(large!.acknowledged).rejects.toMatchObject({ reason: 'too_large' });
    await small!.acknowledged;
  });

  it('answers many callers soon, in few calls, although the topic refuses the message of one', async () => {
    const first = held();
    const refuse: Answer = (record) =>
      record.messages.some((m) => String(m.value) === 'large')
        ? failure('MESSAGE_TOO_LARGE')(record)
        : acknowledge(record);
    const { producer, calls } = scripted([first.answer, ...Array.from({ length: 100 }, () => refuse)]);
    const values = ['first', ...Array.from({ length: 1_000 }, (_, i) => (i === 700 ? 'large' : String(i)))];
    const deliveries = values.map((value) => producer.send('t', [message(value)]).acknowledged);
    // before the others have ended
    let callsAtFirst = 0;
    void deliveries[1]!.then(() => (callsAtFirst = calls.length));
    first.go();
    const outcomes = await Promise.allSettled(deliveries);
    expect(outcomes.flatMap(({ status }, i) => (status === 'rejected' ? values[i] : []))).toEqual(['large']);
    expect(calls.length).toBeLessThan(25);
    expect(callsAtFirst).toBeLessThan(5);
  });

  it('sends all of a partition again, because other messages would take other sequence numbers', async () => {
    vi.useFakeTimers();
    try {
      const first = held();
      const refused = Promise.withResolvers<never>();
      const { producer, calls } = scripted([first.answer, () => refused.promise], 100);
      const send = (key: string, value: string) =>
        producer.send('t', [{ key, value: Buffer.from(value), timestamp: 1 }]).acknowledged.then(
          () => 'acknowledged',
          (error: NotAcknowledged) => error.reason,
        );
      void send('0', 'first');
      const late = send('0', 'late');
      await vi.advanceTimersByTimeAsync(60);
      const waiting = [send('0', 'waiting'), send('1', 'in partition 1')];
      first.go();
      await vi.advanceTimersByTimeAsync(50);
      refused.reject(Object.assign(new Error('refused'), { type: 'MESSAGE_TOO_LARGE' }));
      await vi.advanceTimersByTimeAsync(1);
      expect([await late, ...(await Promise.all(waiting))]).toEqual(['late', 'acknowledged', 'acknowledged']);
      expect(calls.slice(2).map((c) => c.values)).toEqual([['late', 'waiting'], ['in partition 1']]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('is late after its deadline: it drops waiting messages, holds messages in flight, and refuses new callers at once', async () => {
    const first = held();
    const { producer, calls } = scripted([first.answer], 30);
    const underWay = producer.send('t', [message('a')]);
    const waiting = producer.send('t', [message('b')]);
    await expect(underWay.acknowledged).rejects.toMatchObject({ reason: 'late' });
    await expect(waiting.acknowledged).rejects.toMatchObject({ reason: 'late' });
    // a timer of 30 ms may end after 29.1: the call has not run for longer than that yet
    await sleep(5);
    const refused = producer.send('t', [message('c')]);
    await expect(refused.acknowledged).rejects.toMatchObject({ reason: 'late' });
    await refused.finished;
    expect(
      await Promise.race([underWay.finished.then(() => 'finished'), waiting.acknowledged.catch(() => 'held')]),
    ).toBe('held');
    first.go();
    await Promise.all([underWay.finished, waiting.finished]);
    await producer.send('t', [message('d')]).acknowledged;
    expect(calls.map((c) => c.values)).toEqual([['a'], ['d']]);
  });

  it('splits many messages into calls that are small enough for a broker', async () => {
    const { producer, calls } = scripted([]);
    await producer.send(
      't',
      Array.from({ length: 5000 }, (_, i) => message(String(i))),
    ).acknowledged;
    await producer.send(
      't',
      ['x', 'y', 'z'].map((c) => message(c.repeat(500_000))),
    ).acknowledged;
    expect(calls.map((c) => c.values.length)).toEqual([2000, 2000, 1000, 1, 1, 1]);
    expect(calls.slice(0, 3).flatMap((c) => c.values)).toEqual(Array.from({ length: 5000 }, (_, i) => String(i)));
  });

  it('acknowledges nothing at once; a stop refuses waiting messages and waits for those in flight', async () => {
    const first = held();
    const { producer } = scripted([first.answer]);
    await producer.send('t', []).acknowledged;
    const underWay = producer.send('t', [message('a')]);
    const waiting = producer.send('t', [message('b')]);
    const stopped = producer.stop();
    await expect(waiting.acknowledged).rejects.toMatchObject({ reason: 'stopping' });
    await expect(producer.send('t', [message('c')]).acknowledged).rejects.toMatchObject({ reason: 'stopping' });
    first.go();
    await Promise.all([underWay.acknowledged, stopped]);
  });
});
