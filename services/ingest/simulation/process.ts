import { Joints } from '../delivery/joint.ts';
import { Lane } from '../delivery/lane.ts';
import type { Ports } from '../delivery/ports.ts';
import { commitInStint, createMembership, type Membership } from '../group/membership.ts';
import type { ClickHouse, Client } from './clickhouse.ts';
import { SESSION_MS, type Group, type GroupClient, type Log } from './kafka.ts';
import type { World } from './world.ts';

const LIMITS = { maxRecords: 4, maxBytes: 1_000_000 } as const;
/** an insert that two partitions share has room for both */
const SHARED_LIMITS = { ...LIMITS, maxRecords: 12 } as const;
/** a partition is not fetched while more records wait than this and a batch */
const INBOX_ROOM = 2;
/**
 * kafkajs, where an offset is out of range: it commits this in place of ours, without metadata, and starts at the first
 * offset
 */
const EARLIEST = -2;

/** How a mutant differs: wrappers around what the lane is given. */
export interface Mutation {
  readonly ports?: (ports: Ports) => Ports;
  readonly token?: 'of the insert';
  readonly fence?: 'off';
}

interface ProcessOptions {
  readonly world: World;
  readonly logs: readonly Log[];
  readonly clickhouse: ClickHouse;
  readonly groups: readonly Group[];
  /** the one it is a member of */
  readonly group: Group;
  readonly name: string;
  readonly lingerMs: number;
  /** its engine ends with it */
  readonly isEmbedded: boolean;
  /** its settings, which differ from life to life */
  readonly retentionDays: number;
  readonly mutation: Mutation;
}

export type Process = ReturnType<typeof startProcess>;

/** One partition of a process, with what its client does for it. */
interface Taken {
  readonly log: Log;
  readonly lane: Lane;
  readonly ended: Promise<void>;
  wake(): void;
  /** where the client fetches next */
  position: number | undefined;
  isPaused: boolean;
  isFetching: boolean;
}

/**
 * One ingest process: what consumer.ts does with kafkajs, with the real membership, the real commit rule and real
 * lanes, over the models.
 * It can be killed, stopped like by SIGSTOP and woken, cut off from Kafka, and asked to end in order, between any two
 * of its awaits.
 */
