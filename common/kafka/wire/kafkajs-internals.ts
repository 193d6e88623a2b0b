import { createRequire } from 'node:module';
import { decodeFetchResponse, type FetchOptions } from './fetch-response.ts';

// Seven places replace internals of kafkajs 2.2.4 (pinned; no longer developed). Nothing in node_modules changes.

const require = createRequire(import.meta.url);

/** The members of kafkajs's RequestQueue (src/network/requestQueue/index.js) that this file uses. */
interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests: (this: RequestQueue) => void;
}

// Stops a timer of kafkajs that never ends. After every response RequestQueue.scheduleCheckPendingRequests sets a timer
// for `throttledUntil - Date.now()`, which is about minus 55 years unless the broker throttles. Node prints a
// TimeoutNegativeWarning and makes it 1 ms, and the callback schedules the next one. So each connection wakes a
// thousand times a second (three idle connections: 4 % of a core; without the timer 0.3 %). Only requests that wait for
// a throttled broker need a timer, and a request that begins to wait schedules its own (push, line 167).
const queues = (require('kafkajs/src/network/requestQueue/index.js') as { prototype: RequestQueue }).prototype;
const schedule = queues.scheduleCheckPendingRequests;
queues.scheduleCheckPendingRequests = function (this: RequestQueue): void {
  if (this.pending.length > 0) schedule.call(this);
};

/** The members of kafkajs's ConsumerGroup (src/consumer/consumerGroup.js) that this file uses. */
interface ConsumerGroup {
  lastRequest: number;
  heartbeat: (this: ConsumerGroup, options: { readonly interval: number }) => Promise<void>;
}

// Keeps a member alive whose wall clock was set back. kafkajs sends a heartbeat once Date.now() is an interval after
// the last one. So after a step back it sent none for as long as the step, and the broker dropped the member, which did
// not notice.
const groups = (require('kafkajs/src/consumer/consumerGroup.js') as { prototype: ConsumerGroup }).prototype;
const { heartbeat } = groups;
groups.heartbeat = async function (this: ConsumerGroup, options) {
  this.lastRequest = Math.min(this.lastRequest, Date.now());
  await heartbeat.call(this, options);
};

interface Metadata {
  readonly topicMetadata: readonly {
    readonly topic: string;
    readonly partitionMetadata: readonly { readonly leader: number }[];
  }[];
}

/** The members of kafkajs's BrokerPool (src/cluster/brokerPool.js) that this file uses. */
interface BrokerPool {
  readonly metadata: Metadata | null;
  metadataExpireAt: number | null;
  refreshMetadataIfNecessary: (this: BrokerPool, topics: readonly string[]) => Promise<void>;
}

/** Metadata is used for this long at most, milliseconds; kafkajs's admin would use it for five minutes. */
const METADATA_MAX_AGE_MS = 10_000;
/** The same while a partition has no leader. */
const LEADERLESS_MAX_AGE_MS = 1_000;

/** Stands for the leader of a partition that has none. */
const NO_LEADER = -1;

// Reads metadata again in time. kafkajs does so by the wall clock: after a step back it found no added partition for as
// long as the step. Questions of an admin to a broker that no longer leads a partition failed for as long.
const pools = (require('kafkajs/src/cluster/brokerPool.js') as { prototype: BrokerPool }).prototype;
const { refreshMetadataIfNecessary } = pools;
pools.refreshMetadataIfNecessary = async function (this: BrokerPool, topics) {
  const isLeaderless = ({ leader }: { readonly leader: number }): boolean => leader === NO_LEADER;
  const waits = this.metadata?.topicMetadata.some((of) => of.partitionMetadata.some(isLeaderless)) === true;
  const latest = Date.now() + (waits ? LEADERLESS_MAX_AGE_MS : METADATA_MAX_AGE_MS);
  this.metadataExpireAt &&= Math.min(this.metadataExpireAt, latest);
  await refreshMetadataIfNecessary.call(this, topics);
};

/** kafkajs's definition of the Metadata request (src/protocol/requests/metadata/index.js), as FetchDefinition below. */
interface MetadataDefinition {
  protocol: (version: object) => (parameters: object) => { readonly response: { parse: (data: Metadata) => unknown } };
}

// Keeps a partition without a leader from stopping all topics. For one, kafkajs throws away the metadata of all, so the
// consumer crashes again and again. Nothing is fetched of a partition whose leader is -1.
const metadata = require('kafkajs/src/protocol/requests/metadata/index.js') as MetadataDefinition;
const { protocol: metadataProtocol } = metadata;
metadata.protocol = (version) => (parameters) => {
  const { response, ...request } = metadataProtocol(version)(parameters);
  const parse = (data: Metadata): unknown =>
    response.parse({
      ...data,
      topicMetadata: data.topicMetadata.map((of) => ({
        ...of,
        partitionMetadata: of.partitionMetadata.map((partition) => ({ ...partition, partitionErrorCode: 0 })),
      })),
    });
  return { ...request, response: { ...response, parse } };
};

interface TopicPartitions {
  readonly topic: string;
  readonly partitions: readonly { readonly partition: number }[];
}

/** The members of kafkajs's Cluster (src/cluster/index.js) that this file uses. */
interface Cluster {
  findLeaderForPartitions: (
    topic: string,
    partitions: readonly unknown[],
  ) => Readonly<Record<number, readonly number[]>>;
  fetchTopicsOffset: (this: Cluster, topics: readonly TopicPartitions[]) => Promise<readonly TopicPartitions[]>;
}

