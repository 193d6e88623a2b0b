import type { Clock } from '../../common/clock.ts';
import { createInbox, type Cut, type CutLimits, type Fetched, type Inbox } from './inbox.ts';
import { decodeIntent, encodeIntent, type Intent } from './intent.ts';
import { checksum, type Record } from './record.ts';

/**
 * The delivery protocol of one partition, from the moment it is assigned until it is taken away.
 *
 * Guarantee: the rows in the raw table, dead_letters, the ledger and every rollup are those of ONE split of the partition's offsets into
 * batches, each batch applied once. How:
 *   intent  before a batch is written, its boundaries and the moment of judgement are committed to the group's metadata. Kafka refuses that
 *           commit to a member of an old generation, so only the owner can announce a batch, and the next owner finds what may be under way.
 *   token   the batch is inserted under a token made of its boundaries; the same token counts once in every table and view.
 *   ledger  one row, written last. Its end, not the group's offset, is where the next owner goes on.
 * On taking a partition: an announced batch that the ledger lacks is formed again with the same boundaries and inserted under the same token.
 * Knows neither Kafka's client nor ClickHouse nor timers: everything comes through the ports, which `npm run simulate` replaces by models.
 */
export interface LedgerEnd {
  readonly incarnation: number;
  readonly last: number;
  readonly judgedAt: number;
  readonly recordTime: number;
  /** undefined where no record stands at `last` */
  readonly checksum: number | undefined;
}

export interface Batch extends Intent {
  readonly records: readonly Record[];
}

/** Rows found beyond the ledger's end: what a batch wrote whose intent is lost (group deleted or reset, ClickHouse restored). */
export interface Stray {
  readonly last: number;
  readonly judgedAt: number;
  readonly offsets: readonly number[];
}

export interface LedgerEntry extends Intent {
  readonly nullValues: number;
  readonly noRecords: number;
  readonly gap: number;
  /** records with a value; each is a row or a dead letter */
  readonly events: number;
  readonly end: Record | undefined;
  /** formed again: some of its rows may have been written before, from records that are gone now; count them in the tables */
  readonly recovered: boolean;
}

/** The tables as the protocol needs them. Errors with `kind: 'retry'` are tried again; any other ends the process. */
export interface Store {
  ledgerEnd(): Promise<LedgerEnd | undefined>;
  /** batches with rows at or after `from` in this life of the topic, ascending */
  strays(incarnation: number, from: number, judgedSince: number): Promise<Stray[]>;
  /** true while the batch's token cannot have left the deduplication window */
  tokenIsKept(judgedAt: number): Promise<boolean>;
  /** ids of the schema registry that these records can be decoded with, asked for before their batch is announced */
  schemaIds(records: readonly Record[]): Promise<readonly number[]>;
  /** inserts the batch under its token; records whose offset is in `present` are left out (and the token is another then) */
  insert(batch: Batch, present?: ReadonlySet<number>): Promise<void>;
  record(entry: LedgerEntry): Promise<void>;
}

export interface Ports {
  readonly clock: Clock;
  readonly store: Store;
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
  /** called after every cut: room in the inbox */
  onRoom(): void;
  /** how long a first record waits for company, milliseconds */
  lingerMs(): number;
  log(event: LaneEvent, fields: object): void;
}

export type LaneEvent =
  | 'partition_taken' | 'batch_recovered' | 'stray_rows_found' | 'topic_made_anew' | 'offsets_gone' | 'intent_dropped'
  | 'store_away' | 'store_back' | 'lane_over';

/** Metadata of a commit without a batch under way. */
export const IDLE = 'e';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
/** A lane with nothing to write commits its end after this long, milliseconds. */
const IDLE_COMMIT_MS = 1_000;
/** An offer or the end of the lane ends a wait earlier; this is only its bound, milliseconds. */
const IDLE_WAIT_MS = 60_000;