export function startProcess({
  world,
  logs,
  clickhouse,
  groups,
  group,
  name,
  lingerMs,
  isEmbedded,
  retentionDays,
  mutation,
}: ProcessOptions) {
  const membership: Membership = createMembership(() => world.now, SESSION_MS);
  const limits = isEmbedded ? SHARED_LIMITS : LIMITS;
  const rights: Pick<Membership, 'owns'> = mutation.fence === 'off' ? { owns: () => true } : membership;
  let state: 'running' | 'stopped' | 'dead' = 'running';
  let wakeUp = Promise.withResolvers<void>();
  let isCut = false;
  let healed = Promise.withResolvers<void>();
  let isDraining = false;
  /** a member neither fetches nor sends heartbeats while it joins */
  let isJoined = false;
  let skew = 0;
  let memberId = '';
  /** what the client stamps commits with */
  let stamp = { memberId: '', generation: -1 };
  let noticed = Promise.withResolvers<void>();
  const current = new Map<number, Taken>();
  const joints = new Joints();
  const changed = new Map<number, 'seen as an error' | 'seen as out of range'>();

  const client: Client & GroupClient = {
    group: group.name,
    retentionDays,
    alive,
    isDead: () => state === 'dead',
    isReachable: () => state === 'running' && !isCut,
    onHeartbeat: () => {
      if (isJoined) membership.heartbeat();
    },
    onNotice: () => noticed.resolve(),
  };

  run().catch(world.fail);

  return {
    name,
    group,
    get state() {
      return state;
    },
    get isCut() {
      return isCut;
    },
    get isDraining() {
      return isDraining;
    },
    kill(): void {
      state = 'dead';
    },
    sigstop(): void {
      if (state === 'running') state = 'stopped';
    },
    wake(): void {
      if (state !== 'stopped') return;
      state = 'running';
      const woken = wakeUp;
      wakeUp = Promise.withResolvers<void>();
      woken.resolve();
      if (!group.knows(memberId)) noticed.resolve();
    },
    cut(): void {
      isCut = true;
    },
    heal(): void {
      isCut = false;
      const reachable = healed;
      healed = Promise.withResolvers<void>();
      reachable.resolve();
      if (!group.knows(memberId)) noticed.resolve();
    },
    skewClock(ms: number): void {
      skew += ms;
    },
    stop(): void {
      if (state === 'running' && !isDraining) drain().catch(world.fail);
    },
    /** the log was recreated or truncated; a fetch shows it in one of two ways */
    logChanged(partition: number): void {
      changed.set(
        partition,
        state === 'running' && !isCut && world.below(2) === 0 ? 'seen as out of range' : 'seen as an error',
      );
      pump(current.get(partition));
    },
  };

  async function alive(): Promise<void> {
    while (state !== 'running') await (state === 'dead' ? new Promise<never>(() => {}) : wakeUp.promise);
  }

  async function reachKafka(): Promise<void> {
    while (isCut) await healed.promise;
  }

  /** The member's life: join, sync, take what is assigned, join again when told to. */
  async function run(): Promise<void> {
    while (!isDraining) {
      noticed = Promise.withResolvers<void>();
      await world.hop('join');
      await reachKafka();
      const answer = await group.join(client, memberId);
      await world.hop('join answer');
      await alive();
      endLanes();
      memberId = answer.memberId;
      await world.hop('sync');
      const stands = group.sync(memberId, answer.generation);
      await world.hop('sync answer');
      await alive();
      if (stands && !isDraining) {
        stamp = answer;
        endLanes();
        membership.won(answer.assigned.map(String));
        isJoined = true;
        world.trace('joined', { name, ...answer });
        for (const partition of answer.assigned) takePartition(logs[partition]!);
        await noticed.promise;
        await alive();
        isJoined = false;
        // a heartbeat's answer ends the lanes at once, a failed fetch only with the answer to the join
        if (world.below(2) === 0) endLanes();
      }
      if (!group.knows(memberId)) memberId = '';
    }
  }

  function endLanes(): void {
    membership.lost();
    for (const taken of current.values()) {
      taken.wake();
      taken.position = undefined;
    }
    if (mutation.fence !== 'off') current.clear();
  }

  async function drain(): Promise<void> {
    isDraining = true;
    for (const taken of current.values()) taken.wake();
    await Promise.race([Promise.all([...current.values()].map((t) => t.ended)), world.hop('drain deadline')]);
    await alive();
    endLanes();
    await world.hop('leave');
    if (!isCut) group.leave(memberId);
    state = 'dead';
  }

  function takePartition(log: Log): void {
    const { partition } = log;
    const key = String(partition);
    const stint = membership.stint;
    const isOver = (): boolean => !rights.owns(key, stint);
    let wake = (): void => {};
    changed.delete(partition);
    const ports: Ports = {
      group: group.name,
      clock: () => world.now + skew,
      monotonic: () => world.now,
      random: () => world.below(1_000) / 1_000,
      store: clickhouse.storeOf(client, partition, mutation.token === undefined),
      badShare: clickhouse.badShareOf(client, partition),
      isOver,
      isDraining: () => isDraining,
      isMember: () => membership.isFresh(),
      wait: (ms) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        let isWoken = isOver();
        wake = () => {
          isWoken = true;
          resolve();
        };
        if (isWoken) resolve();
        if (ms < 60_000) timer(ms, () => isWoken).then(resolve, world.fail);
        return promise;
      },
      commit: (offset, metadata) => commitInStint(rights, key, stint, () => commit(partition, offset, metadata), again),
      committed: (of) => askKafka(() => groups.find((g) => g.name === of)!.committed(partition)),
      // forced by chance: the other group's members are overlooked
      hasMembers: (of) => askKafka(() => !groups.find((g) => g.name === of)!.isEmpty && !world.chance(0.3)),
      watermarks: () => askKafka(() => ({ low: log.low, high: log.high })),
      fetchFrom: (offset) => {
        if (isOver()) return;
        taken.position = offset;
        taken.isPaused = false;
        pump(taken);
      },
      onTaken: () => {},
      onRoom: () => {
        taken.isPaused = false;
        pump(taken);
      },
      dueAt: (since) => since + lingerMs,
      joints,
      after: async (ms) => {
        // most deadlines come later than everybody
        const hops = ms >= 1_000 && world.below(5) > 0 ? 60 : 1;
        for (let i = 0; i < hops; i++) await world.hop('after');
        await alive();
      },
      others: () => (isEmbedded ? [...current.values()].filter((t) => t.log !== log).map((t) => t.lane) : []),
      permit: async () => {
        // others come to wait meanwhile, and share the insert
        do await world.hop('permit');
        while (isEmbedded && world.below(8) > 0);
        return () => {};
      },
      unavailable: (error) =>
        typeof error === 'object' && error !== null && 'kind' in error && error.kind === 'retry'
          ? 'clickhouse'
          : undefined,
      log: (event, fields) => {
        world.count(event);
        world.trace(`${name} ${partition} ${event}`, fields);
      },
    };
    const lane = new Lane(mutation.ports?.(ports) ?? ports, limits);
    const taken: Taken = {
      log,
      lane,
      wake: () => wake(),
      position: undefined,
      isPaused: true,
      isFetching: false,
      ended: lane.run(),
    };
    taken.ended.catch(world.fail);
    current.set(partition, taken);
  }

  async function timer(ms: number, isWoken: () => boolean): Promise<void> {
    const due = world.now + ms;
    await world.hop('timer');
    if (isWoken()) return;
    passTime(Math.max(0, due - world.now));
    await alive();
  }

  function passTime(ms: number): void {
    world.now += ms;
    for (const g of groups) g.tick();
  }

  async function askKafka<T>(serve: () => T): Promise<T> {
    await world.hop('ask Kafka');
    if (isCut || world.chance(0.02)) {
      await alive();
      throw Object.assign(new Error('no answer'), { kind: 'retry' });
    }
    const answer = serve();
    if (world.below(4) === 0) await world.hop('Kafka answers');
    await alive();
    return answer;
  }

  /** Stamped with the client's generation at the moment of the call. */
  async function commit(partition: number, offset: number, metadata: string): Promise<void> {
    const { memberId: by, generation } = stamp;
    await world.hop('commit');
    if (isCut || world.chance(0.03)) {
      await alive();
      throw new Error('commit not sent');
    }
    let refused: unknown;
    try {
      group.commit(by, generation, partition, { offset, metadata });
    } catch (error) {
      refused = error;
    }
    await world.hop('commit answer');
    await alive();
    if (refused !== undefined || world.chance(0.03)) throw new Error('commit not confirmed', { cause: refused });
  }

  async function again(attempt: number): Promise<boolean> {
    if (isDraining && attempt > 5) return false;
    await timer(200, () => false);
    return true;
  }

  function pump(taken: Taken | undefined): void {
    if (
      taken === undefined ||
      !isJoined ||
      taken.isFetching ||
      taken.isPaused ||
      taken.position === undefined ||
      state === 'dead'
    )
      return;
    if (current.get(taken.log.partition) === taken) fetch(taken, taken.position).catch(world.fail);
  }

  async function fetch(taken: Taken, at: number): Promise<void> {
    const { log, lane } = taken;
    taken.isFetching = true;
    const life = log.life;
    await world.hop('fetch');
    await reachKafka();
    const change = changed.get(log.partition);
    changed.delete(log.partition);
    if (change === 'seen as an error') {
      taken.isFetching = false;
      isJoined = false;
      noticed.resolve();
      return;
    }
    const answer = change === undefined ? log.read(at, 1 + world.below(5)) : 'out_of_range';
    const seen = log.version;
    if (answer === 'out_of_range') await commit(log.partition, EARLIEST, '').catch(() => {});
    const first = log.low;
    await world.hop('fetch answer');
    await alive();
    taken.isFetching = false;
    const now = current.get(log.partition);
    if (now !== taken || taken.position !== at || taken.isPaused) {
      // where the partition has another leader by now, a fetch of before the rejoin is handed over; its leader of then
      // has nothing of a log that changed since (one connection: it answers no later fetch before this one)
      if (now !== undefined && now !== taken && typeof answer === 'object' && life === log.life) {
        world.count('fetches of before a rejoin');
        if (now.lane.offer({ at, ...answer })) now.position = answer.to + 1;
        now.wake();
      }
      return pump(now);
    }
    world.trace(`${name} ${log.partition} fetched`, { at, answer });
    if (answer === 'out_of_range') {
      world.count('offsets out of range');
      taken.position = first;
    } else if (answer === 'nothing') {
      return log.onChange(seen, () => pump(taken));
    } else if (lane.offer({ at, ...answer })) {
      if (!world.chance(0.02)) taken.position = answer.to + 1;
      taken.isPaused = lane.inbox.size >= limits.maxRecords + INBOX_ROOM;
    } else {
      taken.isPaused = true;
    }
    taken.wake();
    pump(taken);
  }
}
