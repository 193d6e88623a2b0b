import { describe, expect, test } from 'vitest';
import { createLane, type Batch, type LaneEvent, type LedgerEntry, type LedgerEnd, type Ports, type Stray } from './lane.ts';
import { checksum, type Record } from './record.ts';
import type { Refused } from './refused.ts';

const NOW = 1_000_000;

function record(offset: number, value: string | null = `value ${offset}`): Record {
  return { offset, time: 100 + offset, key: null, value: value === null ? null : Buffer.from(value), headers: [] };
}

function records(first: number, last: number): Record[] {
  return Array.from({ length: last - first + 1 }, (_, i) => record(first + i));
}

function endAt(last: number, rest: Partial<LedgerEnd> = {}): LedgerEnd {
  const { offset, time } = record(last);
  return { incarnation: 0, last, judgedAt: 500, record: { offset, time, checksum: checksum(record(last)) }, isClosed: false, ...rest };
}

interface Setup {
  readonly end?: LedgerEnd;
  readonly committed?: { offset: number; metadata: string };
  /** what stands in Kafka */
  readonly log?: readonly Record[];
  readonly low?: number;
  readonly high?: number;
  /** by incarnation */
  readonly strays?: { readonly [incarnation: number]: readonly Stray[] };
  readonly tokenIsKept?: boolean;
  readonly schemaIds?: readonly number[];
  readonly chance?: number;
  readonly pausedLooks?: number;
  /** the first fetch is from so many offsets further on: it was asked for by the lane before this one */
  readonly strayedBy?: number;
  /** after the first look at the group's commit another one stands there, of the client itself */
  readonly isOverwritten?: boolean;
  /** too many of the last messages are bad after the batch that ends there */
  readonly brakeAt?: number;
  /** what the engine refuses by its content */
  readonly refused?: readonly Refused[];
  readonly clock?: () => number;
  /** called with what the lane is about to do; throws or changes the world */
  readonly on?: (what: string, world: World) => void;
  /** called before it is the lane's turn, with what fetches more; the ends of its turns are noted then */
  readonly onTurn?: (world: World, offer: (more: readonly Record[]) => void) => void;
}

interface World {
  isOver: boolean;
  isDraining: boolean;
  isMember: boolean;
  tokenIsKept: boolean;
  strays: { [incarnation: number]: readonly Stray[] };
  /** so often it is told that it is paused */
  pausedLooks: number;
}

