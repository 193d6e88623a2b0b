import { commitInEpoch, createMembership, type Membership } from '../group.ts';
import { createLane, type Lane, type Ports } from '../lane.ts';
import type { ClickHouse, Client } from './clickhouse.ts';
import { SESSION_MS, type Group, type GroupClient, type Kafka } from './kafka.ts';
import type { World } from './world.ts';

const PARTITION = 'topic:0';
const LIMITS = { maxRecords: 4, maxBytes: 1_000_000 } as const;
/** a partition is not fetched while so many records wait */
const INBOX_FULL = 6;
/** kafkajs, where an offset is out of range: it commits this in place of ours, without metadata, and starts at the first offset */
const EARLIEST = -2;

/** How a mutant differs: wrappers around what the lane is given. */
export interface Mutation {
  readonly ports?: (ports: Ports) => Ports;
  readonly token?: 'of the insert';
  readonly fence?: 'off';
}

export type Process = ReturnType<typeof startProcess>;

/**
 * One ingest process: what consumer.ts does with kafkajs, with the real membership, the real commit rule and real lanes, over the models.
 * It can be killed, stopped like by SIGSTOP and woken, cut off from Kafka, and asked to end in order, between any two of its awaits.
 */
export function startProcess(world: World, kafka: Kafka, clickhouse: ClickHouse, group: Group, name: string, lingerMs: number, mutation: Mutation) {
  const membership: Membership = createMembership(() => world.now, SESSION_MS);
  const rights: Pick<Membership, 'owns'> = mutation.fence === 'off' ? { owns: () => true } : membership;
  let state: 'running' | 'stopped' | 'dead' = 'running';
  let wakeUp = deferred();
  let isCut = false;
  let healed = deferred();
  let isDraining = false;
  /** a member neither fetches nor sends heartbeats while it joins */
  let isJoined = false;
  let skew = 0;
  let memberId = '';
  /** what the client stamps commits with */
  let stamp = { memberId: '', generation: -1 };
  let noticed = deferred();
  let current: { lane: Lane; wake: () => void; ended: Promise<void> } | undefined;
  /** where the client fetches next */
  let position: number | undefined;
  let isPaused = true;
  let isFetching = false;
  let topicChanged: 'seen as an error' | 'seen as out of range' | undefined;

  const client: Client & GroupClient = {
    alive,
    isReachable: () => state === 'running' && !isCut,
    onHeartbeat: () => { if (isJoined) membership.heartbeat(); },
    onNotice: () => noticed.resolve(),
  };
  const store = clickhouse.storeOf(client, mutation.token === undefined);
  const brake = clickhouse.brakeOf(client);

  run().catch(world.fail);

  return {
    name,
    group,
    get state() { return state; },
    get isCut() { return isCut; },
    get isDraining() { return isDraining; },
    kill(): void { state = 'dead'; },
    sigstop(): void { if (state === 'running') state = 'stopped'; },
    wake(): void {
      if (state !== 'stopped') return;
      state = 'running';
      const woken = wakeUp;
      wakeUp = deferred();
      woken.resolve();
      if (!group.knows(memberId)) noticed.resolve();
    },
    cut(): void { isCut = true; },
    heal(): void {
      isCut = false;
      const reachable = healed;
      healed = deferred();
      reachable.resolve();
      if (!group.knows(memberId)) noticed.resolve();
    },
    skewClock(ms: number): void { skew += ms; },
    stop(): void { if (state === 'running' && !isDraining) drain().catch(world.fail); },
    /** its topic was deleted and made anew; a fetch shows it in one of two ways */
    topicMadeAnew(): void {
      topicChanged = state === 'running' && !isCut && world.below(2) === 0 ? 'seen as out of range' : 'seen as an error';
      pump();
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
      noticed = deferred();
      await world.hop('join');
      await reachKafka();
      const answer = await group.join(client, memberId);
      await world.hop('join answer');
      await alive();
      endLane();
      memberId = answer.memberId;
      await world.hop('sync');
      const stands = group.sync(memberId, answer.generation);
      await world.hop('sync answer');
      await alive();
      if (stands && !isDraining) {
        stamp = answer;
        endLane();
        membership.won(answer.assigned ? [PARTITION] : []);
        isJoined = true;
        world.trace('joined', { name, ...answer });
        if (answer.assigned) takePartition();
        await noticed.promise;
        await alive();
        isJoined = false;
        // a heartbeat's answer ends the lanes at once, a failed fetch only with the answer to the join
        if (world.below(2) === 0) endLane();
      }
      if (!group.knows(memberId)) memberId = '';
    }
  }

  function endLane(): void {
    membership.lost();
    current?.wake();
    if (mutation.fence !== 'off') current = undefined;
    position = undefined;
  }

  async function drain(): Promise<void> {
    isDraining = true;
    current?.wake();
    await Promise.race([current?.ended, world.hop('drain deadline')]);
    await alive();
    endLane();
    await world.hop('leave');
    if (!isCut) group.leave(memberId);
    state = 'dead';
  }

  function takePartition(): void {
    const epoch = membership.epoch;
    const isOver = (): boolean => !rights.owns(PARTITION, epoch);
    let wake = (): void => {};
    position = undefined;
    isPaused = true;
    topicChanged = undefined;
    const ports: Ports = {
      clock: () => world.now + skew,
      random: () => world.below(1_000) / 1_000,
      store,
      brake,
      isOver,
      isDraining: () => isDraining,
      isMember: () => membership.isFresh(),
      wait: (ms) => {
        const woken = deferred();
        if (isOver()) woken.resolve();
        wake = woken.resolve;
        if (ms < 60_000) timer(ms, woken).catch(world.fail);
        return woken.promise;
      },
      commit: (offset, metadata) => commitInEpoch(rights, PARTITION, epoch, () => commit(offset, metadata), again),
      committed: () => askKafka(() => (group.committed === undefined || group.committed.offset < 0 ? undefined : group.committed)),
      watermarks: () => askKafka(() => ({ low: kafka.low, high: kafka.high })),
      fetchFrom: (offset) => {
        if (isOver()) return;
        position = offset;
        isPaused = false;
        pump();
      },
      onRoom: () => {
        isPaused = false;
        pump();
      },
      lingerMs: () => lingerMs,
      turn: async () => {
        await world.hop('turn');
        return () => {};
      },
      log: (event, fields) => {
        world.count(event);
        world.trace(`${name} ${event}`, fields);
      },
    };
    const lane = createLane(mutation.ports?.(ports) ?? ports, LIMITS);
    const ended = lane.run();
    ended.catch(world.fail);
    current = { lane, wake: () => wake(), ended };
  }

  async function timer(ms: number, woken: Deferred): Promise<void> {
    const due = world.now + ms;
    await world.hop('timer');
    if (woken.isResolved) return;
    passTime(Math.max(0, due - world.now));
    await alive();
    woken.resolve();
  }

  function passTime(ms: number): void {
    world.now += ms;
    group.tick();
  }

  async function askKafka<T>(serve: () => T): Promise<T> {
    await world.hop('ask Kafka');
    if (isCut || world.chance(0.03)) {
      await alive();
      throw Object.assign(new Error('no answer'), { kind: 'retry' });
    }
    const answer = serve();
    await world.hop('Kafka answers');
    await alive();
    return answer;
  }

  /** Stamped with the client's generation at the moment of the call. */
  async function commit(offset: number, metadata: string): Promise<void> {
    const { memberId: by, generation } = stamp;
    await world.hop('commit');
    if (isCut || world.chance(0.03)) {
      await alive();
      throw new Error('commit not sent');
    }
    let refused: unknown;
    try {
      group.commit(by, generation, { offset, metadata });
    } catch (error) {
      refused = error;
    }
    await world.hop('commit answer');
    await alive();
    if (refused !== undefined || world.chance(0.03)) throw new Error('commit not confirmed', { cause: refused });
  }

  async function again(attempt: number): Promise<boolean> {
    if (isDraining && attempt > 5) return false;
    await timer(200, deferred());
    return true;
  }

  function pump(): void {
    if (isJoined && !isFetching && !isPaused && position !== undefined && current !== undefined && state !== 'dead') fetch(position, current.lane).catch(world.fail);
  }

  async function fetch(at: number, lane: Lane): Promise<void> {
    isFetching = true;
    await world.hop('fetch');
    await reachKafka();
    if (topicChanged === 'seen as an error') {
      topicChanged = undefined;
      isFetching = false;
      isJoined = false;
      noticed.resolve();
      return;
    }
    const answer = topicChanged === undefined ? kafka.read(at, 1 + world.below(5)) : { kind: 'out_of_range' } as const;
    const [seen, seenLife] = [kafka.version, kafka.life];
    topicChanged = undefined;
    if (answer.kind === 'out_of_range') await commit(EARLIEST, '').catch(() => {});
    const first = kafka.low;
    await world.hop('fetch answer');
    await alive();
    isFetching = false;
    if (current?.lane !== lane || position !== at || isPaused) {
      // where the partition has another leader by now, a fetch of before the rejoin is handed over
      if (current !== undefined && current.lane !== lane && answer.kind === 'fetched' && !answer.isEmpty && seenLife === kafka.life) {
        world.count('fetches of before a rejoin');
        if (current.lane.offer({ at, ...answer.fetched })) position = answer.fetched.to + 1;
        current.wake();
      }
      return pump();
    }
    world.trace(`${name} fetched`, { at, ...answer });
    if (answer.kind === 'out_of_range') {
      world.count('offsets out of range');
      position = first;
    } else if (answer.kind === 'nothing') {
      return kafka.onChange(seen, pump);
    } else if (answer.isEmpty || lane.offer({ at, ...answer.fetched })) {
      if (answer.isEmpty) lane.moved(answer.fetched.to);
      if (!world.chance(0.02)) position = answer.fetched.to + 1;
      isPaused = lane.inbox.size >= INBOX_FULL;
    } else {
      isPaused = true;
    }
    current.wake();
    pump();
  }
}

interface Deferred {
  readonly promise: Promise<void>;
  readonly isResolved: boolean;
  readonly resolve: () => void;
}

function deferred(): Deferred {
  let settle = (): void => {};
  const made = { promise: new Promise<void>((resolve) => { settle = resolve; }), isResolved: false, resolve: () => { made.isResolved = true; settle(); } };
  return made;
}