// Leaves partitions without a leader out of questions for offsets, and out of calls that go to others too: their broker
// -1 is none, so the others would have no answer either. Callers expect every topic. A call that goes to nothing else
// fails as kafkajs lets it fail, after retries.
const clusters = (require('kafkajs/src/cluster/index.js') as { prototype: Cluster }).prototype;
const { findLeaderForPartitions, fetchTopicsOffset } = clusters;
clusters.findLeaderForPartitions = function (this: Cluster, topic, partitions) {
  const leaders = findLeaderForPartitions.call(this, topic, partitions);
  const { [NO_LEADER]: _leaderless, ...led } = leaders;
  return Object.keys(led).length === 0 ? leaders : led;
};
clusters.fetchTopicsOffset = async function (this: Cluster, topics) {
  const isLed = (topic: string, partition: number): boolean =>
    findLeaderForPartitions.call(this, topic, [partition])[NO_LEADER] === undefined;
  const led = topics.map((of) => ({
    ...of,
    partitions: of.partitions.filter(({ partition }) => isLed(of.topic, partition)),
  }));
  const found = await fetchTopicsOffset.call(this, led);
  return topics.map(({ topic }) => found.find((of) => of.topic === topic) ?? { topic, partitions: [] });
};

/** The members of kafkajs's Broker (src/broker/index.js) that this file uses. */
interface Broker {
  produce: (this: Broker, request: ProduceRequest) => Promise<unknown>;
}

export interface ProduceRequest {
  readonly producerId: unknown;
  readonly topicData: readonly { readonly partitions: readonly { readonly messages: readonly object[] }[] }[];
}

/** of a producer that is not idempotent (src/producer/eosManager/index.js:10) */
const NO_PRODUCER_ID = -1;

/** messages that a broker acknowledged to an idempotent producer */
const acknowledged = new WeakSet<object>();

/** True also if the call of this message failed because of another broker. */
export function isAcknowledged(message: object): boolean {
  return acknowledged.has(message);
}

// Keeps a call of an idempotent producer from storing messages twice. A call sends a request to each broker and repeats
// itself when the first one fails (src/producer/sendMessages.js:65, 133). The repetition takes the next sequence
// numbers, so brokers take it for new messages. Two cases:
// - Some brokers have not answered yet, and are asked again. So a refusal waits until the other requests of its call
//   have ended. A producer makes one call at a time (acknowledged-producer.ts), so a call is known by its producer.
// - A partition that was acknowledged has moved to a broker that is asked again. Then the call fails.
const brokers = (require('kafkajs/src/broker/index.js') as { prototype: Broker }).prototype;
const { produce } = brokers;
const running = new Map<Promise<unknown>, unknown>();
brokers.produce = async function (this: Broker, request) {
  if (request.producerId === NO_PRODUCER_ID) return await produce.call(this, request);
  const messages = request.topicData.flatMap(({ partitions }) => partitions.flatMap((of) => of.messages));
  if (messages.some(isAcknowledged))
    throw new Error('the leader of an acknowledged partition has moved to a broker that is asked again');
  const own = produce.call(this, request);
  running.set(own, request.producerId);
  try {
    const answer = await own;
    for (const message of messages) acknowledged.add(message);
    return answer;
  } catch (error) {
    await Promise.allSettled([...running.keys()].filter((other) => running.get(other) === request.producerId));
    throw error;
  } finally {
    running.delete(own);
  }
};

/**
 * kafkajs's definition of the Fetch request (src/protocol/requests/fetch/index.js): for a version and the parameters of
 * a request, how it is written and how its response is read.
 */
interface FetchDefinition {
  protocol: (version: {
    readonly version: number;
  }) => (parameters: FetchParameters) => { readonly response: { readonly decode: (raw: Buffer) => Promise<unknown> } };
}

interface FetchParameters {
  readonly topics: readonly {
    readonly topic: string;
    readonly partitions: readonly { readonly partition: number; readonly fetchOffset: string }[];
  }[];
}

/** Fetch version 11 is the newest in kafkajs. Kafka has it since 2.3. */
const VERSION = 11;

type Options = Omit<FetchOptions, 'fetchOffset'>;

let fetchOptions: Options | undefined;

/** One set of options per process, because the definition of the Fetch request is one object. */
export function readFetchesWith(options: Options): void {
  fetchOptions = options;
}

// Makes our own reader read fetched records; record-batch.ts says why.
const definition = require('kafkajs/src/protocol/requests/fetch/index.js') as FetchDefinition;
const original = definition.protocol;
definition.protocol =
  ({ version }) =>
  (parameters) => {
    const protocol = original({ version })(parameters);
    const options = fetchOptions;
    if (options === undefined) return protocol;
    if (version !== VERSION) throw new Error('the broker is older than Kafka 2.3');
    const fetchOffset = (topic: string, partition: number): number => {
      const ofTopic = parameters.topics.find((of) => of.topic === topic);
      return Number(ofTopic?.partitions.find((of) => of.partition === partition)?.fetchOffset ?? 0);
    };
    const decode = (raw: Buffer): Promise<unknown> => decodeFetchResponse(raw, { ...options, fetchOffset });
    return { ...protocol, response: { ...protocol.response, decode } };
  };