/** A lane in a small world; `did` is everything that it does to the outside, in order. Ends when the lane has nothing to do any more. */
async function run({ end, committed, log = [], low = log[0]?.offset ?? 0, high = (log.at(-1)?.offset ?? -1) + 1, strays = {}, tokenIsKept = true, schemaIds = [], refused = [], chance = 1, pausedLooks = 0, strayedBy = 0, isOverwritten = false, brakeAt, clock = () => NOW, on = () => {}, onTurn }: Setup) {
  const did: string[] = [];
  const entries: LedgerEntry[] = [];
  const world: World = { isOver: false, isDraining: false, isMember: true, tokenIsKept, strays, pausedLooks };
  const act = (what: string): void => {
    on(what, world);
    did.push(what);
  };
  let fetchFrom: number | undefined;
  let ledgerEnd = end;
  const ports: Ports = {
    clock,
    isOver: () => world.isOver,
    isDraining: () => world.isDraining,
    isMember: () => world.isMember,
    async wait(ms) {
      await new Promise((resolve) => { setImmediate(resolve); });
      if (ms < 1_000) return act(`wait ${ms}`);
      if (fetchFrom !== undefined) {
        const at = fetchFrom;
        fetchFrom = undefined;
        const found = log.filter((r) => r.offset >= at + strayedBy);
        if (found.length > 0 && !lane.offer({ at: at + strayedBy, to: found.at(-1)!.offset, records: found })) did.push('offer refused');
        strayedBy = 0;
        return;
      }
      if (ms >= 60_000) world.isOver = true;
    },
    async commit(offset, metadata) {
      act(`commit ${offset} ${metadata}`);
      return !world.isOver;
    },
    async committed() {
      const found = committed;
      if (isOverwritten) committed = { offset: low, metadata: '' };
      return found;
    },
    watermarks: async () => ({ low, high }),
    fetchFrom(offset) {
      did.push(`fetch from ${offset}`);
      fetchFrom = offset;
    },
    onRoom: () => {},
    random: () => chance,
    lingerMs: () => 0,
    async turn() {
      onTurn?.(world, (more) => lane.offer({ at: more[0]!.offset, to: more.at(-1)!.offset, records: more }));
      let ended = false;
      return () => {
        if (onTurn !== undefined && !ended) did.push('end of turn');
        ended = true;
      };
    },
    brake: {
      paused: async () => (world.pausedLooks-- > 0 ? { topic: 't', partition: 0, incarnation: 0, next: 0, bad: 3, messages: 3, pausedUntil: '', leftMs: 30_000 } : undefined),
      async applies({ last }) {
        if (last !== brakeAt) return false;
        act('brake');
        world.pausedLooks = 3;
        return true;
      },
    },
    log: (event: LaneEvent, fields) => { if (['topic_made_anew', 'intent_dropped', 'partition_paused', 'partition_resumed'].includes(event)) did.push(`${event}${'incarnation' in fields ? ` ${String(fields.incarnation)}` : ''}`); },
    store: {
      ledgerEnd: async () => ledgerEnd,
      strays: async (incarnation, from, judgedSince) => (world.strays[incarnation] ?? []).filter((s) => s.judgedAt > judgedSince && s.offsets.some((o) => o >= from)),
      tokenIsKept: async () => world.tokenIsKept,
      schemaIds: async () => schemaIds,
      async insert(batch: Batch, present) {
        act(`insert ${batch.incarnation}:${batch.first}-${batch.last} at ${batch.judgedAt} of ${batch.records.filter((r) => r.value !== null && present?.has(r.offset) !== true).map((r) => r.offset).join(',')}`);
        return refused.filter(({ offset }) => batch.records.some((r) => r.offset === offset) && present?.has(offset) !== true);
      },
      async refuse(batch, letters) {
        act(`refuse ${letters.map((r) => r.offset).join(',')} of ${batch.first}-${batch.last}`);
        world.strays = { ...world.strays, [batch.incarnation]: [{ last: batch.last, judgedAt: batch.judgedAt, offsets: letters.map((r) => r.offset), deadLetters: letters.map((r) => r.offset) }] };
      },
      async record(entry) {
        entries.push(entry);
        ledgerEnd = { incarnation: entry.incarnation, last: entry.last, judgedAt: entry.judgedAt, record: entry.end, isClosed: entry.closes };
        act(`record ${entry.incarnation}:${entry.first}-${entry.last}${entry.closes ? ' closes' : ''}`);
      },
    },
  };
  const lane = createLane(ports, { maxRecords: 3, maxBytes: 1_000_000 });
  await lane.run();
  return { did, entries, lane };
}

const away = (): never => { throw Object.assign(new Error('away'), { kind: 'retry' }); };

describe('a partition never taken before', () => {
  test('is read from its first offset; each batch is announced, inserted, recorded, and the end committed when nothing follows', async () => {
    const { did } = await run({ log: records(10, 13) });
    expect(did).toEqual([
      'fetch from 10',
      `commit 10 i:0:10-12:${NOW}`, `insert 0:10-12 at ${NOW} of 10,11,12`, 'record 0:10-12',
      `commit 13 i:0:13-13:${NOW + 1}`, `insert 0:13-13 at ${NOW + 1} of 13`, 'record 0:13-13',
      'commit 14 e',
    ]);
  });

  test('the ledger gets the last record, to know the topic by, also where a hole ends the batch', async () => {
    const { entries } = await run({ log: [record(0), record(1, null), record(7)] });
    expect(entries).toMatchObject([{ first: 0, last: 7, nullValues: 1, gap: 0, end: { offset: 7, time: 107, checksum: checksum(record(7)) } }]);
  });

  test('null values alone are recorded, with nothing to insert', async () => {
    const { did, entries } = await run({ log: [record(0, null)] });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
    expect(entries).toMatchObject([{ first: 0, last: 0, nullValues: 1 }]);
  });
});

