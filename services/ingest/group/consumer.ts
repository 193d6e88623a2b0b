import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../../common/errors.ts';
import type { Admin, Consumer, KafkaClient } from '../../../common/kafka/client.ts';
import { keyOf } from '../../../common/kafka/partition.ts';
import { within } from '../../../common/lifecycle/within.ts';
import { Assignment, type AssignmentOptions } from './assignment.ts';
import { createCommitter, type Committer } from './committer.ts';
import { createPermits, type PermitLimits } from './permits.ts';
import { createMembership } from './membership.ts';

/**
 * The group notices after this long that a process has died. Ten heartbeats fit into it, sent by a timer of their own.
 */
const SESSION_TIMEOUT_MS = 10_000;
/**
 * A broker answers a fetch when this much waits in all partitions together, or after FETCH_WAIT_MS: at low traffic few,
 * fuller fetches.
 */
const FETCH_MIN_BYTES = 64 * 1024;
const FETCH_WAIT_MS = 250;
/** Shorter while a partition waits to be fetched: it waits until the running fetch of the others returns. */
const FETCH_WAIT_BESIDE_MS = 20;
/** Compressed bytes; what a response may hold unfolded is bounded apart (KAFKA_MAX_DECOMPRESSED_BYTES). */
const FETCH_MAX_BYTES = 4 * 1024 * 1024;
const FETCH_MAX_BYTES_PER_PARTITION = 2 * 1024 * 1024;

/** Partitions that were added are found within this time. */
const METADATA_MAX_AGE_MS = 10_000;

/**
 * A client that crashed starts again after this long, milliseconds. kafkajs reads `retryTime` of the error after the
 * event's listeners ran. By default it would crash, and log it, ten times a second while a topic is missing.
 */
const CRASH_RETRY_MS = 1_000;

const COORDINATOR_DEADLINE_MS = 30_000;
const COORDINATOR_RETRY_MS = 200;

/** The lag of partitions that are not fetched is read this often, milliseconds. */
const LAG_EVERY_MS = 30_000;

/** Of the 10 s of a shutdown: to finish the batches in flight, then to leave the group. */
const DRAIN_MS = 5_500;
const LEAVE_MS = 2_500;

export interface ConsumerOptions extends AssignmentOptions {
  readonly kafka: KafkaClient;
  readonly topics: readonly string[];
  /** of batches that are written at a time, on each shard */
  readonly permits: PermitLimits;
  readonly sessionTimeoutMs?: number | undefined;
}

export type RunningConsumer = Awaited<ReturnType<typeof startConsumer>>;

/**
 * Fetches with kafkajs and hands every partition's records to its lane. Nothing here decides what is committed: lanes
 * do.
 */
