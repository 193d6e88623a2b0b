import type { Clock } from '../../common/clock.ts';
import { StartError } from '../../common/errors.ts';
import {
  fetchedOffset,
  fetchedRecords,
  type Consumer,
  type EachBatchPayload,
  type KafkaClient,
  type OffsetsByTopicPartition,
} from '../../common/kafka/client.ts';
import { consumesPartition } from '../../common/kafka/topics.ts';
import type { Logger } from '../../common/logger.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { createLane } from './delivery/lane.ts';
import { createPermits, type PermitLimits } from './delivery/permits.ts';
import type { BadShare, Lane, LaneEvent, LaneState, Ports, Service, Store } from './delivery/ports.ts';
import { lingerMs } from './linger.ts';
import { commitInEpoch, createMembership } from './membership.ts';
import type { IngestMetrics } from './metrics.ts';

/**
 * A process that died is missed by its group after this long. Ten heartbeats fit into it, sent by a timer of their own.
 */
const SESSION_TIMEOUT_MS = 10_000;
/**
 * A broker answers a fetch when this much waits in all partitions together, or after FETCH_WAIT_MS: at low traffic few,
 * fuller fetches.
 */
const FETCH_MIN_BYTES = 64 * 1024;
const FETCH_WAIT_MS = 250;
/** Compressed bytes; what a response may hold unfolded is bounded apart (KAFKA_MAX_DECOMPRESSED_BYTES). */
const FETCH_MAX_BYTES = 4 * 1024 * 1024;
const FETCH_MAX_BYTES_PER_PARTITION = 1024 * 1024;

/** Partitions that were added are found within this time. */
const METADATA_MAX_AGE_MS = 10_000;

/** Records smaller than this on average end a batch by their number. */
const BATCH_BYTES_PER_RECORD = 1024;

const ACTIVE_FOR_MS = 10_000;

const COORDINATOR_DEADLINE_MS = 30_000;
const COMMIT_RETRY_MS = 200;

/** Of the 10 s of a shutdown: to finish the batch under way, then to leave the group. */
const DRAIN_MS = 5_500;
const LEAVE_MS = 2_500;

export interface ConsumerOptions {
  readonly kafka: KafkaClient;
  readonly groupId: string;
  readonly topics: readonly string[];
  /**
   * One batch is at most this much. An insert costs 40 to 70 ms of CPU before its first row, and a part in every table;
   * memory grows with it (bench/README.md has both).
   * Processes of one group may differ: an announced batch is formed as announced.
   */
  readonly batchMaxBytes: number;
  /** of batches that are written at a time */
  readonly permits: PermitLimits;
  readonly createStore: (topic: string, partition: number) => Store;
  readonly createBadShare: (topic: string, partition: number) => BadShare;
  readonly logger: Logger;
  readonly metrics: IngestMetrics;
  readonly clock: Clock;
  readonly sessionTimeoutMs?: number | undefined;
}

export interface RunningConsumer {
  /** `<topic> <partition>` of what is paused for its share of bad messages */
  paused(): readonly string[];
  /** `<topic> <partition>` of what members of another group still consume */
  waiting(): readonly string[];
  isJoined(): boolean;
  /** Finishes the batches under way, commits their ends, leaves the group; at most 8 s. */
  stop(): Promise<void>;
  /** rejects when the consumer cannot go on */
  readonly failed: Promise<never>;
}

interface Taken {
  readonly topic: string;
  readonly partition: number;
  readonly lane: Lane;
  readonly ended: Promise<void>;
  wake(): void;
  activeAt: number;
  /** one after the partition's last offset in Kafka, as the last fetch said */
  end: number;
  paused: boolean;
}

/**
 * Fetches with kafkajs and hands every partition's records to its lane. Nothing here decides what is committed: lanes
 * do, through `commit`.
 */