describe('a turn', () => {
  test('is waited for before a batch is cut: what comes meanwhile is in it; it ends with the batch in the ledger', async () => {
    let turns = 0;
    const { did } = await run({ log: records(0, 0), onTurn: (_, offer) => { if (turns++ === 0) offer(records(1, 1)); } });
    expect(did).toEqual(['fetch from 0', `commit 0 i:0:0-1:${NOW}`, `insert 0:0-1 at ${NOW} of 0,1`, 'record 0:0-1', 'end of turn', 'commit 2 e']);
  });

  test('ends before anything else is looked at', async () => {
    const { did } = await run({ log: records(0, 0), brakeAt: 0, onTurn: () => {} });
    expect(did.slice(did.indexOf('record 0:0-0'))).toEqual(['record 0:0-0', 'end of turn', 'brake', 'commit 1 e', 'partition_paused 0', 'partition_resumed', 'fetch from 0', 'commit 1 e']);
  });

  test('ends at once where the store is away', async () => {
    let tries = 0;
    const { did } = await run({ log: records(0, 0), onTurn: () => {}, on: (what) => { if (what.startsWith('insert') && tries++ === 0) away(); } });
    expect(did).toEqual(['fetch from 0', `commit 0 i:0:0-0:${NOW}`, 'end of turn', 'wait 100', `insert 0:0-0 at ${NOW} of 0`, 'record 0:0-0', 'commit 1 e']);
  });

  test('is of no use to a lane that is over, or whose process stops, when it comes', async () => {
    const over = await run({ log: records(0, 0), onTurn: (world) => { world.isOver = true; } });
    expect(over.did).toEqual(['fetch from 0', 'end of turn']);
    let turns = 0;
    const elsewhere = await run({ log: records(0, 0), onTurn: (_, offer) => { if (turns++ === 0) offer(records(5, 5)); } });
    expect(elsewhere.did.slice(0, 4)).toEqual(['fetch from 0', 'end of turn', 'fetch from 0', `commit 0 i:0:0-0:${NOW}`]);
    const draining = await run({ log: records(0, 0), onTurn: (world) => { world.isDraining = true; } });
    expect(draining.did).toEqual(['fetch from 0', 'end of turn', 'commit 0 e']);
  });
});

describe('a partition in the ledger', () => {
  test.each([
    ['behind', { offset: 1, metadata: 'e' }],
    ['ahead', { offset: 9, metadata: 'e' }],
    ['lost', undefined],
    ['by another program', { offset: 3, metadata: 'something' }],
    ['of the batch that the ledger ends with', { offset: 3, metadata: 'i:0:3-4:500' }],
  ])('goes on at the end of the ledger, commit %s', async (_, committed) => {
    const { did } = await run({ end: endAt(4), log: records(0, 5), ...(committed === undefined ? {} : { committed }) });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([`insert 0:5-5 at ${NOW} of 5`]);
    expect(did[0]).toBe('fetch from 4');
  });

  test('offsets gone from Kafka are recorded as the gap, also while nothing follows them', async () => {
    const { did, entries } = await run({ end: endAt(4), low: 9, high: 9 });
    expect(did).toEqual(['fetch from 9', `commit 5 i:0:5-8:${NOW}`, 'record 0:5-8', 'commit 9 e']);
    expect(entries).toMatchObject([{ gap: 4, nullValues: 0, end: { offset: 4 } }]);
  });

  test('takes nothing of a fetch from elsewhere, asked for before the group was joined again', async () => {
    const { did } = await run({ end: endAt(4), log: records(4, 9), strayedBy: 4 });
    expect(did.slice(0, 4)).toEqual(['fetch from 4', 'offer refused', 'fetch from 4', `commit 5 i:0:5-7:${NOW}`]);
  });

  test('a batch is judged later than the one before it, also when the clock was set back', async () => {
    const { did } = await run({ end: endAt(4, { judgedAt: NOW + 5_000 }), log: records(4, 5) });
    expect(did).toContain(`insert 0:5-5 at ${NOW + 5_001} of 5`);
  });
});

