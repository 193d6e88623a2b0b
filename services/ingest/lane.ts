import type { Clock } from '../../common/clock.ts';
import type { Brake, Pause } from './brake.ts';
import { createInbox, type Cut, type CutLimits, type Fetched, type Inbox } from './inbox.ts';
import { decodeIntent, encodeIntent, type Intent } from './intent.ts';
import { checksum, type Record } from './record.ts';
import type { Refused } from './refused.ts';

/**
 * The delivery protocol of one partition, from the moment it is assigned until it is taken away.
 *
 * Guarantee: the rows in the raw table, dead_letters, the ledger and every rollup are those of ONE split of the partition's offsets into
 * batches, each batch applied once. How:
 *   intent  before a batch is written, its boundaries and the moment of judgement are committed to the group's metadata. Kafka refuses that
 *           commit to a member of an old generation, so only the owner can announce a batch, and the next owner finds what may be under way.
 *   token   the batch is inserted under a token of its own; the same token counts once in every table and view, while it is remembered.
 *   ledger  one row, written last. Its end, not the group's offset, is where the next owner goes on.
 * On taking a partition, an announced batch that the ledger lacks is formed again with the same boundaries and inserted under the same token.
 * Messages that the engine refuses become dead letters before anything else of their batch is written: they are the verdict, whoever goes on with it.
 * Where the intent is lost (group deleted or reset, ClickHouse restored), rows beyond the ledger's end (strays) tell which batches were under way.
 * A topic made anew is known by the record at the ledger's end being another, or the log ending before what is known of it: a new incarnation.
 * Knows neither Kafka's client nor ClickHouse nor timers: everything comes through the ports, which `npm run simulate` replaces by models.
 */
export interface LedgerEnd {
  readonly incarnation: number;
  readonly last: number;
  readonly judgedAt: number;
  /** undefined where this life of the topic had no record yet */
  readonly record: LastRecord | undefined;
  /** this life of the topic is known to be over */
  readonly isClosed: boolean;
}

/** The last record at or before the end of a batch, to recognise the topic by: one made anew has another there. */
export interface LastRecord {
  readonly offset: number;
  readonly time: number;
  readonly checksum: number;
}

export interface Batch extends Intent {
  readonly records: readonly Record[];
}

/** Rows of a batch that the ledger does not have. */
export interface Stray {
  readonly last: number;
  readonly judgedAt: number;
  /** rows and dead letters, ascending */
  readonly offsets: readonly number[];
  readonly deadLetters: readonly number[];
}

/** What is there of a batch that the ledger does not have; undefined = nothing. */
export async function strayOf(store: Pick<Store, 'strays'>, { incarnation, first, last, judgedAt }: Intent): Promise<Stray | undefined> {
  return (await store.strays(incarnation, first, judgedAt - 1)).find((s) => s.last === last && s.judgedAt === judgedAt);
}

/** Rows and dead letters are counted where they stand; an offset that is none of what is counted here had no record. */
export interface LedgerEntry extends Intent {
  readonly nullValues: number;
  /** at most so many of the others were gone from Kafka before they were taken */
  readonly gap: number;
  readonly end: LastRecord | undefined;
  /** nothing follows in this life of the topic */
  readonly closes: boolean;
}

/** The tables as the protocol needs them. Errors with `kind: 'retry'` are tried again; any other ends the process. */
export interface Store {
  ledgerEnd(): Promise<LedgerEnd | undefined>;
  /** batches with rows at or after `from` in this life of the topic that were judged after that moment, ascending */
  strays(incarnation: number, from: number, judgedSince: number): Promise<Stray[]>;
  /** true while the token of a batch judged then cannot have left the deduplication window, nor the window been lost with its table or with the machine's power */
  tokenIsKept(judgedAt: number): Promise<boolean>;
  /** ids of the schema registry that these records can be decoded with, asked for before their batch is announced */
  schemaIds(records: readonly Record[]): Promise<readonly number[]>;
  /** inserts the batch under its token, without the records whose offset is in `present`. Where the engine refuses some by their content: those, and nothing is written */
  insert(batch: Batch, present?: ReadonlySet<number>): Promise<readonly Refused[]>;
  /** makes dead letters of these records of the batch, under a token of their own */
  refuse(batch: Batch, refused: readonly Refused[]): Promise<void>;
  record(entry: LedgerEntry): Promise<void>;
}

