import { describe, expect, test } from 'vitest';
import type { Rules } from '../evaluate/evaluate.ts';
import { checksum } from '../evaluate/record.ts';
import type { HeldRecord } from './inbox.ts';
import { encodeIntent, type Intent } from './intent.ts';
import { Joints } from './joint.ts';
import { Lane } from './lane.ts';
import type { Companion, LedgerEnd, LedgerEntry, OrphanRows, Owner, Ports, RecordMark } from './ports.ts';

const NOW = 1_000_000;
/** the value of a message that becomes a dead letter */
const BAD = 'bad';
const RULES: Rules = {
  version: 1,
  evaluatedAt: NOW,
  retentionDays: 90,
  maxEventBytes: 1,
  rawAvro: false,
  schemaIds: [],
  period: 50,
};

function record(offset: number, value: string | null = `value ${offset}`): HeldRecord {
  const bytes = value === null ? null : Buffer.from(value);
  return { offset, time: 100 + offset, key: null, value: bytes, headers: [], bytes: 150 };
}

function records(first: number, last: number): HeldRecord[] {
  return Array.from({ length: last - first + 1 }, (_, i) => record(first + i));
}

function markAt(offset: number): RecordMark {
  return { offset, time: record(offset).time, checksum: checksum(record(offset)) };
}

function endAt(last: number, rest: Partial<LedgerEnd> = {}): LedgerEnd {
  return { incarnation: 0, last, period: 40, group: 'ours', record: markAt(last), isClosed: false, ...rest };
}

/** An intent of a former owner. */
function intentOf(first: number, last: number, rest: Partial<Rules> = {}): Intent {
  return { incarnation: 0, first, last, rules: { ...RULES, evaluatedAt: 777, ...rest } };
}

interface Setup {
  readonly end?: LedgerEnd;
  readonly owner?: Owner | undefined;
  /** claims of which ClickHouse has only the token */
  readonly lostEpochs?: readonly number[];
  /** the group's commit */
  readonly metadata?: string;
  readonly committedAt?: number;
  /** what stands in Kafka */
  readonly log?: readonly HeldRecord[];
  readonly low?: number;
  readonly high?: number;
  /** the end of the log at each further look at it */
  readonly thenHigh?: readonly number[];
  readonly orphans?: readonly OrphanRows[];
  /** of the ledger, ascending */
  readonly marks?: readonly RecordMark[];
  readonly pageOfMarks?: number;
  /** offsets whose rows are past retention */
  readonly expired?: readonly number[];
  readonly chance?: number;
  /** the first fetch is from so many offsets further on: it was asked for by the lane before this one */
  readonly strayedBy?: number;
  /** after the log comes a fetch without a record, up to this offset */
  readonly emptyUpTo?: number;
  /** too many of the last messages are bad after the batch that ends there */
  readonly badAt?: number;
  /** of the former group */
  readonly theirMetadata?: string;
  /** the commit is refused, although the lane is not over: the process stops, and gives up its retries */
  readonly isRefused?: (what: string) => boolean;
  /** called with what the lane is about to do; throws or changes the world */
  readonly on?: (what: string, world: World, lane: Lane) => void;
  /** called before it gets a permit, with what fetches more; permits are noted then */
  readonly onPermit?: (world: World, offer: (more: readonly HeldRecord[]) => void, lane: Lane) => void | Promise<void>;
  /** a batch that is not full waits so long */
  readonly lingerMs?: number;
  /** called while it waits for that, or as long for anything else */
  readonly onLinger?: (lane: Lane, world: World) => void | Promise<void>;
  readonly others?: readonly Companion[];
  /** how long the batches of a joint insert wait for each other */
  readonly deadline?: Promise<void>;
  /** of the lanes before it */
  readonly joints?: Joints;
  /** called when it looks whether too many messages were bad */
  readonly onPauses?: (world: World) => void;
  /** called before it gets the rules of a batch */
  readonly onRules?: () => void;
  /** called while it inserts dead letters; its rows are noted then */
  readonly onDeadLetters?: () => Promise<void>;
  /** called when it ends inserts that may still run */
  readonly onEndRunning?: () => void;
  /** called when it looks for rows beyond the ledger, of this period and later ones */
  readonly onOrphans?: (period: number, world: World) => void;
}

interface World {
  isOver: boolean;
  isDraining: boolean;
  isMember: boolean;
  /** monotonic milliseconds */
  now: number;
  members: boolean;
  pausedLooks: number;
  owner: Owner | undefined;
  orphans: readonly OrphanRows[];
}

const NOTED = new Set([
  'topic_recreated',
  'intent_dropped',
  'partition_paused',
  'partition_resumed',
  'waiting_for_group',
  'partition_claimed',
  'clickhouse_unavailable',
  'available_again',
]);
const OURS: Owner = { group: 'ours', epoch: 1, former: undefined, isSettled: true };

/**
 * A lane in a small world; `did` is everything that it does to the outside, in order. Ends when the lane has nothing to
 * do any more.
 */