describe('a batch announced by a former owner', () => {
  const committed = { offset: 5, metadata: 'i:0:5-6:777:3' };

  test('is formed again with the same boundaries, moment and schema ids, whatever else there is to read by now', async () => {
    const { did } = await run({ end: endAt(4), committed, log: records(0, 9), schemaIds: [8] });
    expect(did.slice(0, 5)).toEqual(['fetch from 4', 'commit 5 i:0:5-6:777:3', 'insert 0:5-6 at 777 of 5,6', 'record 0:5-6', `commit 7 i:0:7-9:${NOW}:8`]);
  });

  test('which wrote rows already is inserted whole under its token; its dead letters are the verdict', async () => {
    const strays = { 0: [{ last: 6, judgedAt: 777, offsets: [5, 6], deadLetters: [6] }] };
    const { did } = await run({ end: endAt(4), committed, log: records(0, 6), strays });
    expect(did).toContain('insert 0:5-6 at 777 of 5');
  });

  test('whose token may be forgotten is inserted without what is there', async () => {
    const strays = { 0: [{ last: 6, judgedAt: 777, offsets: [5], deadLetters: [] }] };
    const { did } = await run({ end: endAt(4), committed, log: records(0, 6), strays, tokenIsKept: false });
    expect(did).toContain('insert 0:5-6 at 777 of 6');
  });

  test('whose records are gone from Kafka is recorded with what it wrote', async () => {
    const strays = { 0: [{ last: 6, judgedAt: 777, offsets: [5], deadLetters: [] }] };
    const { did, entries } = await run({ end: endAt(4), committed, low: 20, high: 20, strays });
    expect(did.filter((d) => d.startsWith('insert'))).toEqual([]);
    expect(entries).toMatchObject([{ first: 5, last: 6, judgedAt: 777, gap: 2 }, { first: 7, last: 19, gap: 13 }]);
  });

  test('in the first batch ever is finished from its own first offset, although the log begins later by now', async () => {
    const { did } = await run({ committed: { offset: 0, metadata: 'i:0:0-6:777' }, log: records(5, 6) });
    expect(did.slice(0, 4)).toEqual(['fetch from 5', 'commit 0 i:0:0-6:777', 'insert 0:0-6 at 777 of 5,6', 'record 0:0-6']);
  });

  test('is finished although the client has committed another position meanwhile, as it does where retention took ours', async () => {
    const { did } = await run({ end: endAt(3), committed: { offset: 4, metadata: 'i:0:4-6:700' }, isOverwritten: true, strayedBy: 1, log: records(3, 8) });
    expect(did).toEqual([
      'fetch from 3', 'offer refused', 'fetch from 3',
      'commit 4 i:0:4-6:700', 'insert 0:4-6 at 700 of 4,5,6', 'record 0:4-6',
      `commit 7 i:0:7-8:${NOW}`, `insert 0:7-8 at ${NOW} of 7,8`, 'record 0:7-8', 'commit 9 e',
    ]);
  });

  test('is no place to go on at where the ledger was restored from before it', async () => {
    const { did } = await run({ committed, log: records(0, 9) });
    expect(did[1]).toBe('fetch from 0');
    expect(did).toContain(`insert 0:0-2 at ${NOW} of 0,1,2`);
  });
});

describe('a batch whose intent is lost', () => {
  const strays = { 0: [{ last: 6, judgedAt: 777, offsets: [5], deadLetters: [] }] };

  test('is known by its rows and formed again', async () => {
    const { did } = await run({ end: endAt(4), log: records(0, 7), strays });
    expect(did.slice(0, 4)).toEqual(['fetch from 4', 'commit 5 i:0:5-6:777', 'insert 0:5-6 at 777 of 5,6', 'record 0:5-6']);
  });

  test('and may have been judged with fewer schema ids: the rest of it is a batch apart', async () => {
    const { did } = await run({ end: endAt(4), log: records(0, 6), strays, schemaIds: [1] });
    expect(did.slice(1, 4)).toEqual(['commit 5 r:0:5-6:777:1', 'insert 0:5-6 at 777 of 6', 'record 0:5-6']);
  });

  test('several, after a restore: ranges follow each other', async () => {
    const several = { 0: [{ last: 6, judgedAt: 777, offsets: [5, 6], deadLetters: [] }, { last: 8, judgedAt: 778, offsets: [8], deadLetters: [8] }] };
    const { did, entries } = await run({ end: endAt(4), log: records(0, 9), strays: several, tokenIsKept: false });
    expect(did.filter((d) => d.startsWith('insert')).slice(0, 2)).toEqual(['insert 0:5-6 at 777 of ', 'insert 0:7-8 at 778 of 7']);
    expect(entries.map((e) => [e.first, e.last])).toEqual([[5, 6], [7, 8], [9, 9]]);
  });

  test('before anything is in the ledger: its rows say where the partition began', async () => {
    const { entries } = await run({ low: 6, log: records(6, 7), strays: { 0: [{ last: 6, judgedAt: 777, offsets: [4, 5], deadLetters: [] }] } });
    expect(entries.map((e) => [e.first, e.last])).toEqual([[4, 6], [7, 7]]);
  });
});