export interface Ports {
  readonly clock: Clock;
  /** from 0 to 1 */
  readonly random: () => number;
  readonly store: Store;
  readonly brake: Brake;
  /** the lane lost its partition: nothing may be announced any more */
  isOver(): boolean;
  /** the process stops: the batch under way is finished, its end committed, nothing new begun */
  isDraining(): boolean;
  /** false while this process may have lost its membership without knowing (no heartbeat for half a session) */
  isMember(): boolean;
  /** resolves after that time, or earlier when the lane is over or woken */
  wait(ms: number): Promise<void>;
  /** commits for this partition in the lane's own generation; false = the lane is over */
  commit(offset: number, metadata: string): Promise<boolean>;
  /** the group's commit for this partition */
  committed(): Promise<{ offset: number; metadata: string } | undefined>;
  /** first offset in Kafka and the one after the last */
  watermarks(): Promise<{ low: number; high: number }>;
  /** from now on the lane is offered what stands at `offset` and after */
  fetchFrom(offset: number): void;
  /** called after every cut and after every batch: there is room in the inbox, then less is held */
  onRoom(): void;
  /** how long a first record waits for company, milliseconds */
  lingerMs(): number;
  /** resolves when this lane may write a batch, to what ends its turn */
  turn(): Promise<() => void>;
  log(event: LaneEvent, fields: object): void;
}

export type LaneEvent =
  | 'partition_taken' | 'batch_recovered' | 'stray_rows_found' | 'topic_made_anew' | 'offsets_gone' | 'intent_dropped'
  | 'messages_refused' | 'partition_paused' | 'partition_resumed' | 'store_away' | 'store_back' | 'lane_over';

/** Metadata of a commit without a batch under way. */
export const IDLE = 'e';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
/** A paused lane looks this often whether it may go on, milliseconds. */
const PAUSE_LOOK_MS = 2_000;
/** A lane with nothing to write commits its end after this long, milliseconds. */
const IDLE_COMMIT_MS = 1_000;
/** An offer or the end of the lane ends a wait earlier; this is only its bound, milliseconds. */
const IDLE_WAIT_MS = 60_000;

export interface Lane {
  /** Hands over what was fetched from the offset `at`; false = not wanted now (the lane is still being taken, or asked for another offset). */
  offer(fetched: Fetched & { readonly at: number }): boolean;
  /** The client's position moved by itself, over offsets without a record up to this one. */
  moved(to: number): void;
  /** Runs until the lane is over; rejects when the process must not go on. */
  run(): Promise<void>;
  readonly inbox: Inbox;
  /** paused: too many of the partition's last messages were bad */
  readonly state: 'taking' | 'running' | 'storing' | 'paused';
  /** waits for the whole of a batch that was announced, perhaps under other limits than ours */
  readonly isRecovering: boolean;
}

class Retake extends Error {}

