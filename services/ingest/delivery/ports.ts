// What the delivery protocol needs of the outside. #portsOf in group/assignment.ts gives it Kafka (group/committer.ts,
// group/membership.ts), createStore in store.ts ClickHouse. `npm run simulate` gives it models of both.

import type { Record } from '../evaluate/record.ts';
import type { Clock } from '../../../common/clock.ts';
import type { CutLimits, Inbox } from './inbox.ts';
import type { Rules } from '../evaluate/evaluate.ts';
import type { Intent } from './intent.ts';
import type { Joints, Seat } from './joint.ts';

export interface LedgerEnd {
  readonly incarnation: number;
  readonly last: number;
  /** unix seconds; no row of a later batch is of an earlier period */
  readonly period: number;
  /** consumer group that wrote it */
  readonly group: string;
  /** undefined where this life of the topic had no record yet */
  readonly record: RecordMark | undefined;
  /** nothing follows in this life of the topic */
  readonly isClosed: boolean;
}

/** A record that the ledger knows a topic by. A recreated topic has another one there. */
export interface RecordMark {
  readonly offset: number;
  readonly time: number;
  readonly checksum: number;
}

export interface Batch extends Intent {
  readonly records: readonly Record[];
}

/** Rows and dead letters of one batch that the ledger does not have. */
export interface OrphanRows {
  readonly incarnation: number;
  readonly last: number;
  /** unix milliseconds */
  readonly evaluatedAt: number;
  /** of its rows, ascending */
  readonly offsets: readonly number[];
  /** of its dead letters, ascending */
  readonly deadOffsets: readonly number[];
  /** unix microseconds, least of its rows; undefined where it has none */
  readonly minTimestamp: number | undefined;
}

/**
 * What is stored of a record. Undefined: nothing, and that is right, because it has no value. 'nothing' also if a row is
 * stored, and nobody can tell of which message because the record's schema is gone.
 */
export type StoredAs = 'same' | 'another' | 'nothing' | undefined;

/** What is stored of a batch. */
export interface Stored {
  readonly rows: number;
  readonly deadLetters: number;
  /** unix microseconds, least of its rows; undefined where it has none */
  readonly minTimestamp: number | undefined;
}

/** consumed = last - first + 1 = stored.rows + stored.deadLetters + nullValues + noRecords + gap */
export interface LedgerEntry extends Intent {
  readonly stored: Stored;
  readonly nullValues: number;
  /** offsets without a record: control records, aborted, compacted */
  readonly noRecords: number;
  /** offsets that were gone from Kafka before they were taken */
  readonly gap: number;
  /** its first record */
  readonly begin: RecordMark | undefined;
  /** the last record at or before its end */
  readonly end: RecordMark | undefined;
  readonly closes: boolean;
}

/** Which group may write a partition. */
export interface Owner {
  readonly group: string;
  /** number of the claim that made it the owner; the highest one counts */
  readonly epoch: number;
  /** the group that had it before: what that one announced may be open */
  readonly former: string | undefined;
  /**
   * the former group's last inserts have ended: a process of this group claimed the partition, waited, and claimed it
   * once more
   */
  readonly isSettled: boolean;
}

/** What ingest checks before every insert. A read is used again for at most two seconds. */
interface Register {
  /** unix seconds; new batches write at least to this period */
  readonly period: number;
  /** undefined = the partition was never claimed */
  readonly owner: Owner | undefined;
}

/** The tables of one partition. */
export interface Store {
  ledgerEnd(): Promise<LedgerEnd | undefined>;
  /**
   * First and last records of the batches of one life of the topic: the newest ones before this offset, newest first.
   * Only as many as a page has; empty if there are none.
   */
  marks(incarnation: number, before: number): Promise<readonly RecordMark[]>;
  /**
   * Rows and dead letters at or beyond `from` in this life of the topic, and all of later lives; by incarnation, last,
   * evaluatedAt.
   * `period`: rows of earlier periods are not looked at.
   */
  orphans(incarnation: number, from: number, period: number): Promise<readonly OrphanRows[]>;
  /** What is stored of each of these records. */
  compare(incarnation: number, records: readonly Record[]): Promise<readonly StoredAs[]>;
  /** At most two seconds old. `anew`: read now. */
  register(anew?: boolean): Promise<Register>;
  /** Claims the partition for our group under this epoch. Who has it afterwards is in the register. */
  claim(epoch: number): Promise<void>;
  /** Today's rules, for these records. */
  rulesFor(records: readonly Record[], evaluatedAt: number, period: number): Promise<Rules>;
  /**
   * Resolves when no insert of rows or dead letters of this partition runs any more, whoever sent it. A row of the ledger
   * may come later: it counts once.
   */
  endRunning(): Promise<void>;
  /**
   * Evaluates the batch and inserts its dead letters, then its rows, without the offsets in `without`, under the token
   * of this attempt. `fence` is asked right before each of the two is sent. `seat`: the rows go with those of other
   * partitions. 'unfinished': the raw rows are there, but a view failed.
   */
  insert(
    batch: Batch,
    without: ReadonlySet<number>,
    attempt: number,
    fence: Fence,
    seat?: Seat,
  ): Promise<Stored | 'unfinished' | Ended>;
  /** Has the rollups of the batch's rows rebuilt. `period`: none of them is of an earlier one. */
  requestRepair(batch: Intent, period: number): Promise<void>;
  writeLedger(entry: LedgerEntry): Promise<void>;
}