describe('a topic made anew', () => {
  test('is known by a log that ends before the ledger', async () => {
    const { did } = await run({ end: endAt(9), log: records(0, 1) });
    expect(did.slice(0, 2)).toEqual(['topic_made_anew 1', 'fetch from 0']);
    expect(did).toContain(`insert 1:0-1 at ${NOW} of 0,1`);
  });

  test('is known by another record where the ledger ends, before anything of it is taken', async () => {
    const { did } = await run({ end: endAt(1), log: [record(0), record(1, 'another'), record(2)] });
    expect(did.slice(0, 4)).toEqual(['fetch from 1', 'offer refused', 'topic_made_anew 1', 'fetch from 0']);
    expect(did).toContain(`insert 1:0-2 at ${NOW} of 0,1,2`);
  });

  test('is known by the last record before the ledger ends where no record stands at the end', async () => {
    const { did } = await run({ end: endAt(3, { record: endAt(1).record }), log: [record(0), record(1, 'another'), record(7)] });
    expect(did.slice(0, 3)).toEqual(['fetch from 1', 'offer refused', 'topic_made_anew 1']);
  });

  test('is known by what a former owner announced in it', async () => {
    const { did } = await run({ end: endAt(1), committed: { offset: 0, metadata: 'i:1:0-1:777' }, log: records(0, 5) });
    expect(did.slice(0, 4)).toEqual(['topic_made_anew 1', 'fetch from 0', 'commit 0 i:1:0-1:777', 'insert 1:0-1 at 777 of 0,1']);
  });

  test('is known to be another than the one announced before, whose intent is dropped', async () => {
    const { did } = await run({ end: endAt(4), committed: { offset: 5, metadata: 'i:0:5-9:777' }, log: records(0, 6) });
    expect(did.slice(0, 2)).toEqual(['topic_made_anew 1', 'intent_dropped 1']);
    expect(did.join()).not.toContain('777');
  });

  test('leaves the batch under way in the ledger, closed with what it wrote', async () => {
    const strays = { 0: [{ last: 9, judgedAt: 777, offsets: [7], deadLetters: [] }] };
    const { did, entries } = await run({ end: endAt(4), log: records(0, 1), strays });
    expect(did.slice(0, 3)).toEqual(['topic_made_anew 1', 'fetch from 0', 'record 0:5-9 closes']);
    expect(entries[0]).toMatchObject({ incarnation: 0, gap: 5, judgedAt: 777, closes: true });
  });

  test('is remembered, although nothing of it is in the ledger yet', async () => {
    const { did } = await run({ end: endAt(4, { isClosed: true }), log: records(0, 9) });
    expect(did.slice(0, 2)).toEqual(['topic_made_anew 1', 'fetch from 0']);
  });
});

describe('a partition with too many bad messages', () => {
  test('is paused after the batch that showed it: its end is committed, nothing is announced or held, and it is taken again when the pause is over', async () => {
    const { did } = await run({ log: records(0, 4), brakeAt: 2 });
    expect(did).toEqual([
      'fetch from 0', `commit 0 i:0:0-2:${NOW}`, `insert 0:0-2 at ${NOW} of 0,1,2`, 'record 0:0-2', 'brake', 'commit 3 e',
      'partition_paused 0', 'partition_resumed', 'fetch from 2', `commit 3 i:0:3-4:${NOW + 1}`, `insert 0:3-4 at ${NOW + 1} of 3,4`, 'record 0:3-4', 'commit 5 e',
    ]);
  });

  test('is still paused for the next owner', async () => {
    const { did } = await run({ log: records(0, 1), pausedLooks: 2 });
    expect(did.slice(0, 3)).toEqual(['partition_paused 0', 'partition_resumed', 'fetch from 0']);
  });

  test('ends in order while it is paused', async () => {
    const { did } = await run({ log: records(0, 4), brakeAt: 2, on: (what, world) => { if (what === 'commit 3 e') world.isDraining = true; } });
    expect(did.at(-1)).toBe('commit 3 e');
  });
});

