import { CompressionTypes, type Message, type Producer } from '../common/kafka/client.ts';
import type { Topics } from '../common/config/parsers.ts';
import { within } from '../common/lifecycle/within.ts';
import type { SourceName } from '../common/sources.ts';
import type { Logger } from '../common/logger.ts';
import type { TrafficEvent } from './traffic.ts';

export interface Totals {
  /** handed to the Kafka client */
  readonly sent: number;
  /** stored by all replicas */
  readonly acknowledged: number;
  /** given up after all attempts; some may have been stored */
  readonly failed: number;
}

interface Sender {
  send(events: readonly TrafficEvent[]): void;
  /** how many more events may be sent now: those that wait for an answer are bounded */
  room(): number;
  totals(): Totals;
  /** acknowledged events of each source that had any */
  bySource(): Partial<Record<SourceName, number>>;
  /** when every event sent so far has been answered */
  settled(): Promise<void>;
}

/**
 * kafkajs makes one record batch of all messages of a call and partition, however large, and brokers refuse batches
 * above message.max.bytes (1 MiB by default). So a call gets at most this many characters of events.
 */
const MAX_CALL_LENGTH = 800_000;
/** About 50 MB at the sizes of real events. */
const MAX_UNANSWERED = 30_000;
/** Answers of a broker that is gone are waited for this long at the end, milliseconds. */
const SETTLE_DEADLINE_MS = 5_000;

/**
 * Sends events to the topics of their sources, lz4, acknowledged by all replicas. Failures are counted and logged, not
 * thrown.
 */
export function createSender(producer: Pick<Producer, 'sendBatch'>, topics: Topics, logger: Logger): Sender {
  let sent = 0;
  let acknowledged = 0;
  let failed = 0;
  const perSource: Partial<Record<SourceName, number>> = {};
  const unanswered = new Set<Promise<void>>();

  const deliver = async (events: readonly TrafficEvent[]): Promise<void> => {
    const bySource = Map.groupBy(events, ({ source }) => source);
    try {
      const messagesOf = [...bySource].map(([source, list]) => {
        const messages: Message[] = list.map((e) => ({ key: e.key, value: e.json, timestamp: String(e.recordMillis) }));
        return { source, topic: topics[source], messages };
      });
      const answers = await producer.sendBatch({
        acks: -1,
        compression: CompressionTypes.LZ4,
        topicMessages: messagesOf,
      });
      // a partition without a leader is left out (kafkajs-internals.ts)
      const answered = new Set(answers.map(({ topicName, partition }) => `${topicName} ${partition}`));
      for (const { source, topic, messages } of messagesOf) {
        const stored = messages.filter(({ partition }) => answered.has(`${topic} ${partition}`)).length;
        acknowledged += stored;
        failed += messages.length - stored;
        perSource[source] = (perSource[source] ?? 0) + stored;
      }
    } catch (error) {
      failed += events.length;
      logger.warn(
        { events: events.length, error: error instanceof Error ? error.message : String(error) },
        'demo_events_not_sent',
      );
    }
  };
  return {
    send: (events) => {
      sent += events.length;
      for (const call of callsOf(events)) {
        const delivery = deliver(call);
        unanswered.add(delivery);
        void delivery.then(() => unanswered.delete(delivery));
      }
    },
    room: () => Math.max(0, MAX_UNANSWERED - (sent - acknowledged - failed)),
    totals: () => ({ sent, acknowledged, failed }),
    bySource: () => perSource,
    settled: async () => {
      await within(SETTLE_DEADLINE_MS, Promise.all(unanswered), undefined);
    },
  };
}

/** Splits events, in order, so that each part fits one call; an event that is too large alone is a part of its own. */
export function callsOf(events: readonly TrafficEvent[]): TrafficEvent[][] {
  const calls: TrafficEvent[][] = [];
  let call: TrafficEvent[] = [];
  let length = 0;
  for (const event of events) {
    if (call.length > 0 && length + event.json.length > MAX_CALL_LENGTH) {
      calls.push(call);
      call = [];
      length = 0;
    }
    call.push(event);
    length += event.json.length;
  }
  if (call.length > 0) calls.push(call);
  return calls;
}
