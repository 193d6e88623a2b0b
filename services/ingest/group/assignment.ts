import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import type { Clock } from '../../../common/clock.ts';
import { fetchedRecords, type Admin, type Consumer, type EachBatchPayload } from '../../../common/kafka/client.ts';
import {
  hasMembers,
  keyOf,
  readCommit,
  readEnds,
  readWatermarks,
  type Place,
} from '../../../common/kafka/partition.ts';
import type { Logger } from '../../../common/logger.ts';
import type { Committer } from './committer.ts';
import { Joints } from '../delivery/joint.ts';
import { Lane } from '../delivery/lane.ts';
import type { TakePermit } from './permits.ts';
import {
  LANE_EVENTS,
  type BadShare,
  type LaneEvent,
  type LaneState,
  type Ports,
  type Store,
} from '../delivery/ports.ts';
import type { CutLimits } from '../delivery/inbox.ts';
import { dueAt, type Waiting } from './linger.ts';
import type { Membership } from './membership.ts';
import type { IngestMetrics } from '../metrics.ts';
import { isBehind, isRunning, Turns, type Partition } from './turns.ts';
import { unavailable } from './unavailable.ts';

/** Records smaller than this on average end a batch by their number. */
const BATCH_BYTES_PER_RECORD = 1024;
/** A partition counts as active for this long after a fetch. */
const ACTIVE_FOR_MS = 10_000;
/** A partition that is not taken within this time is named, milliseconds. A takeover needs seconds. */
const UNTAKEN_MS = 60_000;
/** Batches count as being written for this long after a lane made room. */
const WRITING_FOR_MS = 1_000;

export interface AssignmentOptions {
  readonly groupId: string;
  /**
   * One batch is at most this much, or one record. Each costs an insert, and a part in every table; memory grows with it
   * (bench/README.md has both).
   * Processes of one group may differ: an announced batch is formed as announced.
   */
  readonly batchMaxBytes: number;
  /** partitions of a topic that have little waiting are inserted together (delivery/joint.ts) */
  readonly mayShareInserts: boolean;
  /** the name of a partition's shard; undefined before it is known, and without shards */
  readonly shardOf: (topic: string, partition: number) => string | undefined;
  readonly createStore: (topic: string, partition: number) => Store;
  readonly createBadShare: (topic: string, partition: number) => BadShare;
  readonly logger: Logger;
  readonly metrics: IngestMetrics;
  readonly clock: Clock;
}

/** What the lanes of one process share. */
interface Shared {
  readonly consumer: Consumer;
  readonly admin: Admin;
  readonly membership: Membership;
  readonly committer: Committer;
  readonly permit: TakePermit;
  /** called when the process must not go on */
  readonly fail: (error: unknown) => void;
}

interface AssignedPartition extends Place, Partition {
  readonly lane: Lane;
  readonly ended: Promise<void>;
  /** ends the wait of the lane */
  wake: () => void;
  /** when records of it were fetched last, monotonic milliseconds */
  activeAt: number;
  /** when its lane last did something else than take it; at first when it was assigned; monotonic milliseconds */
  notTakingAt: number;
  isUntaken: boolean;
  end: number;
  /** the offset after the last one known in Kafka, for the lag; undefined before it is taken */
  high: number | undefined;
  lastFetch: Partition['lastFetch'];
  /** the client does not fetch it; the lane's state `paused` is something else */
  isPaused: boolean;
}

/** The partitions that the group gave to this process: a lane for each, and which of them are fetched. */
export class Assignment {
  isDraining = false;
  readonly #taken = new Map<string, AssignedPartition>();
  readonly #options: AssignmentOptions;
  readonly #shared: Shared;
  /** of one batch */
  readonly #limits: CutLimits;
  readonly #turns: Turns<AssignedPartition>;
  readonly #joints = new Joints();
  /** when a lane last made room: it cut or stored a batch, or dropped what it held; monotonic milliseconds */
  #roomAt = -Infinity;
  /** topics, each on one shard, of which a batch is stuck and nothing is stored */
  #stuckTargets = new Set<string>();

