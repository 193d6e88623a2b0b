import { within } from '../lifecycle/within.ts';
import type { Logger } from '../logger.ts';
import { CompressionTypes, type KafkaClient, type Message, type Producer, type RecordMetadata } from './client.ts';
import { isAcknowledged } from './wire/kafkajs-internals.ts';

/**
 * A producer whose send() succeeds only if all replicas acknowledged every message.
 *
 * Two habits of kafkajs 2.2.4 could acknowledge a message that Kafka does not have. This module excludes both:
 * - A produce request with an unknown outcome (the connection broke) returns its sequence numbers
 *   (producer/sendMessages.js:105-111). If another request takes them, the broker takes it for the repetition of the
 *   first, and acknowledges it without storing it. So each topic has a lane with one call at a time, and kafkajs
 *   retries a call with the same numbers. If a call finally fails, its producer is dropped with its numbers.
 * - A call that one broker answered and another did not is retried only at brokers without an answer
 *   (sendMessages.js:71-73). If the unanswered partition has moved to the broker that answered, nobody is asked and the
 *   call succeeds. So we look for the acknowledgement of every partition.
 */
export type AcknowledgedProducer = ReturnType<typeof createAcknowledgedProducer>;

export interface OutgoingMessage {
  readonly key: string | null;
  readonly value: Buffer;
  /** unix milliseconds */
  readonly timestamp: number;
}

/**
 * `too_large`: the topic refuses a message of that size. `late`: no acknowledgement in time. `failed`: Kafka is
 * unavailable or refuses. `stopping`: the process ends.
 */
export class NotAcknowledged extends Error {
  readonly reason: 'too_large' | 'late' | 'failed' | 'stopping';
  constructor(reason: NotAcknowledged['reason'], options?: { cause?: unknown }) {
    super(`Kafka has not acknowledged the messages (${reason})`, options);
    this.name = 'NotAcknowledged';
    this.reason = reason;
  }
}

/**
 * One call makes one record batch per partition, and brokers refuse batches above message.max.bytes (1 MiB by default).
 * A larger message is sent alone.
 */
const MAX_CALL_BYTES = 800_000;
/**
 * A smaller message counts as this many bytes: kafkajs copies the list of a call once per message
 * (producer/groupMessagesPerPartition.js), so a call has at most 2,000.
 */
const MIN_MESSAGE_BYTES = MAX_CALL_BYTES / 2_000;
/** bytes of a record beside key and value, at most, without headers */
const RECORD_BYTES = 32;
/** How long a caller waits, milliseconds. */
const ACKNOWLEDGE_MS = 10_000;
/** How long the broker waits for its replicas before it answers with an error, milliseconds. Then kafkajs retries. */
const REPLICAS_MS = 8_000;
/** Retries of a call. Each connection to a broker has its own retries within (client.ts). */
const RETRIES = 3;
const STOP_MS = 3_000;

/** The work of one send(). */
interface Order {
  /** messages in memory: one leaves it acknowledged, or after its order was settled with an error */
  held: number;
  settled: boolean;
  settle: (error?: NotAcknowledged) => void;
  finish: () => void;
}
/** A message of an order. */
interface Part {
  readonly order: Order;
  readonly message: Message;
}