async function run(setup: Setup) {
  const {
    end,
    log = [],
    low = log[0]?.offset ?? 0,
    high = (log.at(-1)?.offset ?? -1) + 1,
    orphans = [],
    marks = [],
    pageOfMarks = 1_000,
    expired = [],
    chance = 1,
    badAt,
    isRefused = () => false,
    on = () => {},
    onPermit,
    lingerMs = 0,
    onLinger,
    others = [],
    deadline,
    joints = new Joints(),
    onPauses = () => {},
    onRules = () => {},
    onDeadLetters,
    onEndRunning = () => {},
    onOrphans = () => {},
  } = setup;
  const did: string[] = [];
  const entries: LedgerEntry[] = [];
  const counted: number[] = [];
  const world: World = {
    isOver: false,
    isDraining: false,
    isMember: true,
    now: 0,
    members: false,
    pausedLooks: 0,
    owner: 'owner' in setup ? setup.owner : OURS,
    orphans,
  };
  let { strayedBy = 0 } = setup;
  const ends = [high, ...(setup.thenHigh ?? [])];
  let fetchFrom: number | undefined;
  let { emptyUpTo } = setup;
  let ledgerEnd = end;
  let badSince = end !== undefined && end.last === badAt;
  const act = (what: string): void => {
    on(what, world, lane);
    did.push(what);
  };
  const ports: Ports = {
    group: 'ours',
    clock: () => NOW,
    monotonic: () => world.now,
    random: () => chance,
    isOver: () => world.isOver,
    isDraining: () => world.isDraining,
    isMember: () => world.isMember,
    async wait(ms) {
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
      if (ms < 10_000) world.now += ms;
      if (world.now > 600_000) throw new Error('it waits for ever');
      if (onLinger !== undefined && ms === lingerMs) return onLinger(lane, world);
      if (ms < 1_000) return act(`wait ${ms}`);
      if (fetchFrom !== undefined) {
        const at = fetchFrom + strayedBy;
        strayedBy = 0;
        fetchFrom = undefined;
        const found = log.filter((r) => r.offset >= at);
        if (found.length > 0 && !lane.offer({ at, to: found.at(-1)!.offset, records: found }))
          did.push('offer refused');
        return;
      }
      if (emptyUpTo !== undefined) {
        lane.offer({ at: log.at(-1)!.offset + 1, to: emptyUpTo, records: [] });
        emptyUpTo = undefined;
        return;
      }
      if (ms >= 60_000) world.isOver = true;
    },
    async commit(offset, metadata) {
      const what = `commit ${offset} ${metadata}`;
      act(what);
      return !world.isOver && !isRefused(what);
    },
    async committed(group) {
      const metadata = group === 'ours' ? setup.metadata : setup.theirMetadata;
      return metadata === undefined ? undefined : { offset: setup.committedAt ?? 0, metadata };
    },
    hasMembers: async () => world.members,
    watermarks: async () => ({ low, high: ends.length > 1 ? ends.shift()! : ends[0]! }),
    fetchFrom(offset) {
      act(`fetch from ${offset}`);
      fetchFrom = offset;
    },
    onTaken: () => {},
    onRoom: () => {},
    joints,
    after: () => deadline ?? new Promise((resolve) => void setImmediate(resolve)),
    others: () => others,
    dueAt: (since) => since + lingerMs,
    async permit() {
      await onPermit?.(
        world,
        (more) => lane.offer({ at: more[0]!.offset, to: more.at(-1)!.offset, records: more }),
        lane,
      );
      let isReleased = false;
      return () => {
        if (onPermit !== undefined && !isReleased) did.push('release');
        isReleased = true;
      };
    },
    badShare: {
      paused: async () => (world.pausedLooks-- > 0 ? { leftMs: 30_000 } : undefined),
      add: (deadLetters) => void counted.push(deadLetters),
      async pauses(_, next) {
        onPauses(world);
        if (!badSince || next !== (badAt ?? -1) + 1) return false;
        badSince = false;
        act(`pause at ${next}`);
        world.pausedLooks = 3;
        return true;
      },
    },
    unavailable: (error) => (error instanceof Error && error.message === 'away' ? 'clickhouse' : undefined),
    log: (event, fields) => {
      if (NOTED.has(event)) did.push(`${event}${'incarnation' in fields ? ` ${String(fields.incarnation)}` : ''}`);
    },
    store: {
      ledgerEnd: async () => ledgerEnd,
      marks: async (_, before) =>
        marks
          .filter((m) => m.offset < before)
          .toReversed()
          .slice(0, pageOfMarks),
      async orphans(incarnation, from, period) {
        onOrphans(period, world);
        return world.orphans.filter(
          (o) => o.incarnation > incarnation || [...o.offsets, ...o.deadOffsets].some((offset) => offset >= from),
        );
      },
      compare: async (_, found) =>
        found.map(({ offset, value }) => {
          if (value?.toString() === `value ${offset}`) return 'same';
          return expired.includes(offset) || offset > (end?.last ?? -1) ? 'nothing' : 'another';
        }),
      register: async () => ({ period: 50, owner: world.owner }),
      async claim(epoch) {
        act(`claim ${epoch}`);
        if (setup.lostEpochs?.includes(epoch) === true) return;
        const { group, former } = world.owner ?? { group: 'ours', former: undefined };
        world.owner = { group: 'ours', epoch, former: group === 'ours' ? former : group, isSettled: group === 'ours' };
      },
      async rulesFor(_, evaluatedAt, period) {
        onRules();
        return { ...RULES, evaluatedAt, period };
      },
      endRunning: async () => onEndRunning(),
      async insert(batch, without, attempt, fence, seat) {
        const ended = await fence();
        if (ended !== undefined) return ended;
        const offsets = batch.records.filter((r) => r.value !== null && !without.has(r.offset)).map((r) => r.offset);
        act(
          `insert ${batch.incarnation}:${batch.first}-${batch.last} at ${batch.rules.evaluatedAt} of ${offsets.join(',')}${attempt === 0 ? '' : ` under ${attempt}`}${seat === undefined ? '' : ' with others'}`,
        );
        await onDeadLetters?.();
        const insertAll = async () => {
          if (onDeadLetters !== undefined) act('rows');
          return 'done' as const;
        };
        await seat?.insert({ rows: offsets, fence, insertAll });
        world.orphans = [
          ...world.orphans,
          {
            incarnation: batch.incarnation,
            last: batch.last,
            evaluatedAt: batch.rules.evaluatedAt,
            offsets,
            deadOffsets: [],
            minTimestamp: undefined,
          },
        ];
        const deadLetters = batch.records.filter((r) => r.value?.toString() === BAD).length;
        return { rows: offsets.length - deadLetters, deadLetters, minTimestamp: undefined };
      },
      requestRepair: async ({ first, last }) => act(`repair ${first}-${last}`),
      async writeLedger(entry) {
        const { incarnation, first, last, rules, closes } = entry;
        act(`record ${incarnation}:${first}-${last}${closes ? ' closes' : ''}`);
        entries.push(entry);
        badSince = true;
        ledgerEnd = { incarnation, last, period: rules.period, group: 'ours', record: entry.end, isClosed: closes };
      },
    },
  };
  const lane = new Lane(ports, { maxRecords: 3, maxBytes: 1_000_000 });
  await lane.run();
  return { did, entries, counted, lane };
}

const announced = (first: number, last: number, evaluatedAt = NOW, incarnation = 0): string =>
  `commit ${first} ${encodeIntent({ incarnation, first, last, rules: { ...RULES, evaluatedAt } })}`;