/** Why a lane stops what it does: its partition is lost or the process ends; the partition must be taken again. */
export type Ended = 'over' | 'retake';

/** Undefined while this lane may write. */
export type Fence = () => Promise<Ended | undefined>;

/** The bad-share pause of one partition. */
export interface BadShare {
  /** Undefined if the partition is not paused. */
  paused(): Promise<{ readonly leftMs: number } | undefined>;
  /** A batch is in the ledger. */
  add(deadLetters: number): void;
  /**
   * Decides before a batch is cut. True: too many of the last messages were bad, and the partition is paused from
   * `next` on.
   */
  pauses(incarnation: number, next: number): Promise<boolean>;
}

export type Service = 'kafka' | 'registry' | 'clickhouse';

/** A lane that may share another one's insert. */
export interface Companion {
  readonly inbox: Pick<Inbox, 'size' | 'bytes'>;
  /**
   * If the lane waits to write and what it has is within these limits, it takes a seat (`seat` is called then) and is
   * cut once its fence lets it; it may hold more by then. False: it does not come.
   */
  invite(room: CutLimits, seat: () => Seat): boolean;
}

export interface Ports {
  readonly group: string;
  readonly clock: Clock;
  /** milliseconds of a clock that is never set */
  readonly monotonic: Clock;
  /** from 0 to 1 */
  readonly random: () => number;
  readonly store: Store;
  readonly badShare: BadShare;
  /** the lane lost its partition: nothing may be announced or written any more */
  isOver(): boolean;
  /** the process stops: the batch in flight is finished, its end committed, nothing new begun */
  isDraining(): boolean;
  /** false while this process may have lost its membership without knowing (no heartbeat for half a session) */
  isMember(): boolean;
  /** resolves after that time, or earlier when the lane is over or woken */
  wait(ms: number): Promise<void>;
  /** commits for this partition in the lane's own generation; false = the lane is over, or the process stops */
  commit(offset: number, metadata: string): Promise<boolean>;
  /** a group's commit for this partition */
  committed(group: string): Promise<{ offset: number; metadata: string } | undefined>;
  /** whether members of another group have this partition; true while that group rebalances */
  hasMembers(group: string): Promise<boolean>;
  /** first offset in Kafka and the one after the last */
  watermarks(): Promise<{ low: number; high: number }>;
  /** from now on the lane is offered what stands at `offset` and after */
  fetchFrom(offset: number): void;
  /** called when it knows where it goes on; `high`: the offset after the last one in Kafka */
  onTaken(high: number): void;
  /** called after every cut, batch and drop: there is room in the inbox, or less is held */
  onRoom(): void;
  /** When a batch is cut although it is not full; `since`: its first record was seen. Monotonic milliseconds. */
  dueAt(since: number): number;
  /** Resolves after that time, whatever becomes of the lane. */
  after(ms: number): Promise<void>;
  /** of this process, also of lanes that are over */
  readonly joints: Pick<Joints, 'begin' | 'end'>;
  /** Lanes of the same topic in this process that may share an insert with this one. None on a server (joint.ts). */
  others(): readonly Companion[];
  /** Resolves when this lane may write, to an idempotent release function. */
  permit(): Promise<() => void>;
  /** Which service an error says is unavailable for now. Undefined: the error ends the process. */
  unavailable(error: unknown): Service | undefined;
  log(event: LaneEvent, fields: object): void;
}

/** What a lane logs, and at which level. */
export const LANE_EVENTS = {
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
} as const;
export type LaneEvent = keyof typeof LANE_EVENTS;

/**
 * taking: not fetched; comparing: reads the log to find where it differs; waiting: another group has the partition;
 * paused: too many bad messages; running: takes records and writes them
 */
export type LaneState = 'taking' | 'comparing' | 'waiting' | 'paused' | 'running';