/** Opens no connection before the first message. `acknowledgeMs`: how long a caller waits, 10 s by default. */
export function createAcknowledgedProducer(
  kafka: Pick<KafkaClient, 'producer'>,
  logger: Logger,
  acknowledgeMs = ACKNOWLEDGE_MS,
) {
  const lanes = new Map<string, Lane>();
  let stopping = false;
  return {
    /**
     * `acknowledged` rejects with NotAcknowledged; some of the messages may be in Kafka all the same. `finished`
     * resolves when none of them is held in memory any more, which may be later.
     */
    send(topic: string, messages: readonly OutgoingMessage[]) {
      let lane = lanes.get(topic);
      if (lane === undefined) lanes.set(topic, (lane = createLane(topic, kafka, logger)));
      const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
      const { promise: acknowledged, resolve, reject } = Promise.withResolvers<void>();
      const late = setTimeout(() => order.settle(new NotAcknowledged('late')), acknowledgeMs);
      const order: Order = {
        held: messages.length,
        settled: false,
        finish,
        settle: (error) => {
          order.settled = true;
          clearTimeout(late);
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      if (messages.length === 0) order.settle();
      else if (stopping) order.settle(new NotAcknowledged('stopping'));
      // a new caller would only wait behind a call that hangs
      else if (lane.busyMs() > acknowledgeMs) order.settle(new NotAcknowledged('late'));
      if (order.settled) finish();
      else lane.add(messages, order);
      return { acknowledged, finished };
    },
    /** Ends calls in flight or waits for them, a few seconds at most. Unsent messages are rejected. */
    async stop(): Promise<void> {
      stopping = true;
      await within(STOP_MS, Promise.all([...lanes.values()].map((lane) => lane.stop())), undefined);
    },
  };
}

type Lane = ReturnType<typeof createLane>;

function createLane(topic: string, kafka: Pick<KafkaClient, 'producer'>, logger: Logger) {
  let queue: Part[] = [];
  let since: number | undefined;
  let running: Promise<void> | undefined;
  let current: Promise<Producer> | undefined;

  /** Takes waiting messages, up to one call. Messages whose order is already settled (late) are dropped. */
  function take(): Part[] {
    const taken: Part[] = [];
    let bytes = 0;
    let i = 0;
    for (; i < queue.length; i++) {
      const part = queue[i]!;
      if (part.order.settled) {
        release(part);
        continue;
      }
      bytes += sizeOf(part.message);
      if (taken.length > 0 && bytes > MAX_CALL_BYTES) break;
      taken.push(part);
    }
    queue = queue.slice(i);
    return taken;
  }

  async function call(parts: readonly Part[]): Promise<void> {
    since = performance.now();
    const open = new Set(parts);
    let reason: NotAcknowledged['reason'] = 'too_large';
    let cause: unknown;
    try {
      current ??= connected(kafka);
      const producer = await current;
      const send: Send = (messages) =>
        producer.send({ topic, acks: -1, timeout: REPLICAS_MS, compression: CompressionTypes.LZ4, messages });
      cause = await deliver(send, parts, open);
    } catch (error) {
      const failed = current;
      current = undefined;
      void failed?.then((producer) => producer.disconnect()).catch(() => undefined);
      [reason, cause] = ['failed', error];
    }
    if (cause !== undefined)
      logger.warn({ topic, messages: open.size, reason: (cause as Error).message }, 'messages_not_acknowledged');
    for (const part of open) {
      part.order.settle(new NotAcknowledged(reason, { cause }));
      release(part);
    }
  }

  async function run(): Promise<void> {
    for (let parts = take(); parts.length > 0; parts = take()) await call(parts);
    since = undefined;
    running = undefined;
  }

  return {
    add(messages: readonly OutgoingMessage[], order: Order): void {
      for (const { key, value, timestamp } of messages)
        queue.push({ order, message: { key, value, timestamp: String(timestamp) } });
      running ??= run();
    },
    /** how long the call in flight has run, milliseconds */
    busyMs: (): number => (since === undefined ? 0 : performance.now() - since),
    async stop(): Promise<void> {
      for (const { order } of queue) order.settle(new NotAcknowledged('stopping'));
      await running;
      await current?.then((producer) => producer.disconnect()).catch(() => undefined);
    },
  };
}

type Send = (messages: Message[]) => Promise<RecordMetadata[]>;

/**
 * Takes the messages that Kafka acknowledges out of `open`. A large message must not fail other callers: if the topic
 * refuses one, each partition is sent again by itself, and then a refused partition in halves. A broker decides for
 * each partition, so it may have stored the others. It does not store them twice, because the same messages of one
 * partition take the same sequence numbers again. Returns the last refusal of a single message. Throws any other error.
 */
async function deliver(send: Send, parts: readonly Part[], open: Set<Part>): Promise<unknown> {
  try {
    const answers = await send(parts.map(({ message }) => message));
    const acknowledged = new Set<number | undefined>(answers.filter((a) => a.errorCode === 0).map((a) => a.partition));
    for (const part of parts) if (acknowledged.has(part.message.partition)) acknowledge(part, open);
    const missing = parts.filter((part) => open.has(part));
    if (missing.length === 0) return undefined;
    if (missing.length === parts.length)
      throw new Error(`no acknowledgement of partition ${missing[0]!.message.partition}`);
    // partitions without a leader, which was left out: by themselves they are retried for a moment
    // (kafkajs-internals.ts)
    return await deliver(send, missing, open);
  } catch (error) {
    for (const part of parts) if (isAcknowledged(part.message)) acknowledge(part, open);
    if (!isTooLarge(error)) throw error;
    const left = parts.filter((part) => open.has(part));
    if (left.length === 1) {
      left[0]!.order.settle(new NotAcknowledged('too_large', { cause: error }));
      return error;
    }
    // all of a partition, also what nobody waits for any more: other messages would take other sequence numbers
    const ofPartitions = [...Map.groupBy(left, ({ message }) => message.partition).values()];
    const isOnePartition = ofPartitions.length === 1;
    let refusal: unknown;
    for (const group of isOnePartition ? halves(left) : ofPartitions) {
      const some = isOnePartition ? group.filter(isWaitedFor) : group;
      if (some.length > 0) refusal = (await deliver(send, some, open)) ?? refusal;
    }
    return refusal;
  }
}

/** The larger messages come first: if the topic refuses one, what is left of its order is not stored. */
function halves(parts: readonly Part[]): Part[][] {
  const sorted = parts.filter(isWaitedFor).toSorted((a, b) => sizeOf(b.message) - sizeOf(a.message));
  const middle = Math.ceil(sorted.length / 2);
  return [sorted.slice(0, middle), sorted.slice(middle)];
}

function isWaitedFor({ order }: Part): boolean {
  return !order.settled;
}

function acknowledge(part: Part, open: Set<Part>): void {
  if (open.delete(part)) release(part);
}

async function connected(kafka: Pick<KafkaClient, 'producer'>): Promise<Producer> {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { retries: RETRIES } });
  try {
    await producer.connect();
    return producer;
  } catch (error) {
    await producer.disconnect().catch(() => undefined);
    throw error;
  }
}

function release({ order }: Part): void {
  if (--order.held > 0) return;
  order.settle();
  order.finish();
}

function sizeOf({ key, value }: Message): number {
  return Math.max(MIN_MESSAGE_BYTES, RECORD_BYTES + (key?.length ?? 0) + (value?.length ?? 0));
}

function isTooLarge(error: unknown): boolean {
  const { type, cause } = error as { readonly type?: unknown; readonly cause?: { readonly type?: unknown } };
  return [type, cause?.type].some((t) => t === 'MESSAGE_TOO_LARGE' || t === 'RECORD_LIST_TOO_LARGE');
}