const orphan = (last: number, offsets: number[], rest: Partial<OrphanRows> = {}): OrphanRows => ({
  incarnation: 0,
  last,
  evaluatedAt: 777,
  offsets,
  deadOffsets: [],
  minTimestamp: undefined,
  ...rest,
});
const away = (): never => {
  throw new Error('away');
};

describe('a partition never taken before', () => {
  test('is read from its first offset; each batch is announced, inserted, recorded, and the end committed when nothing follows', async () => {
    const { did } = await run({ log: records(10, 13) });
    expect(did).toEqual([
      'fetch from 10',
      announced(10, 12),
      `insert 0:10-12 at ${NOW} of 10,11,12`,
      'record 0:10-12',
      announced(13, 13),
      `insert 0:13-13 at ${NOW} of 13`,
      'record 0:13-13',
      'commit 14 e',
    ]);
  });

  test('the ledger gets first and last record, to know the topic by, also where a hole ends the batch', async () => {
    const { entries } = await run({ log: [record(0), record(1, null), record(7)] });
    expect(entries).toMatchObject([
      { first: 0, last: 7, stored: { rows: 2 }, nullValues: 1, noRecords: 5, gap: 0, begin: markAt(0), end: markAt(7) },
    ]);
  });

  test('null values alone are recorded, with nothing to insert', async () => {
    const { did, entries } = await run({ log: [record(0, null)] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
    expect(entries).toMatchObject([{ first: 0, last: 0, nullValues: 1 }]);
  });
});

describe('a permit', () => {
  test('is waited for before a batch is cut: what comes meanwhile is in it; the ledger has room of its own', async () => {
    let permits = 0;
    const { did } = await run({
      log: records(0, 0),
      onPermit: (_, offer) => {
        if (permits++ === 0) offer(records(1, 1));
      },
    });
    expect(did).toEqual([
      'fetch from 0',
      announced(0, 1),
      `insert 0:0-1 at ${NOW} of 0,1`,
      'release',
      'record 0:0-1',
      'commit 2 e',
    ]);
  });

  test('is taken once for each batch, and released', async () => {
    let taken = 0;
    const { did } = await run({ log: records(0, 0), onPermit: () => void taken++ });
    expect([taken, did.filter((d) => d === 'release').length]).toEqual([1, 1]);
  });

  test('is released while ClickHouse is unavailable', async () => {
    let tries = 0;
    const { did } = await run({
      log: records(0, 0),
      onPermit: () => {},
      on: (what) => {
        if (what.startsWith('insert') && tries++ === 0) away();
      },
    });
    expect(did).toEqual([
      'fetch from 0',
      announced(0, 0),
      'release',
      'clickhouse_unavailable',
      'wait 100',
      `insert 0:0-0 at ${NOW} of 0`,
      'available_again',
      'release',
      'record 0:0-0',
      'commit 1 e',
    ]);
  });

  test('is of no use to a lane that is over, or whose process stops, when it comes', async () => {
    const over = await run({
      log: records(0, 0),
      onPermit: (world) => {
        world.isOver = true;
      },
    });
    expect(over.did).toEqual(['fetch from 0', 'release']);
    const draining = await run({
      log: records(0, 0),
      onPermit: (world) => {
        world.isDraining = true;
      },
    });
    expect(draining.did).toEqual(['fetch from 0', 'release', 'commit 0 e']);
  });
});

describe('a joint insert', () => {
  /** A lane with so much waiting, which comes if `comes`. */
  function companion(size: number, comes: boolean, rooms: unknown[]): Companion {
    return {
      inbox: { size, bytes: 100 * size },
      invite(room, seat) {
        rooms.push({ ...room });
        if (comes) seat();
        return comes;
      },
    };
  }

  test('is of the lane that is due and those that come along, within what one batch may be', async () => {
    const rooms: unknown[] = [];
    const others = [companion(1, true, rooms), companion(1, false, rooms), companion(1, true, rooms)];
    const { did } = await run({ log: records(0, 0), others });
    const maxBytes = 1_000_000 - record(0).bytes;
    expect(rooms).toEqual([
      { maxRecords: 2, maxBytes },
      { maxRecords: 1, maxBytes: maxBytes - 100 },
      { maxRecords: 1, maxBytes: maxBytes - 100 },
    ]);
    expect(did.slice(1, 4)).toEqual([announced(0, 0), `insert 0:0-0 at ${NOW} of 0 with others`, 'record 0:0-0']);
  });

  test('has a permit again where the lane that invited gave its own back', async () => {
    let [looks, permits] = [0, 0];
    const deadline = Promise.withResolvers<void>();
    const { did } = await run({
      log: records(0, 0),
      others: [companion(1, true, [])],
      deadline: deadline.promise,
      onPermit() {
        if (++permits === 2) deadline.resolve();
      },
      onRules: () => {
        if (looks++ === 0) away();
      },
    });
    expect(did.filter((d) => d === 'release' || d.startsWith('insert'))).toEqual([
      'release',
      `insert 0:0-0 at ${NOW} of 0 with others`,
      'release',
    ]);
  });

  test('is none where nobody comes', async () => {
    const rooms: unknown[] = [];
    const alone = await run({ log: records(0, 0), others: [companion(1, false, rooms)] });
    expect(alone.did).toContain(`insert 0:0-0 at ${NOW} of 0`);
  });

  test('has who was invited while it waited: it needs no permit, and leaves when its rows are there', async () => {
    let left = 0;
    const answers: boolean[] = [];
    const { did } = await run({
      log: records(0, 1),
      lingerMs: 500,
      onPermit: () => expect.fail('it goes with the permit of the other'),
      onLinger(lane) {
        const seat = { insert: async () => 'done' as const, isAwaited: () => true, leave: () => left++ };
        const invite = (maxRecords: number, maxBytes: number): boolean =>
          lane.invite({ maxRecords, maxBytes }, () => seat);
        answers.push(invite(1, 1_000), invite(2, 10), invite(2, 1_000), invite(2, 1_000));
      },
    });
    // too many records, too many bytes, yes, and not twice
    expect(answers).toEqual([false, false, true, false]);
    expect(did).toEqual([
      'fetch from 0',
      announced(0, 1),
      `insert 0:0-1 at ${NOW} of 0,1 with others`,
      'record 0:0-1',
      'commit 2 e',
    ]);
    expect(left).toBeGreaterThan(0);
  });

  test('has who was invited while it waited for a permit, which others get then', async () => {
    const { did } = await run({
      log: records(0, 0),
      onPermit: (_world, _offer, lane) =>
        queueMicrotask(() => {
          const seat = { insert: async () => 'done' as const, isAwaited: () => true, leave: () => {} };
          expect(lane.invite({ maxRecords: 1, maxBytes: 1_000 }, () => seat)).toBe(true);
        }),
    });
    expect(did).toEqual([
      'fetch from 0',
      'release',
      announced(0, 0),
      `insert 0:0-0 at ${NOW} of 0 with others`,
      'record 0:0-0',
      'commit 1 e',
    ]);
  });

  test('has who was invited while an earlier wait for a permit ended', async () => {
    const permit = Promise.withResolvers<void>();
    const answers: boolean[] = [];
    let lingers = 0;
    let offer: (more: readonly HeldRecord[]) => void = () => {};
    const invite = (lane: Lane): void => {
      const seat = { insert: async () => 'done' as const, isAwaited: () => true, leave: () => {} };
      answers.push(lane.invite({ maxRecords: 1, maxBytes: 1_000 }, () => seat));
    };
    const { did } = await run({
      log: records(0, 0),
      lingerMs: 500,
      onPermit(_world, offerMore, lane) {
        offer = offerMore;
        queueMicrotask(() => invite(lane));
        return permit.promise;
      },
      on: (what) => {
        if (what === 'record 0:0-0') offer(records(1, 1));
      },
      async onLinger(lane) {
        if (lingers++ === 0) return;
        permit.resolve();
        await new Promise((resolve) => void setImmediate(resolve));
        invite(lane);
      },
    });
    expect(answers).toEqual([true, true]);
    expect(did).toContain(`insert 0:1-1 at ${NOW} of 1 with others`);
  });

  test('does not wait for who failed, whose next try needs a permit', async () => {
    const seat = new Joints().begin(new Promise(() => {})).seat();
    let tries = 0;
    const { did } = await run({
      log: records(0, 0),
      lingerMs: 500,
      onPermit: () => {},
      onLinger: (lane) => void lane.invite({ maxRecords: 1, maxBytes: 1_000 }, () => seat),
      on(what) {
        if (what.startsWith('insert') && tries++ === 0) away();
        if (what === 'wait 100') expect(seat.isAwaited()).toBe(false);
      },
    });
    expect(did.filter((d) => d === 'release' || d.startsWith('record'))).toEqual(['release', 'record 0:0-0']);
  });

  test('goes without a batch whose dead letters take too long, which is inserted alone with a permit', async () => {
    const deadline = Promise.withResolvers<void>();
    const seat = new Joints().begin(deadline.promise).seat();
    const order: string[] = [];
    const { did } = await run({
      log: records(0, 0),
      lingerMs: 500,
      onPermit: () => void order.push('permit'),
      onLinger: (lane) => void lane.invite({ maxRecords: 1, maxBytes: 1_000 }, () => seat),
      async onDeadLetters() {
        order.push('dead letters');
        deadline.resolve();
        await deadline.promise;
      },
      on: (what) => void order.push(what.split(' ')[0]!),
    });
    expect(order).toEqual(['fetch', 'commit', 'insert', 'dead letters', 'permit', 'rows', 'record', 'commit']);
    expect(did.filter((d) => ['rows', 'release'].includes(d) || d.startsWith('record'))).toEqual([
      'rows',
      'release',
      'record 0:0-0',
    ]);
  });

  test('of lanes before it is ended before a lane looks what is stored', async () => {
    const joints = new Joints();
    const seat = joints.begin(new Promise(() => {})).seat();
    let kills = 0;
    const { did } = await run({
      joints,
      end: endAt(4),
      log: records(4, 5),
      orphans: [],
      onEndRunning() {
        if (++kills === 3) seat.leave();
      },
      on: (what) => {
        if (kills < 3) expect.fail(`${what} before it is ended`);
      },
    });
    expect(did).toContain('record 0:5-5');
    // the fourth is of the look
    expect(kills).toBe(4);
  });

  test('does not wait for who lost its partition when it was invited', async () => {
    let left = 0;
    const { did, lane } = await run({
      log: records(0, 0),
      lingerMs: 500,
      onLinger(invited, world) {
        invited.invite({ maxRecords: 3, maxBytes: 1_000 }, () => ({
          insert: async () => 'done',
          isAwaited: () => true,
          leave: () => left++,
        }));
        world.isOver = true;
      },
    });
    expect(did).toEqual(['fetch from 0']);
    expect(left).toBeGreaterThan(0);
    expect(lane.invite({ maxRecords: 3, maxBytes: 1_000 }, () => expect.fail('it waits no longer'))).toBe(false);
  });
});

describe('a partition in the ledger', () => {
  test('offsets gone from Kafka are recorded as the gap, also while nothing follows them', async () => {
    const { did, entries } = await run({ end: endAt(4), low: 9, high: 9 });
    expect(did).toEqual(['fetch from 9', announced(5, 8), 'record 0:5-8', 'commit 9 e']);
    expect(entries).toMatchObject([{ gap: 4, noRecords: 0, nullValues: 0, end: { offset: 4 } }]);
  });

  test('offsets without a record in front of what is there are no gap', async () => {
    const { entries } = await run({ end: endAt(4), log: [record(4), record(8)] });
    expect(entries).toMatchObject([{ first: 5, last: 8, gap: 0, noRecords: 3 }]);
  });

  test('takes nothing of a fetch from elsewhere, asked for before the group was joined again', async () => {
    const { did } = await run({ end: endAt(4), log: records(4, 9), strayedBy: 4 });
    expect(did.slice(0, 4)).toEqual(['fetch from 4', 'offer refused', 'fetch from 4', announced(5, 7)]);
  });

  test('commits its end again where the group had that offset before the ledger had it', async () => {
    const { did } = await run({ end: endAt(4), metadata: 'e', committedAt: 6, log: records(4, 5) });
    expect(did.slice(-2)).toEqual(['record 0:5-5', 'commit 6 e']);
  });

  test('no row of a later batch is of an earlier period, whatever the register says', async () => {
    const { entries } = await run({ end: endAt(4, { period: 90 }), log: records(4, 5) });
    expect(entries[0]!.rules.period).toBe(90);
  });
});

test('no row of a batch that follows a recovered one is of an earlier period', async () => {
  const intent = intentOf(5, 6, { period: 90 });
  const { entries } = await run({ end: endAt(4), metadata: encodeIntent(intent), log: records(4, 8) });
  expect(entries.map(({ last, rules }) => [last, rules.period])).toEqual([
    [6, 90],
    [8, 90],
  ]);
});

describe('the end of what is stored', () => {
  test('is committed when nothing follows, also where a former commit says so already', async () => {
    const { did } = await run({ end: endAt(4), metadata: 'e', committedAt: 7, log: records(4, 6) });
    expect(did.slice(1)).toEqual([announced(5, 6), `insert 0:5-6 at ${NOW} of 5,6`, 'record 0:5-6', 'commit 7 e']);
  });

  test('is not committed again where the group has it', async () => {
    const { did } = await run({ end: endAt(4), metadata: 'e', committedAt: 5, log: records(4, 4) });
    expect(did).toEqual(['fetch from 4']);
  });
});

describe('an open batch', () => {
  test('is formed again with the boundaries and rules of its announcement, whatever else there is to read by now', async () => {
    const intent = intentOf(5, 6, { schemaIds: [3], retentionDays: 7 });
    const { did } = await run({ end: endAt(4), metadata: encodeIntent(intent), log: records(0, 9) });
    expect(did.slice(0, 5)).toEqual([
      'fetch from 4',
      `commit 5 ${encodeIntent(intent)}`,
      'insert 0:5-6 at 777 of 5,6',
      'record 0:5-6',
      announced(7, 9),
    ]);
  });

  test('gets what is missing, and its rollups are rebuilt before the ledger knows it', async () => {
    const { did } = await run({
      end: endAt(4),
      metadata: encodeIntent(intentOf(5, 6)),
      log: records(0, 6),
      orphans: [orphan(6, [5])],
    });
    expect(did.slice(2, 5)).toEqual(['insert 0:5-6 at 777 of 6', 'repair 5-6', 'record 0:5-6']);
  });

  test('of an earlier period than the ledger, which a restored one may have, is looked for from its own period on', async () => {
    const periods: number[] = [];
    await run({
      end: endAt(4, { period: 90 }),
      metadata: encodeIntent(intentOf(5, 6)),
      log: records(4, 6),
      onOrphans: (period) => periods.push(period),
    });
    expect([...new Set(periods)]).toEqual([90, 50]);
  });

  test('whose records are gone from Kafka is recorded with what it wrote', async () => {
    const { did, entries } = await run({
      end: endAt(4),
      metadata: encodeIntent(intentOf(5, 6)),
      low: 20,
      high: 20,
      orphans: [orphan(6, [5])],
    });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
    expect(entries).toMatchObject([
      { first: 5, last: 6, stored: { rows: 1 }, gap: 1 },
      { first: 7, last: 19, gap: 13 },
    ]);
  });

  test('of which the ledger has expired is recorded again with what it wrote, and nothing of it is inserted', async () => {
    const { did } = await run({ low: 50, high: 50, orphans: [orphan(19, [10, 19]), orphan(49, [20, 49])] });
    expect(did.filter((d) => /^(insert|record|commit \d+ e)/.test(d))).toEqual([
      'record 0:10-19',
      'record 0:20-49',
      'commit 50 e',
    ]);
  });

  test('whose announcement is lost is known by its rows, and announced again with its moment and the least period that its rows may have', async () => {
    const { did } = await run({ end: endAt(4), log: records(0, 7), orphans: [orphan(6, [5])] });
    const again = encodeIntent(intentOf(5, 6, { period: 40 }));
    expect(did.slice(0, 5)).toEqual([
      'fetch from 4',
      `commit 5 ${again}`,
      'insert 0:5-6 at 777 of 6',
      'repair 5-6',
      'record 0:5-6',
    ]);
  });

  test('may end in offsets without a record that are fetched alone', async () => {
    const setup: Setup = {
      end: endAt(3),
      metadata: encodeIntent(intentOf(4, 9)),
      log: records(3, 8),
      emptyUpTo: 9,
      high: 10,
    };
    const { did, lane } = await run(setup);
    expect(did).toContain('insert 0:4-9 at 777 of 4,5,6,7,8');
    expect(lane.isRecovering).toBe(false);
  });

  test('may end in offsets without a record that come while the open batch before it is written', async () => {
    const { did } = await run({
      end: endAt(4),
      log: records(4, 8),
      orphans: [orphan(6, [5]), orphan(9, [7])],
      high: 10,
      on: (what, _, lane) => {
        if (what.startsWith('insert 0:5-6')) lane.offer({ at: 9, to: 9, records: [] });
      },
    });
    expect(did.filter((d) => d.startsWith('record'))).toEqual(['record 0:5-6', 'record 0:7-9']);
  });

  test('is remembered where the client overwrites the announcement, as it does where retention took our position', async () => {
    let looks = 0;
    const { did, lane } = await run({
      end: endAt(3),
      log: records(3, 8),
      strayedBy: 1,
      onEndRunning: () => void looks++,
      get metadata() {
        return looks < 2 ? encodeIntent(intentOf(4, 6)) : 'e';
      },
    });
    expect(lane.isRecovering).toBe(false);
    expect(did.slice(0, 5)).toEqual([
      'fetch from 3',
      'offer refused',
      'fetch from 3',
      `commit 4 ${encodeIntent(intentOf(4, 6))}`,
      'insert 0:4-6 at 777 of 4,5,6',
    ]);
  });

  test('is remembered there too where this lane announced it, and takes its partition back from another group', async () => {
    const log = records(0, 0);
    let tries = 0;
    const { did } = await run({
      log,
      metadata: 'e',
      on(what, world) {
        if (!what.startsWith('insert') || tries++ > 0) return;
        world.owner = { group: 'theirs', epoch: 2, former: 'ours', isSettled: true };
        log.push(record(1));
        away();
      },
    });
    expect(did.filter((d) => d.startsWith('commit'))).toEqual([
      announced(0, 0),
      announced(0, 0),
      announced(1, 1),
      'commit 2 e',
    ]);
  });

  test('without a record ends for the ledger at the last record of the one before', async () => {
    const { entries } = await run({
      end: endAt(4),
      metadata: encodeIntent(intentOf(7, 9)),
      orphans: [orphan(6, [5])],
      log: records(4, 6),
      emptyUpTo: 9,
      high: 10,
    });
    expect(entries.map((e) => [e.last, e.end?.offset])).toEqual([
      [6, 6],
      [9, 6],
    ]);
  });

  test('is not waited for where the log is cut before its end meanwhile', async () => {
    const { did } = await run({
      end: endAt(3),
      metadata: encodeIntent(intentOf(4, 6)),
      marks: [markAt(0), markAt(3)],
      log: records(0, 4),
      high: 7,
      thenHigh: [5],
    });
    expect(did).toContain('topic_recreated 1');
  });
});

describe('a log that is another', () => {
  test('ends before the ledger and has nothing of it: the next life is read from its start', async () => {
    const log = [record(0, 'another'), record(1, 'another')];
    const { did } = await run({ end: endAt(9), marks: [markAt(0), markAt(9)], log });
    expect(did).toContain('topic_recreated 1');
    expect(did).toContain(`insert 1:0-1 at ${NOW} of 0,1`);
  });

  test("has another record at the ledger's end: nothing of it is taken before the lives are compared", async () => {
    const log = [record(0, 'another'), record(1, 'another'), record(2)];
    const { did } = await run({ end: endAt(1), marks: [markAt(0), markAt(1)], log });
    expect(did.slice(0, 2)).toEqual(['fetch from 1', 'offer refused']);
    expect(did).toContain(`insert 1:0-2 at ${NOW} of 0,1,2`);
  });

  test("has the same bytes at the ledger's end, but of another time: it is another record", async () => {
    const log = [record(0, 'another'), { ...record(1), time: 1 }, record(2)];
    const { did } = await run({ end: endAt(1), marks: [markAt(0), markAt(1)], log });
    expect(did.slice(0, 2)).toEqual(['fetch from 1', 'offer refused']);
    expect(did).toContain(`insert 1:0-2 at ${NOW} of 0,1,2`);
  });

  test("has no record at the ledger's end, but a control record of a transaction: it is read from its start", async () => {
    const log = [0, 2, 4, 6, 8].map((offset) => record(offset, 'another'));
    const { did, entries } = await run({ end: endAt(5), marks: [markAt(0), markAt(5)], log });
    expect(did).toContain('topic_recreated 1');
    expect(entries.map(({ incarnation, first, last }) => [incarnation, first, last])).toEqual([
      [1, 0, 4],
      [1, 5, 8],
    ]);
  });

  test("lost the record at the ledger's end alone: nothing that is stored is stored again", async () => {
    const log = [...records(0, 4), record(6, 'new'), record(7, 'new')];
    const { did } = await run({ end: endAt(5), marks: [markAt(0), markAt(5)], log });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:6-7 at ${NOW} of 6,7`]);
  });

  test('lost its end and other records to compaction, and raw its oldest rows: nothing that is stored is stored again', async () => {
    const log = [1, 2, 3, 4, 6, 7].map((offset) => record(offset, offset === 1 ? 'expired' : `value ${offset}`));
    const { did } = await run({ end: endAt(5), marks: [0, 2, 4, 5].map(markAt), log: [...log, record(8, 'new')] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:6-8 at ${NOW} of 6,7,8`]);
  });

  test('lost every mark to compaction, and raw a row of what is left: nothing that is stored is stored again', async () => {
    const log = [record(2, 'expired'), record(5), record(11, 'new'), record(12, 'new')];
    const { did } = await run({ end: endAt(10), marks: [markAt(0), markAt(10)], log, low: 0, expired: [2] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:11-12 at ${NOW} of 11,12`]);
  });

  test('has no record at any mark, and one where another is stored: it is read from the first record after those that are stored', async () => {
    const log = [record(2, 'expired'), record(5), record(6, 'another'), record(7, 'another'), record(11, 'another')];
    const { did } = await run({ end: endAt(10), marks: [markAt(0), markAt(10)], log, low: 0, expired: [2, 6] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 1:6-11 at ${NOW} of 6,7,11`]);
  });

  test('lost its end in an election, other records to compaction, and raw a row of what is left: nothing that is stored is stored again', async () => {
    const log = [record(2, 'expired'), record(5), record(10, 'another'), record(11, 'another')];
    const { did } = await run({ end: endAt(10), marks: [markAt(0), markAt(10)], log, low: 0, expired: [2] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 1:10-11 at ${NOW} of 10,11`]);
  });

  test('lost ten thousand marks to compaction: a few fetches find the one that is left', async () => {
    const marks = Array.from({ length: 10_000 }, (_, i) => markAt(2 * i));
    const log = [record(0), record(1), record(3), record(20_001, 'new')];
    const { did } = await run({ end: endAt(19_998), marks, log });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:19999-20001 at ${NOW} of 20001`]);
    expect(did.filter((d) => d.startsWith('fetch')).length).toBeLessThan(30);
  });

  test('lost more marks to compaction than are looked at: the comparison finds what is left', async () => {
    const marks = Array.from({ length: 10_000 }, (_, i) => markAt(2 * i));
    const log = [record(0), record(1), record(3), record(20_001, 'new')];
    const { did } = await run({ end: endAt(19_998), marks, log, pageOfMarks: 10 });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:19999-20001 at ${NOW} of 20001`]);
    expect(did.filter((d) => d.startsWith('fetch')).length).toBeLessThan(50);
  });

  test('is long, and was cut: a few fetches find where it differs', async () => {
    const marks = Array.from({ length: 10_000 }, (_, i) => markAt(10 * i));
    const log = [
      ...marks.flatMap(({ offset }) => (offset <= 70_000 ? [record(offset)] : [])),
      record(70_001, 'another'),
    ];
    const { did } = await run({ end: endAt(99_990), marks, log });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 1:70001-70001 at ${NOW} of 70001`]);
    expect(did.filter((d) => d.startsWith('fetch')).length).toBeLessThan(30);
  });

  test.each([
    ['the look at its end', [2], 1_000],
    // the end is committed by then
    ['a second look at its end', [3, 2], 6_000],
  ])(
    "is recreated after %s, and ends right before the ledger's last record: it is read from its start",
    async (_, thenHigh, at) => {
      const log = [record(0, 'another'), record(1, 'another')];
      const fetchedAt: number[] = [];
      const { did } = await run({
        end: endAt(2),
        marks: [markAt(0), markAt(2)],
        log,
        high: 3,
        thenHigh,
        on: (what, world) => {
          if (what.startsWith('fetch')) fetchedAt.push(world.now);
        },
      });
      expect(did).toContain(`insert 1:0-1 at ${NOW} of 0,1`);
      expect(fetchedAt.slice(0, 2)).toEqual([0, at]);
    },
  );

  test('lost its end in an unclean election: nothing that is stored is stored again', async () => {
    const log = [...records(0, 4), record(5, 'another'), record(6, 'another')];
    const { did, entries } = await run({ end: endAt(9), marks: [0, 2, 3, 6, 7, 9].map(markAt), log });
    expect(did).toContain(`insert 1:5-6 at ${NOW} of 5,6`);
    expect(entries).toMatchObject([{ incarnation: 1, first: 5, last: 6 }]);
  });

  test('lost its end, and its first record to compaction: nothing that is stored is stored again', async () => {
    const log = [record(1), record(2), record(5, 'another')];
    const { did } = await run({ end: endAt(9), marks: [markAt(0), markAt(9)], log, low: 0 });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 1:5-5 at ${NOW} of 5`]);
  });

  test("lost the record at the ledger's end, and has another one at the mark before: the newest mark decides", async () => {
    const log = [...records(0, 3), record(4, 'another'), record(6, 'another')];
    const { did } = await run({ end: endAt(5), marks: [0, 2, 3, 4, 5].map(markAt), log });
    expect(did).toContain(`insert 1:4-6 at ${NOW} of 4,6`);
  });

  test('is only shorter: the next life begins at its end', async () => {
    const { did, entries } = await run({ end: endAt(9), marks: [0, 2, 3, 6, 7, 9].map(markAt), log: records(0, 4) });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
    expect(entries).toEqual([]);
  });

  test('leaves the batch that was open in the ledger, closed with what it wrote', async () => {
    const log = [record(0, 'another'), record(1, 'another')];
    const { did, entries } = await run({
      end: endAt(4),
      marks: [markAt(0), markAt(4)],
      log,
      orphans: [orphan(9, [7])],
    });
    expect(did).toContain('record 0:5-9 closes');
    expect(entries[0]).toMatchObject({ incarnation: 0, stored: { rows: 1 }, gap: 4, closes: true });
  });
});

describe('a partition of another group', () => {
  const theirs: Owner = { group: 'theirs', epoch: 4, former: undefined, isSettled: true };

  test('is waited for while that has members, then claimed, and claimed once more five seconds later, before it is looked at', async () => {
    let looks = 0;
    const claimedAt: number[] = [];
    const orphansReadAt: number[] = [];
    const { did } = await run({
      owner: theirs,
      log: records(0, 0),
      onOrphans: (_, world) => void orphansReadAt.push(world.now),
      on: (what, world) => {
        if (what.startsWith('wait')) world.members = ++looks < 2;
        if (what.startsWith('claim')) claimedAt.push(world.now);
      },
    });
    expect(did.slice(0, 4)).toEqual(['claim 5', 'partition_claimed', 'claim 6', 'fetch from 0']);
    // a writer of the former group learns of the claim within 4.5 s (register.ts)
    expect(claimedAt).toEqual([0, 5_000]);
    expect(orphansReadAt).toEqual([5_000]);
  });

  test('is not claimed once more by a process that stops meanwhile', async () => {
    const { did } = await run({
      owner: theirs,
      log: records(0, 0),
      lingerMs: 5_000,
      // woken after a second
      onLinger: (_, world) => void Object.assign(world, { now: 1_000, isDraining: true }),
    });
    expect(did).toEqual(['claim 5', 'partition_claimed']);
  });

  test('is claimed under the next epoch where ClickHouse kept only the token of a claim', async () => {
    let claims = 0;
    const { did } = await run({
      owner: theirs,
      lostEpochs: [5, 7],
      log: records(0, 0),
      on: (what) => {
        if (what.startsWith('claim') && ++claims > 4) throw new Error('it claims for ever');
      },
    });
    expect(did.filter((d) => d.startsWith('claim'))).toEqual(['claim 5', 'claim 6', 'claim 7', 'claim 8']);
    expect(did).toContain('record 0:0-0');
  });

  test('is claimed only while this process is surely a member: a late claim would take it from its next owner', async () => {
    const { did } = await run({
      owner: theirs,
      log: records(0, 0),
      on: (what, world) => {
        if (what === 'claim 5') world.isMember = false;
        if (what === 'wait 100' && world.now >= 5_300) world.isMember = true;
      },
    });
    expect(did.slice(0, 6)).toEqual(['claim 5', 'partition_claimed', 'wait 100', 'wait 100', 'wait 100', 'claim 6']);
  });

  test('is not claimed by a process that lost its membership while that was in doubt', async () => {
    const { did } = await run({
      owner: theirs,
      log: records(0, 0),
      on: (what, world) => {
        if (what === 'claim 5') world.isMember = false;
        if (what === 'wait 100') world.isOver = true;
      },
    });
    expect(did).toEqual(['claim 5', 'partition_claimed', 'wait 100']);
  });

  test('begins with the batch that the other group announced, also where nothing of it is stored', async () => {
    const intent = intentOf(4, 6);
    const { did } = await run({
      owner: theirs,
      end: endAt(3),
      theirMetadata: encodeIntent(intent),
      log: records(3, 8),
    });
    expect(did).toContain('insert 0:4-6 at 777 of 4,5,6');
  });

  test('begins with that batch too where only the ledger says that the other group had it', async () => {
    const { did } = await run({
      end: endAt(3, { group: 'theirs' }),
      owner: { ...OURS, epoch: 2 },
      theirMetadata: encodeIntent(intentOf(4, 6)),
      log: records(3, 8),
    });
    expect(did).toContain('insert 0:4-6 at 777 of 4,5,6');
  });

  test('that takes ours while we write: nothing more is inserted', async () => {
    const { did } = await run({
      log: records(0, 5),
      on: (what, world) => {
        if (what.startsWith('commit 0 b')) Object.assign(world, { owner: theirs, members: true, isDraining: true });
      },
    });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
  });

  test('nothing is recorded either, also of a batch that has nothing to insert', async () => {
    const { did } = await run({
      log: [record(0, null), record(1, null)],
      on: (what, world) => {
        if (what.startsWith('commit 0 b')) Object.assign(world, { owner: theirs, members: true, isDraining: true });
      },
    });
    expect(did.filter((d) => d.startsWith('record'))).toEqual([]);
  });
});

describe('a partition with too many bad messages', () => {
  test('is paused before the next batch is cut: its end is committed, nothing is announced or held, and it is taken again when the pause is over', async () => {
    const { did } = await run({ log: records(0, 4), badAt: 2 });
    expect(did).toEqual([
      'fetch from 0',
      announced(0, 2),
      `insert 0:0-2 at ${NOW} of 0,1,2`,
      'record 0:0-2',
      'pause at 3',
      'commit 3 e',
      'partition_paused',
      'partition_resumed',
      'fetch from 2',
      announced(3, 4),
      `insert 0:3-4 at ${NOW} of 3,4`,
      'record 0:3-4',
      'commit 5 e',
    ]);
  });

  test('is paused as soon as they are stored, also where nothing follows', async () => {
    const { did } = await run({ log: records(0, 2), badAt: 2 });
    expect(did.slice(3, 6)).toEqual(['record 0:0-2', 'pause at 3', 'commit 3 e']);
  });

  test('is paused before its first batch where the owner before it has stored them', async () => {
    const { did } = await run({ end: endAt(4), log: records(4, 5), badAt: 4 });
    expect(did.slice(0, 3)).toEqual(['fetch from 4', 'pause at 5', 'commit 5 e']);
  });

  test('is known by the dead letters of each batch', async () => {
    const log = [record(0, BAD), record(1), record(2, BAD), record(3), record(4, BAD)];
    expect((await run({ log })).counted).toEqual([2, 1]);
  });

  test('ends in order while it is paused, and holds no records then', async () => {
    const { did, lane } = await run({
      log: records(0, 4),
      badAt: 2,
      on: (what, world) => {
        if (what === 'commit 3 e') world.isDraining = true;
      },
    });
    expect(did.at(-1)).toBe('partition_paused');
    expect(lane.inbox).toMatchObject({ next: 3, size: 0 });
  });
});

describe('writing', () => {
  test('goes on after an insert with an unknown outcome by a look at what is there', async () => {
    let tries = 0;
    const { did } = await run({
      log: records(0, 1),
      on(what, world) {
        if (!what.startsWith('insert') || tries++ > 0) return;
        world.orphans = [orphan(1, [0], { evaluatedAt: NOW })];
        away();
      },
    });
    expect(did.slice(1, -1)).toEqual([
      announced(0, 1),
      'clickhouse_unavailable',
      'wait 100',
      `insert 0:0-1 at ${NOW} of 1`,
      'repair 0-1',
      'available_again',
      'record 0:0-1',
    ]);
  });

  test('is repeated after waits twice as long each time, half of each by chance', async () => {
    const waits = async (chance: number): Promise<string[]> => {
      let failures = 0;
      const { did } = await run({
        log: records(0, 0),
        chance,
        on: (what) => {
          if (what.startsWith('record') && failures++ < 5) away();
        },
      });
      return did.filter((d) => d.startsWith('wait')).slice(0, 4);
    };
    expect(await waits(0)).toEqual(['wait 50', 'wait 100', 'wait 200', 'wait 400']);
    expect(await waits(1)).toEqual(['wait 100', 'wait 200', 'wait 400', 'wait 800']);
  });

  test('ends the process at any other error, naming the statement and the batch in one line', async () => {
    await expect(
      run({
        log: records(0, 1),
        on: (what) => {
          if (what.startsWith('record')) throw new Error('unknown\nstack');
        },
      }),
    ).rejects.toThrow(/^the ledger row of batch 0:0-1 failed: unknown$/);
    await expect(
      run({
        log: records(0, 1),
        on: (what) => {
          if (what.startsWith('insert')) throw new Error('unknown');
        },
      }),
    ).rejects.toThrow(/^the insert of batch 0:0-1 failed: unknown$/);
  });

  test('waits for more of each batch anew, and holds nothing of what is written', async () => {
    let waits = 0;
    const { lane } = await run({
      log: records(0, 0),
      lingerMs: 500,
      onLinger: () => void waits++,
      on: (what, _, lane) => {
        if (what.startsWith('record 0:0')) lane.offer({ at: 1, to: 1, records: records(1, 1) });
      },
    });
    expect(waits).toBe(2);
    expect(lane.inbox).toMatchObject({ written: 2, heldBytes: 0 });
  });

  test('waits while the membership is in doubt, and does not happen once it is lost', async () => {
    let waits = 0;
    const { did } = await run({
      log: records(0, 1),
      on(what, world) {
        if (what.startsWith('commit 0 b')) world.isMember = false;
        if (what.startsWith('wait') && ++waits === 3) world.isOver = true;
      },
    });
    expect(did).toEqual(['fetch from 0', announced(0, 1), 'wait 100', 'wait 100', 'wait 100']);
  });

  test('does not happen where the announcement was refused, and the lane is over', async () => {
    const { did } = await run({
      log: records(0, 1),
      on: (what, world) => {
        if (what.startsWith('commit 0 b')) world.isOver = true;
      },
    });
    expect(did.at(-1)).toBe(announced(0, 1));
  });

  test('does not happen where a process that stops gave the announcement up, although the fence would let it', async () => {
    const { did } = await run({
      log: records(0, 1),
      on: (what, world) => {
        if (what.startsWith('commit 0 b')) world.isDraining = true;
      },
      isRefused: (what) => what.startsWith('commit 0 b'),
    });
    expect(did).toEqual(['fetch from 0', announced(0, 1)]);
  });

  test('ends without another wait if the process stops during the look at bad messages', async () => {
    let waits = 0;
    const { did } = await run({
      log: records(0, 0),
      lingerMs: 5_000,
      onLinger: () => void waits++,
      onPauses: (world) => void Object.assign(world, { isDraining: true }),
    });
    expect(did).toEqual(['fetch from 0', 'commit 0 e']);
    expect(waits).toBe(0);
  });

  test('of the batch in flight is finished when the process stops, its end committed, nothing new begun', async () => {
    const { did } = await run({
      log: records(0, 9),
      on: (what, world) => {
        if (what.startsWith('insert')) world.isDraining = true;
      },
    });
    expect(did.slice(-3)).toEqual([`insert 0:0-2 at ${NOW} of 0,1,2`, 'record 0:0-2', 'commit 3 e']);
  });
});
