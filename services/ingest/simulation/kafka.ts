import type { Fetched, HeldRecord } from '../delivery/inbox.ts';
import { isMarked } from '../delivery/comparison.ts';
import type { RecordMark } from '../delivery/ports.ts';
import type { World } from './world.ts';

/** A record with what the model of ClickHouse evaluates it by. */
export interface Event extends HeldRecord {
  readonly partition: number;
  readonly life: number;
  readonly day: number;
  readonly bad: boolean;
  /** evaluated before this moment it is a dead letter: too far in the future */
  readonly acceptedFrom: number;
  /** under a shorter retention it is a dead letter */
  readonly ageDays: number;
  readonly schemaId: number | undefined;
  /** its row is of this period at least */
  readonly period: number;
}

/**
 * What stands at an offset: control records come in fetches but are shown to nobody, absent ones were compacted away.
 */
type Slot = Event | 'control' | 'absent';

interface Commit {
  readonly offset: number;
  readonly metadata: string;
}

interface JoinAnswer {
  readonly memberId: string;
  readonly generation: number;
  readonly assigned: readonly number[];
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

export const SESSION_MS = 10_000;
export const PARTITIONS = [0, 1] as const;

export type Log = ReturnType<typeof createLog>;
export type Group = ReturnType<typeof createGroup>;

/**
 * The log of one partition: offsets from `low` to `high` - 1, holes among them. Its start is cut by retention. Its
 * topic may be recreated (a new life, from offset 0; the group's commits go with the old one). An unclean election may
 * cut its end.
 */
export function createLog(world: World, partition: number) {
  let life = 0;
  let low = 0;
  let slots: Slot[] = [];
  /** every event ever produced */
  const history: Event[] = [];
  /** gone from Kafka before the ledger had them */
  const gone = new Set<Event>();
  /** what stood in the log at the end of each life before this one */
  const former: Slot[][] = [];
  /** retention or compaction took them, perhaps before they were read */
  const taken = new Set<Event>();
  const readers = new Set<() => void>();
  let version = 0;
  let isRecreated = false;

  return {
    partition,
    /** counts changes of the log */
    get version() {
      return version;
    },
    get life() {
      return life;
    },
    /** its present life began with an empty log */
    get isRecreated() {
      return isRecreated;
    },
    get low() {
      return low;
    },
    get high() {
      return slots.length;
    },
    history,
    gone,
    /**
     * The null values in a range of the log, in each life that has these records. `taken`: those that retention or
     * compaction took since the life began; whoever read them before has them.
     */
    nullsBetween(first: number, last: number, records: readonly RecordMark[]): { left: number; taken: number }[] {
      const isNull = (e: Slot | undefined): e is Event => typeof e === 'object' && e.value === null;
      const at = (e: Event): boolean => e.offset >= first && e.offset <= last;
      return [...former, slots].flatMap((of, inLife) => {
        const isOf = (mark: RecordMark): boolean => {
          const found = of[mark.offset] ?? 'absent';
          return typeof found === 'object'
            ? isMarked(found, mark)
            : [...taken].some((e) => e.life <= inLife && isMarked(e, mark));
        };
        if (!records.every(isOf)) return [];
        const nulls = new Set(of.slice(first, last + 1).filter(isNull));
        const away = [...taken].filter((e) => isNull(e) && at(e) && e.life <= inLife);
        return { left: [...nulls].filter((e) => !taken.has(e)).length, taken: away.length };
      });
    },
    has(event: Event): boolean {
      return event.offset >= low && slots[event.offset] === event;
    },
    slot: (offset: number): Slot | undefined => (offset < low ? undefined : slots[offset]),
    produce(kind: 'event' | 'null' | 'control' | 'absent'): void {
      const offset = slots.length;
      if (kind === 'control' || kind === 'absent') {
        slots.push(kind);
      } else {
        const event: Event = {
          offset,
          partition,
          life,
          time: world.now,
          key: null,
          value: kind === 'null' ? null : Buffer.from(`${partition}:${life}:${offset}`),
          headers: [],
          bytes: 1,
          day: world.below(4),
          bad: world.below(8) === 0,
          acceptedFrom: world.below(6) === 0 ? world.now + world.below(40_000) : 0,
          ageDays: world.below(5) === 0 ? 30 : 0,
          schemaId: world.below(8) === 0 ? 1 : undefined,
          period: world.below(10) === 0 ? 2 : 0,
        };
        slots.push(event);
        history.push(event);
      }
      wakeReaders();
    },
    /** `isStored`: the ledger has it. Retention, or compaction of one offset. */
    cutStart(to: number, isStored: (event: Event) => boolean): void {
      forget(low, to, isStored);
      take(low, to);
      low = Math.max(low, to);
      wakeReaders();
    },
    compact(offset: number, isStored: (event: Event) => boolean): void {
      forget(offset, offset + 1, isStored);
      take(offset, offset + 1);
      slots[offset] = 'absent';
    },
    recreate(isStored: (event: Event) => boolean): void {
      forget(low, slots.length, isStored);
      former.push(slots);
      life++;
      isRecreated = true;
      low = 0;
      slots = [];
      wakeReaders();
    },
    /** An unclean election: the end of the log is lost; what comes then has other content. */
    truncate(to: number, isStored: (event: Event) => boolean): void {
      forget(to, slots.length, isStored);
      former.push(slots);
      life++;
      isRecreated = false;
      slots = slots.slice(0, to);
      wakeReaders();
    },
    /**
     * What a fetch of up to `size` slots at this offset gives; a client never sees a slot that is not a record, but its
     * offset counts.
     */
    read(at: number, size: number): Fetched | 'nothing' | 'out_of_range' {
      if (at < low || at > slots.length) return 'out_of_range';
      const found: number[] = [];
      for (let offset = at; offset < slots.length && found.length < size; offset++)
        if (slots[offset] !== 'absent') found.push(offset);
      if (found.length === 0) return 'nothing';
      const records = found.flatMap((offset) => {
        const slot = slots[offset]!;
        return typeof slot === 'string' ? [] : [slot];
      });
      return { to: found.at(-1)!, records };
    },
    /** calls once when the log is another than at `seen`, perhaps at once */
    onChange(seen: number, reader: () => void): void {
      if (seen === version) readers.add(reader);
      else reader();
    },
  };

  function forget(from: number, to: number, isStored: (event: Event) => boolean): void {
    for (let offset = Math.max(low, from); offset < Math.min(to, slots.length); offset++) {
      const slot = slots[offset]!;
      if (typeof slot !== 'string' && !isStored(slot)) gone.add(slot);
    }
  }

  function take(from: number, to: number): void {
    for (const slot of slots.slice(from, to)) if (typeof slot === 'object') taken.add(slot);
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
 * A consumer group of the classic protocol. Every join begins a rebalance; it ends when all members have joined again
 * or were dropped, with a generation more and an owner for each partition. A commit is taken from any member that
 * stamps the present generation:
 * also for a partition that it does not own, and also while a rebalance is in progress. The answer of a commit may be
 * lost; its order is kept.
 */
export function createGroup(world: World, name: string) {
  let generation = 0;
  let nextId = 0;
  let state: 'empty' | 'preparing' | 'stable' = 'empty';
  let preparingSince = 0;
  const committed = new Map<number, Commit>();
  const members = new Map<string, Member>();

  return {
    name,
    committed: (partition: number): Commit | undefined => committed.get(partition),
    get isEmpty() {
      return members.size === 0;
    },
    /** by the operator, or with the topic */
    setCommitted(partition: number, commit: Commit | undefined): void {
      if (commit === undefined) committed.delete(partition);
      else committed.set(partition, commit);
    },
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
    commit(memberId: string, stamp: number, partition: number, commit: Commit): void {
      if (!members.has(memberId) || stamp !== generation) {
        world.count('commits refused');
        throw new Error('ILLEGAL_GENERATION');
      }
      world.trace('commit', { by: memberId, stamp, partition, ...commit });
      committed.set(partition, commit);
    },
    /**
     * Time has passed: heartbeats of whoever is reachable, then the end of sessions and of a rebalance that takes too
     * long.
     */
    tick(): void {
      for (const member of members.values()) {
        if (!member.client.isReachable()) continue;
        member.lastSeen = world.now;
        if (state === 'stable' && member.generation === generation) member.client.onHeartbeat();
      }
      let changed = false;
      for (const member of members.values()) {
        const tooSlow =
          state === 'preparing' && member.answer === undefined && world.now - preparingSince > 2 * SESSION_MS;
        if (world.now - member.lastSeen <= SESSION_MS && !tooSlow) continue;
        members.delete(member.id);
        changed = true;
        if (member.answer === undefined) notice(member);
        else member.answer({ memberId: '', generation: -1, assigned: [] });
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
    const owners = PARTITIONS.map(() => all[world.below(all.length)]!);
    world.trace('generation', {
      group: name,
      generation,
      owners: owners.map((m) => m.id),
      members: all.map((m) => m.id),
    });
    for (const member of all) {
      member.generation = generation;
      member.answer!({ memberId: member.id, generation, assigned: PARTITIONS.filter((p) => owners[p] === member) });
      member.answer = undefined;
    }
  }
}
