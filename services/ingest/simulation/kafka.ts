import type { Fetched } from '../inbox.ts';
import type { Record } from '../record.ts';
import type { World } from './world.ts';

/** A record with what the model of ClickHouse judges it by. */
export interface Event extends Record {
  readonly life: number;
  readonly day: number;
  readonly bad: boolean;
  /** judged before this moment it is a dead letter: too far in the future */
  readonly acceptedFrom: number;
  readonly schemaId: number | undefined;
  /** by an engine of the first version */
  readonly refused: boolean;
}

/** What stands at an offset: control records come in fetches but are shown to nobody, absent ones were compacted away. */
type Slot = Event | 'control' | 'absent';

export interface Commit {
  readonly offset: number;
  readonly metadata: string;
}

export interface JoinAnswer {
  readonly memberId: string;
  readonly generation: number;
  readonly assigned: boolean;
}

/** A process as the group's coordinator meets it. */
export interface GroupClient {
  /** false while its heartbeats do not arrive */
  isReachable(): boolean;
  /** a heartbeat was answered well */
  onHeartbeat(): void;
  /** a heartbeat was answered with: join again */
  onNotice(): void;
}

export const SESSION_MS = 30_000;

export type Kafka = ReturnType<typeof createKafka>;
export type Group = ReturnType<typeof createGroup>;

/**
 * The log of one partition: offsets from `low` to `high` - 1, holes among them, the start cut by retention, its topic deleted and made anew
 * (a new life, from offset 0; the group's commits go with the old one).
 */
export function createKafka(world: World) {
  let life = 0;
  let low = 0;
  let slots: Slot[] = [];
  /** every event ever produced */
  const history: Event[] = [];
  /** gone from Kafka before the ledger had them */
  const gone = new Set<Event>();
  const readers = new Set<() => void>();
  let version = 0;

  return {
    /** counts changes of the log */
    get version() { return version; },
    get life() { return life; },
    get low() { return low; },
    get high() { return slots.length; },
    history,
    gone,
    has(event: Event): boolean {
      return event.life === life && event.offset >= low && slots[event.offset] === event;
    },
    slot: (offset: number): Slot | undefined => (offset < low ? undefined : slots[offset]),
    produce(kind: 'event' | 'null' | 'control' | 'absent'): void {
      const offset = slots.length;
      if (kind === 'control' || kind === 'absent') {
        slots.push(kind);
      } else {
        const event: Event = {
          offset,
          life,
          time: world.now,
          key: null,
          value: kind === 'null' ? null : Buffer.from(`${life}:${offset}`),
          headers: [],
          day: world.below(2),
          bad: world.below(8) === 0,
          acceptedFrom: world.below(6) === 0 ? world.now + world.below(40_000) : 0,
          schemaId: world.below(8) === 0 ? 1 : undefined,
          refused: kind === 'event' && world.below(12) === 0,
        };
        slots.push(event);
        history.push(event);
      }
      wakeReaders();
    },
    /** Retention, or compaction of one offset. */
    cutStart(to: number, ledgerEnd: number): void {
      for (let offset = low; offset < to; offset++) remember(offset, ledgerEnd);
      low = Math.max(low, to);
      wakeReaders();
    },
    compact(offset: number, ledgerEnd: number): void {
      remember(offset, ledgerEnd);
      slots[offset] = 'absent';
    },
    madeAnew(ledgerEnd: number): void {
      for (let offset = low; offset < slots.length; offset++) remember(offset, ledgerEnd);
      life++;
      low = 0;
      slots = [];
      wakeReaders();
    },
    /** What a fetch of up to `size` slots at this offset gives; a client never sees a slot that is not a record, but its offset counts. */
    read(at: number, size: number): { readonly kind: 'nothing' } | { readonly kind: 'out_of_range' } | { readonly kind: 'fetched'; readonly fetched: Fetched; readonly isEmpty: boolean } {
      if (at < low || at > slots.length) return { kind: 'out_of_range' };
      const found: number[] = [];
      for (let offset = at; offset < slots.length && found.length < size; offset++) if (slots[offset] !== 'absent') found.push(offset);
      if (found.length === 0) return { kind: 'nothing' };
      const records = found.flatMap((offset) => { const slot = slots[offset]!; return typeof slot === 'string' ? [] : [slot]; });
      return { kind: 'fetched', fetched: { to: found.at(-1)!, records }, isEmpty: records.length === 0 };
    },
    /** calls once when the log is another than at `seen`, perhaps at once */
    onChange(seen: number, reader: () => void): void {
      if (seen === version) readers.add(reader);
      else reader();
    },
  };

  function remember(offset: number, ledgerEnd: number): void {
    const slot = slots[offset];
    if (slot !== undefined && typeof slot !== 'string' && offset > ledgerEnd) gone.add(slot);
  }

  function wakeReaders(): void {
    version++;
    const waiting = [...readers];
    readers.clear();
    for (const reader of waiting) reader();
  }
}