export async function startConsumer({
  kafka,
  groupId,
  topics,
  batchMaxBytes,
  permits,
  createStore,
  createBadShare,
  logger,
  metrics,
  clock,
  sessionTimeoutMs = SESSION_TIMEOUT_MS,
}: ConsumerOptions): Promise<RunningConsumer> {
  /**
   * No partition is fetched while all together hold this much, waiting or being written, bytes. Up to the double of it,
   * what holds nothing goes on: one partition
   * whose insert hangs keeps at most a batch, another that waits and a fetch, and the others shall not wait for it.
   */
  const totalMaxBytes = 2 * batchMaxBytes;
  const membership = createMembership(() => performance.now(), sessionTimeoutMs);
  const consumer: Consumer = kafka.consumer({
    groupId,
    sessionTimeout: sessionTimeoutMs,
    rebalanceTimeout: 2 * sessionTimeoutMs,
    heartbeatInterval: sessionTimeoutMs / 10,
    minBytes: FETCH_MIN_BYTES,
    maxBytes: FETCH_MAX_BYTES,
    maxBytesPerPartition: FETCH_MAX_BYTES_PER_PARTITION,
    maxWaitTimeInMs: FETCH_WAIT_MS,
    allowAutoTopicCreation: false,
    metadataMaxAge: METADATA_MAX_AGE_MS,
    readUncommitted: false,
  });
  const admin = kafka.admin();
  const lanes = new Map<string, Taken>();
  const permit = createPermits(permits);
  let draining = false;
  let commitNow: ((offsets: OffsetsByTopicPartition) => Promise<void>) | undefined;
  let heartbeatNow: (() => Promise<void>) | undefined;
  let fail: (error: unknown) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});

  consumer.on('consumer.network.request', ({ payload }) => {
    if (payload.apiName === 'JoinGroup') endLanes();
  });
  consumer.on('consumer.rebalancing', () => endLanes());
  // offsets without a record are handed to nobody: the client's position moves over them by itself
  consumer.on('consumer.start_batch_process', ({ payload: { topic, partition, batchSize, lastOffset } }) => {
    if (batchSize === 0) lanes.get(keyOf(topic, partition))?.lane.moved(Number(lastOffset));
  });
  consumer.on('consumer.heartbeat', () => membership.heartbeat());
  consumer.on('consumer.crash', ({ payload }) => {
    endLanes();
    commitNow = undefined;
    logger.error({ err: payload.error, restart: payload.restart }, 'consumer_crashed');
    if (!payload.restart) fail(payload.error);
  });
  consumer.on('consumer.group_join', ({ payload }) => {
    endLanes();
    const assigned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
      partitions.map((partition) => ({ topic, partition })),
    );
    membership.won(assigned.map(({ topic, partition }) => keyOf(topic, partition)));
    logger.info({ group: groupId, partitions: assigned.length }, 'group_joined');
    if (!draining) for (const { topic, partition } of assigned) takePartition(topic, partition);
  });

  await admin.connect();
  await coordinatorReady();
  await consumer.connect();
  await consumer.subscribe({ topics: [...topics], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async (payload) => receive(payload),
  });

  const heartbeats = setInterval(() => void heartbeatNow?.().catch(() => {}), sessionTimeoutMs / 10);

  return {
    isJoined: () => membership.joined,
    paused: () => inState('paused'),
    waiting: () => inState('waiting'),
    stop,
    failed,
  };

  /** A broker that has just started loads its groups; the client takes that for a crash, so it is waited for here. */
  async function coordinatorReady(): Promise<void> {
    const until = clock() + COORDINATOR_DEADLINE_MS;
    for (;;) {
      try {
        await admin.fetchOffsets({ groupId, topics: [...topics] });
        return;
      } catch (error) {
        if (clock() > until)
          throw new StartError(
            `Kafka answers, but its group ${groupId} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
            { cause: error },
          );
        await new Promise((resolve) => {
          setTimeout(resolve, 200);
        });
      }
    }
  }

  function endLanes(): void {
    membership.lost();
    for (const taken of lanes.values()) taken.wake();
    lanes.clear();
    metrics.partitions.set(0);
    metrics.position.reset();
    metrics.lag.reset();
    metrics.paused.reset();
    metrics.waiting.reset();
  }

  function takePartition(topic: string, partition: number): void {
    const key = keyOf(topic, partition);
    const epoch = membership.epoch;
    const log = logger.child({ topic, partition });
    let wake = (): void => {};
    const isOver = (): boolean => !membership.owns(key, epoch);
    const place = { topic, partition };
    const ports: Ports = {
      group: groupId,
      clock,
      monotonic: () => performance.now(),
      random: Math.random,
      store: createStore(topic, partition),
      badShare: createBadShare(topic, partition),
      isOver,
      isDraining: () => draining,
      isMember: () => membership.isFresh(),
      wait: (ms) =>
        new Promise<void>((resolve) => {
          if (isOver()) return resolve();
          const timer = setTimeout(resolve, ms);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        }),
      commit: (offset, metadata) => commit(topic, partition, epoch, offset, metadata),
      committed: (group) => committed(group, place),
      hasMembers: (group) => ofKafka(consumesPartition(admin, group, topic, partition)),
      watermarks: () => watermarks(place),
      fetchFrom: (offset) => {
        if (isOver()) return;
        consumer.seek({ topic, partition, offset: String(offset) });
        resume(taken);
      },
      onRoom: () => {
        metrics.position.set(place, lane.inbox.written);
        metrics.lag.set(place, Math.max(0, taken.end - lane.inbox.written));
        for (const other of lanes.values())
          if (other.paused && !isUnfetched(other) && mayFetch(other, 0.8)) resume(other);
      },
      permit,
      lingerMs: () => lingerMs({ isFilling: !taken.paused && taken.end > lane.inbox.end, active: activePartitions() }),
      unavailable,
      log: (event, fields) => onLaneEvent(log, place, event, fields),
    };
    const lane = createLane(ports, {
      maxRecords: Math.floor(batchMaxBytes / BATCH_BYTES_PER_RECORD),
      maxBytes: batchMaxBytes,
    });
    const taken: Taken = {
      topic,
      partition,
      lane,
      wake: () => wake(),
      activeAt: 0,
      end: 0,
      paused: false,
      ended: lane.run(),
    };
    taken.ended.catch(fail);
    pause(taken);
    lanes.set(key, taken);
    metrics.partitions.set(lanes.size);
  }

  async function committed(
    groupId: string,
    { topic, partition }: { topic: string; partition: number },
  ): Promise<{ offset: number; metadata: string } | undefined> {
    const [found] = await ofKafka(admin.fetchOffsets({ groupId, topics: [topic] }));
    const of = found?.partitions.find((p) => p.partition === partition);
    return of === undefined || Number(of.offset) < 0
      ? undefined
      : { offset: Number(of.offset), metadata: of.metadata ?? '' };
  }

  async function watermarks({
    topic,
    partition,
  }: {
    topic: string;
    partition: number;
  }): Promise<{ low: number; high: number }> {
    const found = (await ofKafka(admin.fetchTopicOffsets(topic))).find((p) => p.partition === partition);
    if (found === undefined) throw new KafkaUnavailable(`partition ${partition} of ${topic} has no leader`);
    return { low: Number(found.low), high: Number(found.high) };
  }

  function onLaneEvent(
    log: Logger,
    place: { topic: string; partition: number },
    event: LaneEvent,
    fields: object,
  ): void {
    log[LEVELS[event]](withoutStack(fields), event);
    if (event === 'partition_paused' || event === 'partition_resumed')
      metrics.paused.set(place, event === 'partition_paused' ? 1 : 0);
    if (event === 'waiting_for_group' || event === 'partition_claimed')
      metrics.waiting.set(place, event === 'waiting_for_group' ? 1 : 0);
    if (event.endsWith('_unavailable')) metrics.unavailable.inc({ service: event.slice(0, -'_unavailable'.length) });
  }

  function receive(payload: EachBatchPayload): void {
    const { batch } = payload;
    commitNow = (offsets) => payload.commitOffsetsIfNecessary(offsets);
    heartbeatNow = () => payload.heartbeat();
    const taken = lanes.get(keyOf(batch.topic, batch.partition));
    if (taken === undefined || draining) return;
    const fetched = fetchedRecords(batch);
    if (!Number.isSafeInteger(fetched.to)) throw new Error(`offset ${batch.lastOffset()} is beyond 2^53`);
    const accepted = taken.lane.offer({ at: Number(fetchedOffset(batch)), ...fetched });
    if (!accepted) {
      pause(taken);
    } else {
      payload.resolveOffset(batch.lastOffset());
      taken.activeAt = clock();
      taken.end = Number(batch.highWatermark);
      metrics.lag.set({ topic: batch.topic, partition: batch.partition }, taken.end - taken.lane.inbox.written);
      for (const other of lanes.values()) if (!other.paused && !mayFetch(other, 1)) pause(other);
    }
    taken.wake();
  }

  function commit(topic: string, partition: number, epoch: number, offset: number, metadata: string): Promise<boolean> {
    const offsets = {
      topics: [
        {
          topic,
          partitions: [{ partition, offset: String(offset), metadata } as { partition: number; offset: string }],
        },
      ],
    };
    let refused = 0;
    return commitInEpoch(
      membership,
      keyOf(topic, partition),
      epoch,
      () => (commitNow === undefined ? Promise.reject(new Error('nothing was fetched yet')) : commitNow(offsets)),
      async (attempt, error) => {
        // the client hands out the way to commit with the first fetch
        if (commitNow !== undefined) {
          refused++;
          metrics.commitsRefused.inc();
          // a rejoin refuses one or two
          logger[refused === 3 ? 'warn' : 'debug'](
            { err: error instanceof Error ? error.message : error, topic, partition, offset, attempts: refused },
            'commit_refused',
          );
        }
        if (draining && (commitNow === undefined || attempt > 5)) return false;
        await new Promise((resolve) => {
          setTimeout(resolve, COMMIT_RETRY_MS);
        });
        return true;
      },
    );
  }

  function pause(taken: Taken): void {
    consumer.pause([{ topic: taken.topic, partitions: [taken.partition] }]);
    taken.paused = true;
  }

  function resume(taken: Taken): void {
    consumer.resume([{ topic: taken.topic, partitions: [taken.partition] }]);
    taken.paused = false;
  }

  /** It asks for its records itself, when it can take them. */
  function isUnfetched({ lane: { state } }: Taken): boolean {
    return state === 'taking' || state === 'comparing' || state === 'waiting' || state === 'paused';
  }

  function inState(state: LaneState): string[] {
    return [...lanes.values()]
      .filter(({ lane }) => lane.state === state)
      .map(({ topic, partition }) => `${topic} ${partition}`);
  }

  /** share: of the limits; what was paused waits for more room than what goes on */
  function mayFetch({ lane: { inbox, isRecovering } }: Taken, share: number): boolean {
    if (isRecovering) return true;
    let total = 0;
    for (const { lane } of lanes.values()) total += lane.inbox.heldBytes;
    // the batch that is gathered beside the one being written is one batch at most
    return (
      inbox.bytes < batchMaxBytes * share && total < (inbox.heldBytes === 0 ? 2 * totalMaxBytes : totalMaxBytes * share)
    );
  }

  function activePartitions(): number {
    const now = clock();
    let active = 0;
    for (const { activeAt } of lanes.values()) if (now - activeAt < ACTIVE_FOR_MS) active++;
    return active;
  }

  async function stop(): Promise<void> {
    draining = true;
    const running = [...lanes.values()];
    for (const taken of running) {
      pause(taken);
      taken.wake();
    }
    if (!(await within(DRAIN_MS, Promise.allSettled(running.map((taken) => taken.ended)))))
      logger.warn({ lanes: running.map((t) => `${t.topic}:${t.partition} ${t.lane.state}`) }, 'batches_abandoned');
    endLanes();
    clearInterval(heartbeats);
    if (
      !(await within(
        LEAVE_MS,
        consumer.disconnect().then(() => admin.disconnect()),
      ))
    )
      logger.warn({}, 'group_not_left_in_time');
  }
}

const LEVELS = {
  partition_taken: 'debug',
  lane_over: 'debug',
  batch_recovered: 'info',
  intent_dropped: 'warn',
  orphan_rows_found: 'warn',
  topic_recreated: 'warn',
  offsets_gone: 'warn',
  waiting_for_group: 'warn',
  partition_claimed: 'info',
  partition_paused: 'error',
  partition_resumed: 'warn',
  kafka_unavailable: 'warn',
  registry_unavailable: 'warn',
  clickhouse_unavailable: 'warn',
  available_again: 'info',
} as const satisfies { [E in LaneEvent]: 'debug' | 'info' | 'warn' | 'error' };

/** An outage of an hour is many lines: the message of what comes again, not its stack. */
function withoutStack(fields: object): object {
  return 'err' in fields && fields.err instanceof Error ? { ...fields, err: fields.err.message } : fields;
}

function keyOf(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

class KafkaUnavailable extends Error {}

/**
 * kafkajs gives up after its own retries; for a lane Kafka being unavailable is a reason to wait, as ClickHouse being
 * unavailable is.
 */
async function ofKafka<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw new KafkaUnavailable(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function unavailable(error: unknown): Service | undefined {
  if (error instanceof KafkaUnavailable) return 'kafka';
  if (typeof error !== 'object' || error === null || !('kind' in error) || error.kind !== 'retry') return undefined;
  return error instanceof ClickHouseError ? 'clickhouse' : 'registry';
}

/** True when it settled in time. */
async function within(ms: number, work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([
      work.then(
        () => true,
        () => true,
      ),
      late,
    ]);
  } finally {
    clearTimeout(timer);
  }
}