export async function startConsumer(options: ConsumerOptions) {
  const { kafka, groupId, topics, logger, metrics, sessionTimeoutMs = SESSION_TIMEOUT_MS } = options;
  const { promise: failed, reject: fail } = Promise.withResolvers<never>();
  failed.catch(() => {});
  const membership = createMembership(() => performance.now(), sessionTimeoutMs);
  const consumer = createConsumer(kafka, groupId, sessionTimeoutMs, () =>
    assignment.hasWaiting() ? FETCH_WAIT_BESIDE_MS : FETCH_WAIT_MS,
  );
  const admin = kafka.admin();
  const committer: Committer = createCommitter(membership, () => assignment.isDraining, logger, metrics);
  const permit = createPermits(options.permits);
  const assignment = new Assignment(options, { consumer, admin, membership, committer, permit, fail });

  /** how long the broker took for the last heartbeat, milliseconds; kafkajs sends one at a time */
  let heartbeatTookMs = 0;
  consumer.on('consumer.network.request', ({ payload }) => {
    // some rejoins emit no `rebalancing` (common/kafka/consumer-facts.md)
    if (payload.apiName === 'JoinGroup') assignment.endAll();
    // by the wall clock, which may be set back
    if (payload.apiName === 'Heartbeat') heartbeatTookMs = Math.max(0, payload.duration);
  });
  consumer.on('consumer.rebalancing', () => assignment.endAll());
  consumer.on('consumer.heartbeat', () => membership.heartbeat(heartbeatTookMs));
  // After `consumer.stop` the client closes its connections, and tells of a crash only after that. A silent connection
  // closes only when no request waits on it, so nothing may be sent meanwhile.
  const onLeft = (): void => {
    assignment.endAll();
    committer.crashed();
  };
  consumer.on('consumer.stop', onLeft);
  consumer.on('consumer.crash', ({ payload }) => {
    onLeft();
    logger.error({ err: payload.error, restart: payload.restart }, 'consumer_crashed');
    (payload.error as Error & { retryTime?: number }).retryTime ||= CRASH_RETRY_MS;
    if (!payload.restart) fail(payload.error);
  });
  consumer.on('consumer.group_join', ({ payload }) => {
    assignment.endAll();
    const assigned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map((partition) => ({ topic, partition })),
    );
    membership.won(assigned.map(({ topic, partition }) => keyOf(topic, partition)));
    logger.info({ group: groupId, partitions: assigned.length }, 'group_joined');
    if (!assignment.isDraining) for (const { topic, partition } of assigned) assignment.take(topic, partition);
  });

  await admin.connect();
  await coordinatorReady(admin, groupId, topics);
  await consumer.connect();
  await consumer.subscribe({ topics: [...topics], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async (payload) => {
      committer.fetched(payload);
      assignment.receive(payload);
    },
  });
  const heartbeats = setInterval(() => committer.heartbeat(), sessionTimeoutMs / 10);
  const turns = setInterval(() => assignment.arrange(), 1_000);
  const lags = measureLags(assignment);

  return {
    isJoined: () => membership.joined,
    // `<topic> <partition>` of lanes: see LaneState and Assignment
    taking: () => assignment.inState('taking'),
    untaken: () => assignment.untaken(),
    paused: () => assignment.inState('paused'),
    waiting: () => assignment.inState('waiting'),
    stuck: () => assignment.stuck(),
    /** rejects when the consumer cannot go on */
    failed,
    /** Finishes the batches in flight, commits their ends, leaves the group; at most 8 s. */
    async stop(): Promise<void> {
      if ((await within(DRAIN_MS, assignment.drain(), 'late')) === 'late')
        logger.warn({ partitions: assignment.unfinished() }, 'batches_abandoned');
      assignment.endAll();
      clearInterval(heartbeats);
      clearInterval(turns);
      clearInterval(lags);
      const left = consumer
        .disconnect()
        .then(() => admin.disconnect())
        .catch(() => {});
      if ((await within(LEAVE_MS, left, 'late')) === 'late') logger.warn({}, 'group_not_left_in_time');
    },
  };
}

function measureLags(assignment: Assignment): NodeJS.Timeout {
  let isMeasuring = false;
  return setInterval(() => {
    if (isMeasuring) return;
    isMeasuring = true;
    void assignment.measureUnfetched().finally(() => (isMeasuring = false));
  }, LAG_EVERY_MS);
}

function createConsumer(
  kafka: KafkaClient,
  groupId: string,
  sessionTimeoutMs: number,
  fetchWaitMs: () => number,
): Consumer {
  return kafka.consumer({
    groupId,
    sessionTimeout: sessionTimeoutMs,
    rebalanceTimeout: 2 * sessionTimeoutMs,
    heartbeatInterval: sessionTimeoutMs / 10,
    minBytes: FETCH_MIN_BYTES,
    maxBytes: FETCH_MAX_BYTES,
    maxBytesPerPartition: FETCH_MAX_BYTES_PER_PARTITION,
    maxWaitTimeInMs: fetchWaitMs,
    allowAutoTopicCreation: false,
    metadataMaxAge: METADATA_MAX_AGE_MS,
    readUncommitted: false,
  });
}

/**
 * A broker that has just started loads its groups. The client takes that for a crash, so it is waited for here. Throws
 * StartError if the group cannot be read.
 */
async function coordinatorReady(admin: Admin, groupId: string, topics: readonly string[]): Promise<void> {
  const until = performance.now() + COORDINATOR_DEADLINE_MS;
  for (;;) {
    try {
      await admin.fetchOffsets({ groupId, topics: [...topics] });
      return;
    } catch (error) {
      if (performance.now() > until)
        throw new StartError(
          `Kafka answers, but its group ${groupId} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
          { cause: error },
        );
      await sleep(COORDINATOR_RETRY_MS);
    }
  }
}