interface Member {
  readonly id: string;
  readonly client: GroupClient;
  lastSeen: number;
  generation: number;
  /** it has asked to join and waits for the others */
  answer: ((answer: JoinAnswer) => void) | undefined;
}

/**
 * A consumer group of the classic protocol over the one partition. Every join begins a rebalance; it ends when all members have joined again or were
 * dropped, with a generation more and one of them owning the partition. A commit is taken from any member that stamps the present generation:
 * also for a partition that it does not own, and also while a rebalance is under way. The answer of a commit may be lost; its order is kept.
 */
export function createGroup(world: World) {
  let generation = 0;
  let nextId = 0;
  let state: 'empty' | 'preparing' | 'stable' = 'empty';
  let preparingSince = 0;
  let committed: Commit | undefined;
  const members = new Map<string, Member>();

  return {
    get committed() { return committed; },
    get isEmpty() { return members.size === 0; },
    /** by the operator, or with the topic */
    setCommitted(commit: Commit | undefined): void { committed = commit; },
    join(client: GroupClient, memberId: string): Promise<JoinAnswer> {
      return new Promise((resolve) => {
        const known = members.get(memberId);
        const member = known ?? { id: `m${nextId++}`, client, lastSeen: 0, generation: -1, answer: undefined };
        member.lastSeen = world.now;
        member.answer = resolve;
        members.set(member.id, member);
        prepare();
        completeIfAllJoined();
      });
    },
    /** true = the generation stands, the member may begin */
    sync(memberId: string, stamp: number): boolean {
      return state === 'stable' && stamp === generation && members.has(memberId);
    },
    leave(memberId: string): void {
      if (members.delete(memberId)) membersChanged();
    },
    knows: (memberId: string): boolean => members.has(memberId),
    commit(memberId: string, stamp: number, commit: Commit): void {
      if (!members.has(memberId) || stamp !== generation) {
        world.count('commits refused');
        throw new Error('ILLEGAL_GENERATION');
      }
      world.trace('commit', { by: memberId, stamp, ...commit });
      committed = commit;
    },
    /** Time has passed: heartbeats of whoever is reachable, then the end of sessions and of a rebalance that takes too long. */
    tick(): void {
      for (const member of members.values()) {
        if (!member.client.isReachable()) continue;
        member.lastSeen = world.now;
        if (state === 'stable' && member.generation === generation) member.client.onHeartbeat();
      }
      let changed = false;
      for (const member of members.values()) {
        const tooSlow = state === 'preparing' && member.answer === undefined && world.now - preparingSince > 2 * SESSION_MS;
        if (world.now - member.lastSeen <= SESSION_MS && !tooSlow) continue;
        members.delete(member.id);
        changed = true;
        if (member.answer === undefined) notice(member);
        else member.answer({ memberId: '', generation: -1, assigned: false });
      }
      if (changed) membersChanged();
    },
  };

  function membersChanged(): void {
    if (members.size === 0) {
      state = 'empty';
      return;
    }
    prepare();
    completeIfAllJoined();
  }

  function prepare(): void {
    if (state === 'preparing') return;
    state = 'preparing';
    preparingSince = world.now;
    for (const member of members.values()) if (member.answer === undefined) notice(member);
  }

  function notice(member: Member): void {
    void world.hop('heartbeat answer').then(() => member.client.onNotice());
  }

  function completeIfAllJoined(): void {
    const all = [...members.values()];
    if (state !== 'preparing' || all.some((m) => m.answer === undefined)) return;
    generation++;
    state = 'stable';
    const owner = all[world.below(all.length)]!;
    world.trace('generation', { generation, owner: owner.id, members: all.map((m) => m.id) });
    for (const member of all) {
      member.generation = generation;
      member.answer!({ memberId: member.id, generation, assigned: member === owner });
      member.answer = undefined;
    }
  }
}
