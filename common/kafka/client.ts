import type { ConnectionOptions } from 'node:tls';
import kafkajs, {
  type Admin,
  type Batch,
  type Consumer,
  type ConsumerConfig,
  type ICustomPartitioner,
  type Producer,
  type ProducerConfig,
  type RetryOptions,
  type SASLOptions,
} from 'kafkajs';
import { compressFrame } from 'lz4-napi';
import type { Logger } from '../logger.ts';
import { clientLogLine } from './client-log.ts';
import type { FetchedBlock, Place } from './wire/fetch-response.ts';
import { readFetchesWith } from './wire/kafkajs-internals.ts';
import { partitionOf } from './partitioner.ts';

export type { FetchedRecord } from './wire/record-batch.ts';

export type {
  Admin,
  Batch,
  Consumer,
  EachBatchPayload,
  Message,
  OffsetsByTopicPartition,
  Producer,
  ProducerRecord,
  RecordMetadata,
} from 'kafkajs';

/** `compression` of a produced batch */
export const { CompressionTypes } = kafkajs;

// kafkajs has no LZ4. To compress is enough: wire/fetch-response.ts decompresses fetched records.
kafkajs.CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: ({ buffer }: { readonly buffer: Buffer }) => compressFrame(buffer),
});

/** Returns the records of a batch that a consumer received: one block (wire/fetch-response.ts). */
export function fetchedRecords(batch: Batch) {
  const { records, stableEnd, free } = batch.messages[0] as unknown as FetchedBlock;
  return {
    /**
     * the offset that they were fetched from; the request may be older than the last rejoin; kafkajs's types lack the
     * field (src/consumer/batch.js:12)
     */
    at: Number((batch as Batch & { readonly fetchedOffset: string }).fetchedOffset),
    records,
    /** the last offset that the records cover; some offsets may have no record */
    to: Number(batch.lastOffset()),
    /** one after the last offset that can be read now; what open transactions wrote comes after it */
    end: stableEnd,
    free,
  };
}

interface KafkaOptions {
  /** host:port each; one reachable broker is enough */
  readonly brokers: readonly string[];
  /** shown in the broker's logs and metrics */
  readonly clientId: string;
  readonly logger: Logger;
  /**
   * How much one fetch may hold decompressed, bytes (KAFKA_MAX_DECOMPRESSED_BYTES). It is never less than the largest
   * MAX_EVENT_BYTES. The rest is fetched again. Of a larger record only the first maxDecompressedBytes + 1 bytes are
   * kept. One value per process.
   */
  readonly maxDecompressedBytes: number;
  readonly ssl?: boolean | ConnectionOptions;
  readonly sasl?: Sasl;
}

type Sasl = Extract<SASLOptions, { username: string }>;

interface ConsumerOptions extends Omit<ConsumerConfig, 'maxWaitTimeInMs' | 'retry'> {
  /** how long a fetch may wait at the broker, milliseconds; called before each fetch */
  readonly maxWaitTimeInMs?: () => number;
}

/** Creates producers, consumers and admins. It opens no connection itself. */
export type KafkaClient = ReturnType<typeof createKafka>;

/**
 * Always set, because kafkajs has other defaults if NODE_ENV is `test`, and the consumer's default of 5 overrides the
 * client's.
 * The waits are 0.1, 0.2, 0.4 ... 5 s: an operation fails after about 16 s.
 */
export const retry: Readonly<Required<Omit<RetryOptions, 'restartOnFailure'>>> = {
  initialRetryTime: 100,
  multiplier: 2,
  factor: 0.2,
  maxRetryTime: 5_000,
  retries: 8,
};

/** A remote broker with TLS may need longer than kafkajs's 1 s, milliseconds. */
const CONNECTION_TIMEOUT_MS = 5_000;

/**
 * Pins each message to its partition. Otherwise a retry after partitions were added could store a message again in
 * another partition, and nobody could tell which partitions must acknowledge.
 */
const pinningPartitioner: ICustomPartitioner = () => {
  const chooseWithoutKey = kafkajs.Partitioners.DefaultPartitioner();
  return (args) =>
    (args.message.partition ??=
      typeof args.message.key === 'string' || Buffer.isBuffer(args.message.key)
        ? partitionOf(Buffer.from(args.message.key), args.partitionMetadata.length)
        : chooseWithoutKey(args));
};

const REPORT_EVERY_MS = 60_000;

/** Reports an unreadable place once a minute, because it is fetched again and again. */
function unreadableReporter(logger: Logger): (place: Place, error: Error) => void {
  const reported = new Map<string, number>();
  return (place, error) => {
    const key = `${place.topic}:${place.partition}:${place.offset}`;
    const now = performance.now();
    if (now - (reported.get(key) ?? -REPORT_EVERY_MS) < REPORT_EVERY_MS) return;
    reported.set(key, now);
    logger.error({ ...place, err: error }, 'record_batch_unreadable');
  };
}

/** Creates a Kafka client. Nothing else does. */
export function createKafka({ brokers, clientId, logger, maxDecompressedBytes, ssl = false, sasl }: KafkaOptions) {
  readFetchesWith({ maxBytes: maxDecompressedBytes, onUnreadable: unreadableReporter(logger) });
  const kafka = new kafkajs.Kafka({
    brokers: [...brokers],
    clientId,
    ssl,
    ...(sasl !== undefined && { sasl }),
    connectionTimeout: CONNECTION_TIMEOUT_MS,
    retry,
    logLevel: kafkajs.logLevel.INFO,
    logCreator: () => (entry) => {
      const { level, fields } = clientLogLine(entry);
      logger[level](fields, 'kafka_client');
    },
  });
  return {
    brokers,
    ssl,
    sasl,
    admin: (): Admin => kafka.admin(),
    /** kafkajs's defaults except for `retry`. consumer-facts.md beside this file describes how its consumer behaves. */
    consumer: ({ maxWaitTimeInMs: wait, ...config }: ConsumerOptions): Consumer =>
      kafka.consumer({
        ...config,
        retry,
        // kafkajs keeps what it is given, and makes it a number when it fetches (src/consumer/consumerGroup.js:491,
        // 498)
        ...(wait !== undefined && { maxWaitTimeInMs: { valueOf: wait } as unknown as number }),
      }),
    /**
     * Chooses partitions by murmur2 of the key, as Kafka's Java producer does. It writes the choice into the message,
     * so a retry goes to the same partition.
     */
    producer: (config?: Omit<ProducerConfig, 'createPartitioner'>): Producer =>
      kafka.producer({ allowAutoTopicCreation: false, ...config, createPartitioner: pinningPartitioner }),
  };
}