  constructor(options: AssignmentOptions, shared: Shared) {
    const { batchMaxBytes } = options;
    this.#options = options;
    this.#shared = shared;
    this.#limits = { maxRecords: Math.floor(batchMaxBytes / BATCH_BYTES_PER_RECORD), maxBytes: batchMaxBytes };
    this.#turns = new Turns(this.#limits, () => performance.now());
  }

  take(topic: string, partition: number): void {
    const { metrics, shardOf } = this.#options;
    const place = { topic, partition };
    const lane = new Lane(
      this.#portsOf(place, () => taken),
      this.#limits,
    );
    const taken: AssignedPartition = {
      ...place,
      get target() {
        return `${topic} ${shardOf(topic, partition) ?? ''}`.trimEnd();
      },
      lane,
      wake: () => {},
      activeAt: -Infinity,
      notTakingAt: performance.now(),
      isUntaken: false,
      end: 0,
      high: undefined,
      lastFetch: { bytes: 0, records: 0 },
      isPaused: false,
      ended: lane.run(),
    };
    taken.ended.catch(this.#shared.fail);
    this.#pause(taken);
    this.#taken.set(keyOf(topic, partition), taken);
    metrics.partitions.set(this.#taken.size);
  }

  /** The partitions are lost: their lanes end. */
  endAll(): void {
    const { metrics } = this.#options;
    this.#shared.membership.lost();
    const lost = [...this.#taken.values()];
    for (const taken of lost) taken.wake();
    this.#taken.clear();
    // an insert in flight still says how fresh its rows are
    void Promise.allSettled(lost.map(({ ended }) => ended)).then(() => metrics.freshness.reset());
    metrics.partitions.set(0);
    const { position, lag, untaken, paused, waiting, freshness } = metrics;
    for (const gauge of [position, lag, untaken, paused, waiting, freshness]) gauge.reset();
  }

  /** Every lane finishes its batch in flight. Resolves when all have. */
  async drain(): Promise<void> {
    this.isDraining = true;
    const running = [...this.#taken.values()];
    for (const taken of running) {
      this.#pause(taken);
      taken.wake();
    }
    await Promise.allSettled(running.map((taken) => taken.ended));
  }

  receive(payload: EachBatchPayload): void {
    const { batch } = payload;
    const taken = this.#taken.get(keyOf(batch.topic, batch.partition));
    if (taken === undefined || this.isDraining) return;
    const fetched = fetchedRecords(batch);
    if (!Number.isSafeInteger(fetched.to)) throw new Error(`offset ${batch.lastOffset()} is beyond 2^53`);
    const { bytes, size } = taken.lane.inbox;
    if (taken.lane.offer(fetched)) {
      payload.resolveOffset(batch.lastOffset());
      const { inbox } = taken.lane;
      const lag = fetched.end - (inbox.written === inbox.end ? fetched.to + 1 : inbox.written);
      if (isRunning(taken)) this.#options.metrics.lag.set({ topic: batch.topic, partition: batch.partition }, lag);
      // the inbox does not have offsets without a record at the end of the log: they wait for the next record
      taken.end = isRunning(taken) && fetched.to + 1 >= fetched.end ? inbox.end : fetched.end;
      if (isRunning(taken)) taken.high = taken.end;
      if (fetched.records.length > 0) {
        taken.activeAt = performance.now();
        taken.lastFetch = { bytes: inbox.bytes - bytes, records: inbox.size - size };
        this.#turns.fetched(taken);
      }
      this.arrange();
      // a comparison (take.ts) asks for one offset at a time: a fetch from another one would make the lane begin again
      if (taken.lane.state === 'comparing') this.#pause(taken);
    } else {
      this.#pause(taken);
    }
    taken.wake();
  }

  /**
   * Decides which partitions are fetched. To be called after each fetch and each batch, and now and then: of a turn in
   * which nothing comes only the clock tells.
   */
  arrange(): void {
    if (this.isDraining) return;
    const all = [...this.#taken.values()];
    for (const { wake } of this.#turns.pass(all)) wake();
    // none between two assignments
    if (all.length > 0) this.#reportStuck(all);
    this.#reportUntaken(all);
    for (const taken of all) {
      if (!isRunning(taken)) continue;
      const may = this.#turns.mayFetch(taken, taken.isPaused ? 0.8 : 1);
      if (may && taken.isPaused) this.#resume(taken);
      else if (!may && !taken.isPaused) this.#pause(taken);
    }
  }

  /** A partition that is behind waits for room or for its turn, and batches are being written. */
  hasWaiting(): boolean {
    return (
      performance.now() - this.#roomAt < WRITING_FOR_MS &&
      [...this.#taken.values()].some(
        (taken) => taken.isPaused && isRunning(taken) && isBehind(taken) && !this.#turns.stuck.has(taken),
      )
    );
  }

  /** `<topic> <partition>` of what has something to write, and cannot for now. */
  stuck(): string[] {
    return this.#namesOf(
      (taken) => this.#turns.stuck.has(taken) && (taken.lane.inbox.heldBytes > 0 || isBehind(taken)),
    );
  }

  #reportStuck(all: readonly AssignedPartition[]): void {
    const { logger } = this.#options;
    const { stuck } = this.#turns;
    const before = this.#stuckTargets;
    this.#stuckTargets = new Set(stuck.targets);
    for (const target of stuck.targets) if (!before.has(target)) logger.warn({ target }, 'inserts_stuck');
    for (const target of before) {
      if (stuck.targets.has(target) || !all.some((taken) => taken.target === target)) continue;
      if (stuck.works(target)) logger.info({ target }, 'inserts_resumed');
      // a rebalance has replaced the lanes, and none of the new ones has stored anything yet
      else this.#stuckTargets.add(target);
    }
  }

  /** `<topic> <partition>` of what could not be taken for a minute. */
  untaken(): string[] {
    return this.#namesOf(({ isUntaken }) => isUntaken);
  }

  #reportUntaken(all: readonly AssignedPartition[]): void {
    const now = performance.now();
    for (const taken of all) {
      const { topic, partition } = taken;
      if (!isBeingTaken(taken)) taken.notTakingAt = now;
      const isUntaken = now - taken.notTakingAt >= UNTAKEN_MS;
      // a partition that was always taken needs no series
      if (isUntaken !== taken.isUntaken) this.#options.metrics.untaken.set({ topic, partition }, isUntaken ? 1 : 0);
      taken.isUntaken = isUntaken;
    }
  }

  /** Measures the lag of partitions that are not fetched, because their inserts hang or they are paused: it grows. */
  async measureUnfetched(): Promise<void> {
    const since = performance.now() - ACTIVE_FOR_MS;
    const paused = [...this.#taken.values()].filter((taken) => taken.isPaused && taken.activeAt < since);
    for (const [taken, high] of await readEnds(this.#shared.admin, paused)) {
      if (taken.high === undefined || !taken.isPaused) continue;
      taken.high = high;
      if (this.#taken.get(keyOf(taken.topic, taken.partition)) === taken) this.#report(taken);
    }
  }

  /** `<topic> <partition>` of lanes with a batch in flight, or that still take their partition. */
  unfinished(): string[] {
    return this.#namesOf((taken) => isBeingTaken(taken) || taken.lane.inbox.written !== taken.lane.inbox.next);
  }

  /** `<topic> <partition>` of the lanes in this state. */
  inState(state: LaneState): string[] {
    return this.#namesOf(({ lane }) => lane.state === state);
  }

  #namesOf(isMeant: (taken: AssignedPartition) => boolean): string[] {
    return [...this.#taken.values()].filter(isMeant).map(({ topic, partition }) => `${topic} ${partition}`);
  }

  #portsOf(place: Place, taken: () => AssignedPartition): Ports {
    const { groupId, clock, shardOf, createStore, createBadShare, logger } = this.#options;
    const { consumer, admin, membership, committer, permit } = this.#shared;
    const { topic, partition } = place;
    // the time from this rejoin to the next (membership.ts)
    const stint = membership.stint;
    const log = logger.child(place);
    const isOver = (): boolean => !membership.owns(keyOf(topic, partition), stint);
    return {
      group: groupId,
      clock,
      monotonic: () => performance.now(),
      random: Math.random,
      store: createStore(topic, partition),
      badShare: createBadShare(topic, partition),
      isOver,
      isDraining: () => this.isDraining,
      isMember: () => membership.isFresh(),
      wait: (ms) =>
        new Promise<void>((resolve) => {
          if (isOver()) return resolve();
          const timer = setTimeout(resolve, ms);
          taken().wake = () => {
            clearTimeout(timer);
            resolve();
          };
        }),
      commit: (offset, metadata) => committer.commit(place, stint, offset, metadata),
      committed: (group) => readCommit(admin, group, place),
      hasMembers: (group) => hasMembers(admin, group, place),
      watermarks: () => readWatermarks(admin, place),
      fetchFrom: (offset) => {
        if (isOver()) return;
        consumer.seek({ topic, partition, offset: String(offset) });
        this.#resume(taken());
      },
      onTaken: (high) => {
        taken().high = high;
        if (!isOver()) this.#report(taken());
      },
      onRoom: () => {
        this.#roomAt = performance.now();
        if (!isOver()) this.#report(taken());
        this.arrange();
      },
      // a topic has a table of its own
      permit: () => permit(topic, shardOf(topic, partition)),
      joints: this.#joints,
      after: (ms) => sleep(ms, undefined, { ref: false }),
      others: () =>
        this.#options.mayShareInserts
          ? [...this.#taken.values()]
              // one whose turn it is waits for a whole batch
              .filter((t) => t.topic === topic && t.partition !== partition && !this.#turns.has(t))
              .map(({ lane }) => lane)
          : [],
      dueAt: (since) => {
        const isFilling = this.#turns.has(taken());
        // its turn is over: nothing is added before the next one
        if (isBehind(taken()) && !isFilling) return since;
        return dueAt({ since, isFilling, ...this.#trickle(place) });
      },
      unavailable,
      log: (event, fields) => {
        log[LANE_EVENTS[event]](fields, event);
        if (event.endsWith('_unavailable'))
          this.#options.metrics.unavailable.inc({ service: event.slice(0, -'_unavailable'.length) });
        // a partition that is lost has no gauges any more
        if (!isOver()) this.#measure(place, event);
      },
    };
  }

  #measure(place: Place, event: LaneEvent): void {
    const { metrics } = this.#options;
    if (event === 'partition_paused' || event === 'partition_resumed')
      metrics.paused.set(place, event === 'partition_paused' ? 1 : 0);
    if (event === 'waiting_for_group' || event === 'partition_claimed')
      metrics.waiting.set(place, event === 'waiting_for_group' ? 1 : 0);
  }

  #report(taken: AssignedPartition): void {
    const { topic, partition, lane, high } = taken;
    if (high === undefined || isBeingTaken(taken)) return;
    const { position, lag } = this.#options.metrics;
    position.set({ topic, partition }, lane.inbox.written);
    lag.set({ topic, partition }, Math.max(0, high - lane.inbox.written));
  }

  #pause(taken: AssignedPartition): void {
    this.#shared.consumer.pause([{ topic: taken.topic, partitions: [taken.partition] }]);
    taken.isPaused = true;
  }

  #resume(taken: AssignedPartition): void {
    this.#shared.consumer.resume([{ topic: taken.topic, partitions: [taken.partition] }]);
    taken.isPaused = false;
  }

  /** The ticks of linger.ts: each partition has its own, or each topic where its partitions share inserts. */
  #trickle({ topic, partition }: Place): Omit<Waiting, 'since' | 'isFilling'> {
    const { mayShareInserts } = this.#options;
    const since = performance.now() - ACTIVE_FOR_MS;
    const active = [...this.#taken.values()].filter((t) => t.activeAt > since);
    return {
      partitions: active.length,
      topics: mayShareInserts ? new Set(active.map((t) => t.topic)).size : undefined,
      phase: crc32(mayShareInserts ? topic : keyOf(topic, partition)) / 2 ** 32,
    };
  }
}

const isBeingTaken = ({ lane }: AssignedPartition): boolean => lane.state === 'taking' || lane.state === 'comparing';