export interface Lane {
  /** Hands over what was fetched; false = not wanted now (the lane is still being taken, or asked for another offset). */
  offer(fetched: Fetched): boolean;
  /** Runs until the lane is over; rejects when the process must not go on. */
  run(): Promise<void>;
  readonly inbox: Inbox;
  readonly state: 'taking' | 'running' | 'storing';
}

class Retake extends Error {}

export function createLane(ports: Ports, limits: CutLimits): Lane {
  const { store } = ports;
  let inbox = createInbox(0);
  let state: Lane['state'] = 'taking';
  let incarnation = 0;
  let lastJudgedAt = 0;
  /** offset of the group's commit where no batch is announced with it */
  let committedEnd: number | undefined;
  /** the ledger's last record, to be met again before anything is taken */
  let expected: LedgerEnd | undefined;
  /** what ended the present take: the log began again below our position, or the record at the ledger's end is another */
  let retake: 'restarted' | 'changed' | undefined;

  return {
    get inbox() { return inbox; },
    get state() { return state; },
    offer,
    run,
  };

  function offer(fetched: Fetched): boolean {
    if (state === 'taking' || retake !== undefined) return false;
    if (expected !== undefined) {
      const record = fetched.records.find((r) => r.offset >= expected!.last);
      if (record === undefined && fetched.to < expected.last) return true;
      if (record?.offset === expected.last && (checksum(record) !== expected.checksum || record.time !== expected.recordTime)) retake = 'changed';
      expected = undefined;
    } else if (fetched.from < inbox.end) {
      retake = 'restarted';
    }
    if (retake !== undefined) return false;
    inbox.offer(fetched);
    return true;
  }

  async function run(): Promise<void> {
    while (!ports.isOver()) {
      try {
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

  /** Finds where to go on, and what must be finished first. */
  async function take(): Promise<(() => Promise<void>)[]> {
    state = 'taking';
    const changed = retake === 'changed';
    retake = undefined;
    expected = undefined;
    const end = await persistently(() => store.ledgerEnd());
    const { low, high } = await persistently(() => ports.watermarks());
    const committed = await persistently(() => ports.committed());
    const intent = decodeIntent(committed?.metadata);
    incarnation = end?.incarnation ?? intent?.incarnation ?? 0;
    lastJudgedAt = end?.judgedAt ?? 0;
    let next = end === undefined ? (intent?.first ?? low) : end.last + 1;
    if (changed || high < next) {
      incarnation++;
      next = low;
      ports.log('topic_made_anew', { incarnation, ledger_end: end?.last, low, high });
    } else if (end?.checksum !== undefined && end.last >= low) {
      expected = end;
    }

    const announced = intent !== undefined && intent.incarnation === incarnation && intent.first === next && intent.last < high ? intent : undefined;
    const finished = end !== undefined && intent !== undefined && intent.incarnation === end.incarnation && intent.last <= end.last;
    if (intent !== undefined && announced === undefined && !finished) ports.log('intent_dropped', { intent, incarnation, next, high });

    const steps: (() => Promise<void>)[] = [];
    const strays = await persistently(() => store.strays(incarnation, next, lastJudgedAt));
    const allAnnounced = announced !== undefined && strays.every((s) => s.last === announced.last && s.judgedAt === announced.judgedAt);
    if (allAnnounced && (strays.length === 0 || (await persistently(() => store.tokenIsKept(announced.judgedAt))))) {
      steps.push(() => recoverBatch(announced, undefined));
    } else {
      if (strays.length > 0) ports.log('stray_rows_found', { incarnation, next, batches: strays.map((s) => ({ last: s.last, rows: s.offsets.length })) });
      let first = next;
      for (const stray of strays) {
        const again: Intent = { incarnation, first, last: stray.last, judgedAt: stray.judgedAt };
        steps.push(() => recoverBatch(again, new Set(stray.offsets)));
        first = stray.last + 1;
      }
    }

    inbox = createInbox(next);
    committedEnd = committed?.offset === next && intent === undefined ? next : undefined;
    if (low > next) ports.log('offsets_gone', { incarnation, first: next, last: low - 1 });
    ports.log('partition_taken', { incarnation, next, low, high });
    state = 'running';
    ports.fetchFrom(expected === undefined ? Math.max(next, low) : expected.last);
    return steps;
  }

  async function recoverBatch(intent: Intent, present: ReadonlySet<number> | undefined): Promise<void> {
    let cut: Cut | undefined;
    while ((cut = inbox.cutAt(intent.last)) === undefined) await nextOffer();
    ports.log('batch_recovered', { ...intent, records: cut.records.length, already_present: present?.size });
    const { records } = cut;
    // of strays, whose intent is lost, what is missing is judged anew
    const schemaIds = present === undefined ? (intent.schemaIds ?? []) : await persistently(() => store.schemaIds(records));
    await apply({ ...intent, schemaIds, records }, { present });
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
      waitingSince = undefined;
      const cut = inbox.cut(limits);
      if (cut === undefined) continue;
      const { first, last, records } = cut;
      const schemaIds = await persistently(() => store.schemaIds(records));
      // judged later than any batch before it, also when the clock was set back: strays are looked for by this time
      const judgedAt = Math.max(ports.clock(), lastJudgedAt + 1);
      await apply({ incarnation, first, last, judgedAt, schemaIds, records });
    }
  }

  async function commitEnd(): Promise<void> {
    if (!(await ports.commit(inbox.next, IDLE))) throw new Over();
    committedEnd = inbox.next;
  }

  /** intent → insert → ledger. The next batch's intent, or an idle commit, commits this one's end. */
  async function apply(batch: Batch, recovered?: { present: ReadonlySet<number> | undefined }): Promise<void> {
    state = 'storing';
    lastJudgedAt = batch.judgedAt;
    if (!(await ports.commit(batch.first, encodeIntent(batch)))) throw new Over();
    committedEnd = undefined;
    const events = batch.records.filter((r) => r.value !== null).length;
    if (events > 0) await persistently(() => store.insert(batch, recovered?.present), true);
    const missing = batch.last - batch.first + 1 - batch.records.length;
    const firstRecord = batch.records[0];
    let gap = 0;
    if (firstRecord === undefined || firstRecord.offset > batch.first) {
      const { low } = await persistently(() => ports.watermarks());
      gap = Math.max(0, Math.min(low, firstRecord?.offset ?? batch.last + 1) - batch.first);
    }
    const end = batch.records.at(-1);
    await persistently(
      () => store.record({ ...batch, nullValues: batch.records.length - events, noRecords: missing - gap, gap, events, end: end?.offset === batch.last ? end : undefined, recovered: recovered !== undefined }),
      true,
    );
    state = 'running';
    ports.onRoom();
  }

  function check(): void {
    if (ports.isOver()) throw new Over();
    if (retake !== undefined) throw new Retake();
  }

  async function nextOffer(): Promise<void> {
    check();
    if (ports.isDraining()) throw new Over();
    await ports.wait(IDLE_WAIT_MS);
  }

  /** Repeats while the error says that another try may succeed, for as long as the lane has its partition. */
  async function persistently<T>(step: () => Promise<T>, writes = false): Promise<T> {
    let failures = 0;
    for (;;) {
      while (writes && !ports.isMember() && !ports.isOver()) await ports.wait(RETRY_FIRST_MS);
      if (ports.isOver()) throw new Over();
      try {
        const result = await step();
        if (failures > 0) ports.log('store_back', { failures });
        return result;
      } catch (error) {
        if (!isRetriable(error)) throw error;
        failures++;
        const delay = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** (failures - 1));
        ports.log('store_away', { failures, err: error, retry_in_ms: delay });
        await ports.wait(delay);
      }
    }
  }
}

class Over extends Error {}

function isRetriable(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'kind' in error && error.kind === 'retry';
}