describe('writing', () => {
  test('goes on trying while the error says so, after a look at what is there', async () => {
    let failures = 0;
    const { did } = await run({
      log: records(0, 1),
      on(what, world) {
        if (!what.startsWith('insert') || failures++ > 1) return;
        world.strays = { 0: [{ last: 1, judgedAt: NOW, offsets: [0], deadLetters: [] }] };
        world.tokenIsKept = failures < 2;
        away();
      },
    });
    expect(did.filter((d) => !d.startsWith('fetch') && !d.endsWith('e'))).toEqual([
      `commit 0 i:0:0-1:${NOW}`, 'wait 100', 'wait 200', `insert 0:0-1 at ${NOW} of 1`, 'record 0:0-1',
    ]);
  });

  test('is repeated after waits twice as long each time, half of each by chance', async () => {
    const waits = async (chance: number): Promise<string[]> => {
      let failures = 0;
      const { did } = await run({ log: records(0, 0), chance, on: (what) => { if (what.startsWith('record') && failures++ < 8) away(); } });
      return did.filter((d) => d.startsWith('wait'));
    };
    expect(await waits(0)).toEqual(['wait 50', 'wait 100', 'wait 200', 'wait 400', 'wait 800']);
    expect((await waits(1)).slice(0, 4)).toEqual(['wait 100', 'wait 200', 'wait 400', 'wait 800']);
  });

  test('of messages that the engine refuses: dead letters first, the verdict; then the rest under the token', async () => {
    const { did } = await run({ log: records(0, 2), refused: [{ offset: 1, detail: 'no' }] });
    expect(did.slice(1, -1)).toEqual([`commit 0 i:0:0-2:${NOW}`, `insert 0:0-2 at ${NOW} of 0,1,2`, 'refuse 1 of 0-2', `insert 0:0-2 at ${NOW} of 0,2`, 'record 0:0-2']);
  });

  test('of a message that was refused before is not tried again by who goes on, whatever the engine says by now', async () => {
    const strays = { 0: [{ last: 2, judgedAt: 777, offsets: [1], deadLetters: [1] }] };
    const { did } = await run({ committed: { offset: 0, metadata: 'i:0:0-2:777' }, log: records(0, 2), strays });
    expect(did.slice(2, 4)).toEqual(['insert 0:0-2 at 777 of 0,2', 'record 0:0-2']);
  });

  test('ends the process where the engine refuses what it has stored before', async () => {
    const strays = { 0: [{ last: 2, judgedAt: 777, offsets: [0, 1, 2], deadLetters: [] }] };
    await expect(run({ committed: { offset: 0, metadata: 'i:0:0-2:777' }, log: records(0, 2), strays, refused: [{ offset: 1, detail: 'no' }] })).rejects.toThrow('refuses offset 1');
  });

  test('ends the process at any other error', async () => {
    await expect(run({ log: records(0, 1), on: (what) => { if (what.startsWith('record')) throw new Error('unknown'); } })).rejects.toThrow('unknown');
  });

  test('waits while the membership is in doubt, and does not happen once it is lost', async () => {
    let waits = 0;
    const { did } = await run({
      log: records(0, 1),
      on(what, world) {
        if (what.startsWith('commit 0 i')) world.isMember = false;
        if (what.startsWith('wait') && ++waits === 3) world.isOver = true;
      },
    });
    expect(did).toEqual(['fetch from 0', `commit 0 i:0:0-1:${NOW}`, 'wait 100', 'wait 100', 'wait 100']);
  });

  test('does not happen where the announcement was refused', async () => {
    const { did } = await run({ log: records(0, 1), on: (what, world) => { if (what.startsWith('commit 0 i')) world.isOver = true; } });
    expect(did.at(-1)).toMatch(/^commit 0 i/);
  });

  test('of the batch under way is finished when the process stops, its end committed, nothing new begun', async () => {
    const { did } = await run({ log: records(0, 9), on: (what, world) => { if (what.startsWith('insert')) world.isDraining = true; } });
    expect(did.slice(-3)).toEqual([`insert 0:0-2 at ${NOW} of 0,1,2`, 'record 0:0-2', 'commit 3 e']);
  });
});
