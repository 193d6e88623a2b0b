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

/** The work of one send(): as many pieces as it needs calls. */
interface Order {
  /** pieces in memory: a piece leaves it acknowledged, or after its order was settled with an error */
  held: number;
  settled: boolean;
  settle: (error?: NotAcknowledged) => void;
  finish: () => void;
}
interface Piece {
  readonly order: Order;
  readonly messages: Message[];
  bytes: number;
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
        held: 0,
        settled: false,
        finish,
        settle: (error) => {
          order.settled = true;
          clearTimeout(late);
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      const pieces = split(messages, order);
      order.held = pieces.length;
      if (pieces.length === 0) order.settle();
      else if (stopping) order.settle(new NotAcknowledged('stopping'));
      // a new caller would only wait behind a call that hangs
      else if (lane.busyMs() > acknowledgeMs) order.settle(new NotAcknowledged('late'));
      if (order.settled) finish();
      else lane.add(pieces);
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
  let queue: Piece[] = [];
  let since: number | undefined;
  let running: Promise<void> | undefined;
  let current: Promise<Producer> | undefined;

  /** Takes waiting pieces, up to one call. Pieces whose order is already settled (late) are dropped. */
  function take(): Piece[] {
    const taken: Piece[] = [];
    let bytes = 0;
    let i = 0;
    for (; i < queue.length; i++) {
      const piece = queue[i]!;
      if (piece.order.settled) done(piece);
      else if (taken.length > 0 && bytes + piece.bytes > MAX_CALL_BYTES) break;
      else {
        taken.push(piece);
        bytes += piece.bytes;
      }
    }
    queue = queue.slice(i);
    return taken;
  }

  async function call(pieces: readonly Piece[]): Promise<void> {
    since = performance.now();
    const delivered = new Set<Message>();
    let waiting = pieces;
    const isDelivered = (piece: Piece): boolean => piece.messages.every((message) => delivered.has(message));
    let reason: NotAcknowledged['reason'] = 'too_large';
    let cause: unknown;
    try {
      current ??= connected(kafka);
      const producer = await current;
      const send: Send = (messages) => {
        // a caller does not wait for the parts of others
        waiting.filter(isDelivered).forEach(done);
        waiting = waiting.filter((piece) => !isDelivered(piece));
        return producer.send({ topic, acks: -1, timeout: REPLICAS_MS, compression: CompressionTypes.LZ4, messages });
      };
      cause = await deliver(send, pieces, delivered);
    } catch (error) {
      const failed = current;
      current = undefined;
      void failed?.then((producer) => producer.disconnect()).catch(() => undefined);
      [reason, cause] = ['failed', error];
    }
    if (cause !== undefined)
      logger.warn(
        {
          topic,
          messages: pieces.reduce((sum, p) => sum + p.messages.length, -delivered.size),
          reason: (cause as Error).message,
        },
        'messages_not_acknowledged',
      );
    for (const piece of waiting) {
      if (!isDelivered(piece)) piece.order.settle(new NotAcknowledged(reason, { cause }));
      done(piece);
    }
  }

  async function run(): Promise<void> {
    for (let pieces = take(); pieces.length > 0; pieces = take()) await call(pieces);
    since = undefined;
    running = undefined;
  }

  return {
    add(pieces: readonly Piece[]): void {
      queue.push(...pieces);
      running ??= run();
    },
    /** how long the call in flight has run, milliseconds */
    busyMs: (): number => (since === undefined ? 0 : performance.now() - since),
    async stop(): Promise<void> {
      for (const piece of queue) piece.order.settle(new NotAcknowledged('stopping'));
      await running;
      await current?.then((producer) => producer.disconnect()).catch(() => undefined);
    },
  };
}

type Send = (messages: Message[]) => Promise<RecordMetadata[]>;
/** Messages of a piece. */
type Part = Pick<Piece, 'order' | 'messages'>;

/**
 * Adds the messages that Kafka acknowledges to `delivered`. A large message must not fail other callers: if the topic
 * refuses one, each partition is sent again by itself, and then the pieces of a refused partition in halves. A broker
 * decides for each partition, so it may have stored the others. It does not store them twice, because the same messages
 * of one partition take the same sequence numbers again. Returns the last such refusal. Throws any other error.
 */
async function deliver(send: Send, pieces: readonly Part[], delivered: Set<Message>): Promise<unknown> {
  const messages = pieces.flatMap((piece) => piece.messages);
  try {
    const answers = await send(messages);
    const acknowledged = new Set(answers.filter((a) => a.errorCode === 0).map((a) => a.partition));
    const missing = messages.find((m) => m.partition === undefined || !acknowledged.has(m.partition));
    if (missing !== undefined) throw new Error(`no acknowledgement of partition ${missing.partition}`);
    for (const message of messages) delivered.add(message);
    return undefined;
  } catch (error) {
    if (!isTooLarge(error)) throw error;
    for (const message of messages) if (isAcknowledged(message)) delivered.add(message);
    const left = pieces
      .map(({ order, messages: of }) => ({ order, messages: of.filter((message) => !delivered.has(message)) }))
      .filter((piece) => piece.messages.length > 0);
    const partitions = new Set(left.flatMap((piece) => piece.messages.map((message) => message.partition)));
    let parts: Part[][];
    if (partitions.size > 1) {
      // all of a partition, also what nobody waits for any more: other messages would take other sequence numbers
      parts = [...partitions].map((of) =>
        left.map(({ order, messages: all }) => ({ order, messages: all.filter((m) => m.partition === of) })),
      );
    } else {
      const waiting = left.filter(({ order }) => !order.settled);
      if (waiting.length === 1) return await deliverOne(send, waiting[0]!, delivered, error);
      const middle = Math.ceil(waiting.length / 2);
      parts = [waiting.slice(0, middle), waiting.slice(middle)].filter((half) => half.length > 0);
    }
    let refusal: unknown;
    for (const part of parts) refusal = (await deliver(send, part, delivered)) ?? refusal;
    return refusal;
  }
}

/**
 * Sends the messages of one piece and one partition again, which the topic refused together. If it takes the largest
 * alone, the rest goes in halves. If not, none of them is stored.
 */
async function deliverOne(
  send: Send,
  { order, messages }: Part,
  delivered: Set<Message>,
  refusal: unknown,
): Promise<unknown> {
  if (messages.length === 1) {
    order.settle(new NotAcknowledged('too_large', { cause: refusal }));
    return refusal;
  }
  const largest = messages.reduce((most, message) => (sizeOf(message) > sizeOf(most) ? message : most));
  const rest = messages.filter((message) => message !== largest);
  const middle = Math.ceil(rest.length / 2);
  for (const part of [[largest], rest.slice(0, middle), rest.slice(middle)]) {
    const refused = part.length === 0 ? undefined : await deliver(send, [{ order, messages: part }], delivered);
    if (refused !== undefined) return refused;
  }
  return undefined;
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

function done({ order }: Piece): void {
  if (--order.held > 0) return;
  order.settle();
  order.finish();
}

function sizeOf({ key, value }: Message): number {
  return Math.max(MIN_MESSAGE_BYTES, RECORD_BYTES + (key?.length ?? 0) + (value?.length ?? 0));
}

/** Splits the messages of an order into pieces of at most one call. */
function split(messages: readonly OutgoingMessage[], order: Order): Piece[] {
  const pieces: Piece[] = [];
  for (const { key, value, timestamp } of messages) {
    const message: Message = { key, value, timestamp: String(timestamp) };
    const size = sizeOf(message);
    let piece = pieces.at(-1);
    if (piece === undefined || piece.bytes + size > MAX_CALL_BYTES)
      pieces.push((piece = { order, messages: [], bytes: 0 }));
    piece.messages.push(message);
    piece.bytes += size;
  }
  return pieces;
}

function isTooLarge(error: unknown): boolean {
  const { type, cause } = error as { readonly type?: unknown; readonly cause?: { readonly type?: unknown } };
  return [type, cause?.type].some((t) => t === 'MESSAGE_TOO_LARGE' || t === 'RECORD_LIST_TOO_LARGE');
}