/** Does nothing before run(). `limits`: of one batch; one that was announced under others keeps its own boundaries. */
export function createLane(ports: Ports, limits: CutLimits): Lane {
  const { store } = ports;
  let inbox = createInbox(0);
  let state: Lane['state'] = 'taking';
  let incarnation = 0;
  let isRecovering = false;
  let lastJudgedAt = 0;
  /** announced, and not in the ledger as far as is known: where retention took our position, the client commits another one, and the announcement is gone from the group */
  let unfinished: Intent | undefined;
  /** offset of the group's commit where no batch is announced with it */
  let committedEnd: number | undefined;
  let lastRecord: LastRecord | undefined;
  /** the ledger's last record, to be met again before anything is taken */
  let expected: LastRecord | undefined;
  /** what the next offer was fetched from, unless the log began again, its start moved, or the fetch is of before a rejoin: then the partition is taken again */
  let asked = 0;
  /** what ended the present take: a fetch from elsewhere than our position, or the record at the ledger's end is another */
  let retake: 'elsewhere' | 'changed' | undefined;
  let endTurn = (): void => {};

  return {
    get inbox() { return inbox; },
    get state() { return state; },
    get isRecovering() { return isRecovering; },
    offer,
    moved,
    run,
  };

  function offer(fetched: Fetched & { readonly at: number }): boolean {
    if (state === 'taking' || state === 'paused' || retake !== undefined) return false;
    if (fetched.at !== asked) {
      retake = 'elsewhere';
    } else if (expected !== undefined) {
      const { offset, time, checksum: expectedChecksum } = expected;
      asked = fetched.to + 1;
      if (asked <= offset) return true;
      const record = fetched.records.find((r) => r.offset === offset);
      if (record !== undefined && (record.time !== time || checksum(record) !== expectedChecksum)) retake = 'changed';
      expected = undefined;
    }
    if (retake !== undefined) return false;
    asked = fetched.to + 1;
    inbox.offer(fetched);
    return true;
  }

  function moved(to: number): void {
    if (state !== 'taking' && state !== 'paused') asked = Math.max(asked, to + 1);
  }

  async function run(): Promise<void> {
    while (!ports.isOver()) {
      try {
        await whilePaused();
        const recover = await take();
        if (ports.isOver()) break;
        for (const step of recover) await step();
        await work();
      } catch (error) {
        if (error instanceof Over) break;
        if (!(error instanceof Retake)) throw error;
      }
    }
    ports.log('lane_over', { next: inbox.next });
  }

  /** Nothing of the partition is held or announced meanwhile; whoever has it looks in the same place whether it may go on. */
  async function whilePaused(): Promise<void> {
    state = 'taking';
    let pause: Pause | undefined;
    while ((pause = await persistently(() => ports.brake.paused())) !== undefined) {
      if (ports.isOver() || ports.isDraining()) throw new Over();
      if (state === 'taking') ports.log('partition_paused', pause);
      state = 'paused';
      inbox = createInbox(inbox.next);
      ports.onRoom();
      await ports.wait(Math.min(pause.leftMs, PAUSE_LOOK_MS));
    }
    if (state === 'paused') ports.log('partition_resumed', {});
  }

  /** Finds where to go on, and what must be finished first. */
  async function take(): Promise<(() => Promise<void>)[]> {
    state = 'taking';
    isRecovering = false;
    let isPast = retake === 'changed';
    retake = undefined;
    expected = undefined;
    const { low, high } = await persistently(() => ports.watermarks());
    const committed = await persistently(() => ports.committed());
    const intent = decodeIntent(committed?.metadata) ?? unfinished;
    unfinished = intent;
    // last: what the former owner had under way may have come to its end meanwhile
    const end = await persistently(() => store.ledgerEnd());
    const steps: (() => Promise<void>)[] = [];

    isPast ||= end?.isClosed === true;
    incarnation = end?.incarnation ?? intent?.incarnation ?? 0;
    lastJudgedAt = end?.judgedAt ?? 0;
    lastRecord = end?.record;
    /** one after the last offset of this life in the ledger; undefined = it has none */
    let position = end === undefined ? undefined : end.last + 1;
    let strays = await persistently(() => store.strays(incarnation, position ?? 0, lastJudgedAt));
    for (;;) {
      const known = [(position ?? 0) - 1, intent?.incarnation === incarnation ? intent.last : -1, ...strays.map((s) => s.last)];
      isPast ||= Math.max(...known) >= high || (intent !== undefined && intent.incarnation > incarnation);
      if (!isPast) break;
      for (const batch of batchesOf(strays, position)) {
        steps.push(() => closeBatch(batch));
        lastJudgedAt = Math.max(lastJudgedAt, batch.judgedAt);
      }
      incarnation++;
      isPast = false;
      lastRecord = undefined;
      position = undefined;
      strays = await persistently(() => store.strays(incarnation, 0, 0));
      ports.log('topic_made_anew', { incarnation, ledger_end: end?.last, low, high });
    }
    if (lastRecord !== undefined && lastRecord.offset >= low) expected = lastRecord;

    const announced = intent?.incarnation === incarnation ? intent : undefined;
    // where the ledger has nothing, the first offset ever taken: of a batch under way it may be gone from Kafka by now
    const next = position ?? Math.min(low, announced?.first ?? low, strays[0]?.offsets[0] ?? low);
    if (announced !== undefined && announced.first === next && strays.every((s) => s.last === announced.last && s.judgedAt === announced.judgedAt)) {
      steps.push(() => recoverBatch(announced, undefined));
    } else {
      if (intent !== undefined && (announced === undefined || announced.last >= next)) ports.log('intent_dropped', { intent, incarnation, next, high });
      if (strays.length > 0) ports.log('stray_rows_found', { incarnation, next, batches: strays.map((s) => ({ last: s.last, rows: s.offsets.length })) });
      for (const [i, batch] of batchesOf(strays, next).entries()) steps.push(() => recoverBatch(batch, strays[i]));
    }

    inbox = createInbox(next);
    committedEnd = committed?.offset === next && intent === undefined ? next : undefined;
    if (low > next) {
      ports.log('offsets_gone', { incarnation, first: next, last: low - 1 });
      inbox.offer({ to: low - 1, records: [] });
    }
    ports.log('partition_taken', { incarnation, next, low, high });
    state = 'running';
    asked = expected === undefined ? inbox.end : expected.offset;
    ports.fetchFrom(asked);
    return steps;
  }

  /** The batches that strays are of: each begins where the one before it ended. */
  function batchesOf(strays: readonly Stray[], position: number | undefined): Intent[] {
    let next = position ?? strays[0]?.offsets[0] ?? 0;
    return strays.map(({ last, judgedAt }) => {
      const first = next;
      next = last + 1;
      return { incarnation, first, last, judgedAt };
    });
  }

  /** stray: what is known of a batch whose intent is lost */
  async function recoverBatch(intent: Intent, stray: Stray | undefined): Promise<void> {
    let cut: Cut | undefined;
    isRecovering = true;
    while ((cut = inbox.cutAt(intent.last)) === undefined) await nextOffer(intent.last);
    isRecovering = false;
    const { records } = cut;
    ports.log('batch_recovered', { ...intent, records: records.length });
    if (stray === undefined) return apply({ ...intent, records }, true);
    const schemaIds = await persistently(() => store.schemaIds(records));
    // the ids of the lost intent are among those of today: where there are none, the verdicts are the same
    const isRest = schemaIds.length > 0 && records.some((r) => r.value !== null && !stray.offsets.includes(r.offset));
    await apply({ ...intent, schemaIds, isRest, records }, true);
  }

  /** Into the ledger with what it wrote: the records of its life are gone. */
  async function closeBatch(batch: Intent): Promise<void> {
    await persistently(async () => {
      await asMember();
      await store.record({ ...batch, nullValues: 0, gap: batch.last - batch.first + 1, end: undefined, closes: true });
    });
  }

  async function work(): Promise<void> {
    let waitingSince: number | undefined;
    for (;;) {
      check();
      if (ports.isDraining()) {
        if (committedEnd !== inbox.next) await commitEnd();
        throw new Over();
      }
      if (inbox.end === inbox.next) {
        const behind = committedEnd !== inbox.next;
        await ports.wait(behind ? IDLE_COMMIT_MS : IDLE_WAIT_MS);
        check();
        if (behind && inbox.end === inbox.next) await commitEnd();
        continue;
      }
      const now = ports.clock();
      waitingSince ??= now;
      const waited = now - waitingSince;
      const linger = ports.lingerMs();
      if (inbox.size < limits.maxRecords && inbox.bytes < limits.maxBytes && waited >= 0 && waited < linger) {
        await ports.wait(linger - waited);
        continue;
      }
      endTurn = await ports.turn();
      try {
        check();
        if (ports.isDraining()) continue;
        waitingSince = undefined;
        const cut = inbox.cut(limits);
        if (cut !== undefined) await write(cut);
      } finally {
        endTurn();
      }
    }
  }

  async function write({ first, last, records }: Cut): Promise<void> {
    ports.onRoom();
    const schemaIds = await persistently(() => store.schemaIds(records));
    // later than any batch before it, also when the clock was set back: strays are looked for by this time
    const judgedAt = Math.max(ports.clock(), lastJudgedAt + 1);
    await apply({ incarnation, first, last, judgedAt, schemaIds, records }, false);
  }

  async function commitEnd(): Promise<void> {
    if (!(await ports.commit(inbox.next, IDLE))) throw new Over();
    committedEnd = inbox.next;
  }

  /** intent → insert → ledger. The next batch's intent, or an idle commit, commits this one's end. */
  async function apply(batch: Batch, isRecovered: boolean): Promise<void> {
    state = 'storing';
    lastJudgedAt = batch.judgedAt;
    if (!(await ports.commit(batch.first, encodeIntent(batch)))) throw new Over();
    committedEnd = undefined;
    const { records, ...intent } = batch;
    unfinished = intent;
    const events = records.filter((r) => r.value !== null).length;
    if (events > 0) await insert(batch, isRecovered);
    const begin = records[0]?.offset ?? batch.last + 1;
    const gap = begin > batch.first ? Math.max(0, Math.min((await persistently(() => ports.watermarks())).low, begin) - batch.first) : 0;
    const record = records.at(-1);
    if (record !== undefined) lastRecord = { offset: record.offset, time: record.time, checksum: checksum(record) };
    await persistently(async () => {
      await asMember();
      await store.record({ ...batch, nullValues: records.length - events, gap, end: lastRecord, closes: false });
    });
    unfinished = undefined;
    endTurn();
    state = 'running';
    inbox.release();
    if (await persistently(() => ports.brake.applies(batch, events))) {
      await commitEnd();
      throw new Retake();
    }
    ports.onRoom();
  }

  async function insert(batch: Batch, isRecovered: boolean): Promise<void> {
    let mayBeThere = isRecovered;
    await persistently(async () => {
      for (;;) {
        let present: ReadonlySet<number> | undefined;
        await asMember();
        while (mayBeThere && present === undefined) {
          present = await presentOf(batch);
          // so long ago that it is no longer known what is there
          if (!ports.isMember()) present = undefined;
          await asMember();
        }
        mayBeThere = true;
        const refused = await store.insert(batch, present);
        if (refused.length === 0) return;
        const stray = await strayOf(store, batch);
        const isRow = refused.find(({ offset }) => stray?.offsets.includes(offset) === true && !stray.deadLetters.includes(offset));
        if (isRow !== undefined) throw new Error(`ClickHouse refuses offset ${isRow.offset}, which it has stored before: ${isRow.detail}`);
        await asMember();
        await store.refuse(batch, refused);
        ports.log('messages_refused', { incarnation: batch.incarnation, count: refused.length, first: refused[0]!.offset, detail: refused[0]!.detail });
      }
    });
  }

  /**
   * What an insert must leave out. The token keeps out whatever is there already and completes the rollups with it; where it may be forgotten,
   * or the rest is judged anew, all that is there is left out. Dead letters always are: they are the verdict.
   */
  async function presentOf(batch: Intent): Promise<ReadonlySet<number>> {
    const stray = await strayOf(store, batch);
    if (stray === undefined) return new Set();
    return new Set(batch.isRest !== true && (await store.tokenIsKept(batch.judgedAt)) ? stray.deadLetters : stray.offsets);
  }

  function check(): void {
    if (ports.isOver()) throw new Over();
    if (retake !== undefined) throw new Retake();
  }

  /** On the way to `last`. Where the log ends before it, the topic was made anew since it was looked at. */
  async function nextOffer(last: number): Promise<void> {
    check();
    if (ports.isDraining()) throw new Over();
    await ports.wait(IDLE_WAIT_MS);
    if ((await persistently(() => ports.watermarks())).high <= last) throw new Retake();
  }

  /** Resolves while no other can have been the owner for long: what we write must not arrive when its token is forgotten. */
  async function asMember(): Promise<void> {
    while (!ports.isMember() && !ports.isOver()) await ports.wait(RETRY_FIRST_MS);
    if (ports.isOver()) throw new Over();
  }

  /** Repeats while the error says that another try may succeed, for as long as the lane has its partition. */
  async function persistently<T>(step: () => Promise<T>): Promise<T> {
    for (let failures = 0; ; failures++) {
      if (ports.isOver()) throw new Over();
      try {
        const result = await step();
        if (failures > 0) ports.log('store_back', { failures });
        return result;
      } catch (error) {
        if (!isRetriable(error)) throw error;
        // others need not wait for what cannot go on
        endTurn();
        // half of it by chance: lanes that failed together do not come back together
        const delay = Math.ceil(Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** failures) * (0.5 + ports.random() / 2));
        ports.log('store_away', { failures: failures + 1, err: error, retry_in_ms: delay });
        await ports.wait(delay);
      }
    }
  }
}

class Over extends Error {}

function isRetriable(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'kind' in error && error.kind === 'retry';
}
