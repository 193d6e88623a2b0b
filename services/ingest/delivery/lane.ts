import type { Cut, CutLimits, Fetched, Inbox } from './inbox.ts';
import { Guard } from './guard.ts';
import { Intake } from './intake.ts';
import { encodeIntent, type Intent } from './intent.ts';
import type { Joint, Seat } from './joint.ts';
import { ledgerEntry } from './ledger-entry.ts';
import { foundOf, storeBatch, type BatchStore, type Progress } from './store-batch.ts';
import { IDLE_WAIT_MS, takePartition, type Takeover } from './take.ts';
import type { OpenBatch } from './takeover.ts';
import type { Batch, Companion, Ended, LaneState, LedgerEntry, Ports, RecordMark } from './ports.ts';

/** Metadata of a commit without a batch in flight. */
export const IDLE = 'e';

/** A paused lane looks this often whether it may go on, milliseconds. */
const PAUSE_LOOK_MS = 2_000;
/** A lane with nothing to write commits its end after this long, milliseconds. */
const IDLE_COMMIT_MS = 1_000;
/** Until the ledger's last record is met again, the end of the log is read this often, milliseconds. */
const AWAITED_LOOK_MS = 5_000;
/** Batches of a joint insert wait at most this long for each other, milliseconds. */
const JOINT_DEADLINE_MS = 2_000;
/** A joint insert of a lane that is over may reach the engine a moment later, milliseconds. */
const KILL_AGAIN_MS = 100;

/**
 * The delivery protocol of one partition, from the moment it is assigned until it is taken away.
 *
 * Guarantee: the rows in the raw table, dead_letters, the ledger and every rollup are those of ONE split of the
 * partition's offsets into batches. Each batch is applied once. How:
 *   intent  Before a batch is written, its boundaries and the rules of its evaluation are committed to the group's
 *           metadata. Kafka refuses that commit to a member of an old generation, and the owner register names one
 *           group per partition.
 *   token   The batch is inserted under a token of its own. A joint insert has the token of its first batch (joint.ts).
 *           While a table remembers the token, a late request of a former owner adds nothing.
 *   ledger  One row, written last. The next owner goes on at the ledger's end, not at the group's offset.
 * A batch is open if it was announced or has rows, and the ledger lacks it. takeover.ts decides which batches are open
 * and where the partition goes on. store-batch.ts completes open batches, whoever left them.
 * Knows neither Kafka's client nor ClickHouse nor timers: `npm run simulate` replaces the ports by models.
 */
export class Lane implements Companion {
  /** True while it waits for the whole of a batch that was announced, perhaps under other limits than ours. */
  isRecovering = false;
  readonly #ports: Ports;
  /** of one batch; a batch that was announced under others keeps its boundaries */
  readonly #limits: CutLimits;
  readonly #intake: Intake;
  readonly #guard: Guard;
  #incarnation = 0;
  /** no row of a later batch is of an earlier period */
  #period = 0;
  /**
   * Announced and not in the ledger. The group may lose it: if retention took our position, the client commits another
   * one by itself (OFFSET_OUT_OF_RANGE, common/kafka/consumer-facts.md).
   */
  #announced: Intent | undefined;
  /** offset of the group's commit if no batch is announced with it */
  #committedEnd: number | undefined;
  #lastRecord: RecordMark | undefined;
  /** first offset of Kafka's log when the partition was taken: what is missing before it is the gap */
  #low = 0;
  /** set while it waits to write */
  #accept: ((seat: Seat) => void) | undefined;

  constructor(ports: Ports, limits: CutLimits) {
    this.#ports = ports;
    this.#limits = limits;
    this.#intake = new Intake(ports);
    this.#guard = new Guard(ports, this.#intake);
  }

  get inbox(): Inbox {
    return this.#intake.inbox;
  }

  get state(): LaneState {
    return this.#intake.state;
  }

  /** Hands over what was fetched from the offset `at`. False: the lane does not want it now. */
  offer(fetched: Fetched & { readonly at: number }): boolean {
    return this.#intake.offer(fetched);
  }

  invite(room: CutLimits, seat: () => Seat): boolean {
    const { size, bytes } = this.inbox;
    if (this.#accept === undefined || size === 0 || size > room.maxRecords || bytes > room.maxBytes) return false;
    this.#accept(seat());
    return true;
  }

  /** Runs until the lane is over. Rejects if the process must not go on. */
  async run(): Promise<void> {
    const ports = this.#ports;
    // once is enough: a lane has awaited its own joint inserts before it takes its partition again
    await this.#guard.persistently('the end of joint inserts', () =>
      ports.joints.end(
        () => ports.store.endRunning(),
        () => ports.after(KILL_AGAIN_MS),
      ),
    );
    while ((await this.#runOnce()) !== 'over');
    ports.log('lane_over', { next: this.inbox.next });
  }

  async #runOnce(): Promise<Ended> {
    const paused = await this.#whilePaused();
    if (paused !== undefined) return paused;
    const taken = await takePartition(this.#guard, this.#announced);
    if (typeof taken === 'string') return taken;
    this.#begin(taken);
    for (const batch of taken.plan.close) {
      const ended = await this.#closeBatch(batch);
      if (ended !== undefined) return ended;
    }
    for (const batch of taken.plan.recover) {
      const ended = await this.#recoverBatch(batch);
      if (ended !== undefined) return ended;
    }
    return this.#work();
  }

  /**
   * Holds and announces nothing while the partition is paused. Every owner looks in the same table whether it still is.
   */
  async #whilePaused(): Promise<Ended | undefined> {
    const ports = this.#ports;
    const isPaused = (): boolean => this.state === 'paused';
    for (;;) {
      if (ports.isOver() || (ports.isDraining() && isPaused())) return 'over';
      const pause = await this.#guard.persistently('the look at pauses', () => ports.badShare.paused());
      if (typeof pause === 'string') return pause;
      if (pause === undefined) break;
      if (!isPaused()) ports.log('partition_paused', pause);
      this.#intake.state = 'paused';
      this.#intake.drop();
      ports.onRoom();
      await ports.wait(Math.min(pause.leftMs, PAUSE_LOOK_MS));
    }
    if (isPaused()) ports.log('partition_resumed', {});
    return undefined;
  }

  #begin({ plan, facts, committedEnd }: Takeover): void {
    const { incarnation, next, dropped, recover, close, lastRecord, expected } = plan;
    const { end, orphans, low, high } = facts;
    const ports = this.#ports;
    this.#incarnation = incarnation;
    this.#lastRecord = lastRecord;
    this.#period = end?.period ?? 0;
    this.#announced = recover.find((b) => b.intent !== undefined)?.intent;
    this.#low = low;
    this.#committedEnd = committedEnd;
    if (end !== undefined && incarnation > end.incarnation)
      ports.log('topic_recreated', { incarnation, from: next, ledger_end: end.last, low, high });
    if (dropped.length > 0) ports.log('intent_dropped', { dropped, incarnation, next, high });
    if ([...recover, ...close].some((b) => b.intent === undefined))
      ports.log('orphan_rows_found', {
        incarnation,
        next,
        batches: orphans.map((o) => ({ last: o.last, rows: o.offsets.length + o.deadOffsets.length })),
      });
    if (low > next) ports.log('offsets_gone', { incarnation, first: next, last: low - 1 });
    ports.log('partition_taken', { incarnation, next, low, high });
    this.#intake.open(next, low, expected);
    ports.onTaken(high);
  }

  async #recoverBatch({ first, last, evaluatedAt, intent, incarnation }: OpenBatch): Promise<Ended | undefined> {
    this.isRecovering = true;
    const cut = await this.#cutAt(last).finally(() => (this.isRecovering = false));
    if (typeof cut === 'string') return cut;
    const { records } = cut;
    // where the announcement is lost, rows may be of any period since the ledger's end
    const rules =
      intent?.rules ??
      (await this.#guard.persistently('the recovery', () =>
        this.#ports.store.rulesFor(records, evaluatedAt, this.#period),
      ));
    if (typeof rules === 'string') return rules;
    const isAnnounced = intent !== undefined;
    this.#ports.log('batch_recovered', { incarnation, first, last, records: records.length, announced: isAnnounced });
    return this.#apply({ incarnation, first, last, rules, records }, { mayBeThere: true, needsRepair: false });
  }

  /** Waits until the batch that ends there is fetched. */
  async #cutAt(last: number): Promise<Cut | Ended> {
    for (;;) {
      // it may end in offsets without a record, which wait for the next record otherwise
      if (this.#intake.retake === undefined && this.#intake.asked > last) this.inbox.offer({ to: last, records: [] });
      const cut = this.inbox.cutAt(last);
      if (cut !== undefined) return cut;
      const ended = this.#guard.checkOrDrain();
      if (ended !== undefined) return ended;
      await this.#ports.wait(IDLE_WAIT_MS);
      const gone = await this.#guard.checkLogHas(last);
      if (gone !== undefined) return gone;
    }
  }

  /** Puts a batch into the ledger with what it wrote: the records of its life are gone. */
  async #closeBatch(batch: OpenBatch): Promise<Ended | undefined> {
    const { store } = this.#ports;
    const { incarnation, first, last } = batch;
    return this.#writeLedger('the ledger row', async () => {
      const { stored } = foundOf(await store.orphans(incarnation, first, this.#period), batch);
      const rules = batch.intent?.rules ?? (await store.rulesFor([], batch.evaluatedAt, this.#period));
      const intent = { incarnation, first, last, rules };
      await store.requestRepair(intent, this.#period);
      const gap = last - first + 1 - stored.rows - stored.deadLetters;
      return { ...intent, stored, nullValues: 0, noRecords: 0, gap, begin: undefined, end: undefined, closes: true };
    });
  }

  #writeLedger(what: string, entry: () => Promise<LedgerEntry>): Promise<Ended | undefined> {
    return this.#guard.persistently(what, async () => {
      const row = await entry();
      const ended = await this.#guard.fence();
      if (ended === undefined) await this.#ports.store.writeLedger(row);
      return ended;
    });
  }

  async #work(): Promise<Ended> {
    const ports = this.#ports;
    const { inbox } = this;
    let waitingSince: number | undefined;
    /** a batch was written since the last look at bad messages */
    let isUndecided = false;
    for (;;) {
      const ended = this.#guard.check();
      if (ended !== undefined) return ended;
      if (ports.isDraining()) {
        if (this.#committedEnd !== inbox.next) await this.#commitEnd();
        return 'over';
      }
      if (isUndecided || inbox.end > inbox.next) {
        const paused = await this.#decidePause();
        if (paused !== undefined) return paused;
        isUndecided = false;
        // whoever begins to drain wakes only waits that have begun
        if (ports.isDraining()) continue;
      }
      if (inbox.end === inbox.next) {
        const idle = await this.#idle();
        if (idle !== undefined) return idle;
        continue;
      }
      const now = ports.monotonic();
      waitingSince ??= now;
      const left = ports.dueAt(waitingSince) - now;
      let seat: Seat | undefined;
      if (inbox.size < this.#limits.maxRecords && inbox.bytes < this.#limits.maxBytes && left > 0) {
        seat = await this.#orInvited(ports.wait(left));
        if (seat === undefined) continue;
      }
      const written = await this.#writeNext(seat);
      if (written !== undefined) return written;
      waitingSince = undefined;
      isUndecided = true;
    }
  }

  /** If too many of the last messages were bad, the partition is paused before the next batch is cut. */
  async #decidePause(): Promise<Ended | undefined> {
    const isPaused = await this.#guard.persistently('the look at bad messages', () =>
      this.#ports.badShare.pauses(this.#incarnation, this.inbox.next),
    );
    if (typeof isPaused === 'string') return isPaused;
    if (!isPaused) return undefined;
    return (await this.#commitEnd()) ? 'retake' : 'over';
  }

  /** Waits for records. */
  async #idle(): Promise<Ended | undefined> {
    const { inbox } = this;
    const isUncommitted = this.#committedEnd !== inbox.next;
    const quietMs = this.#intake.awaited === undefined ? IDLE_WAIT_MS : AWAITED_LOOK_MS;
    await this.#ports.wait(isUncommitted ? IDLE_COMMIT_MS : quietMs);
    if (inbox.end > inbox.next || this.#guard.check() !== undefined) return undefined;
    const gone = await this.#guard.checkLogHas(this.#intake.awaited?.offset);
    return gone ?? (!isUncommitted || (await this.#commitEnd()) ? undefined : 'over');
  }

  /** Waits. Resolves to a seat if another lane invites this one meanwhile. */
  #orInvited(waiting: Promise<unknown>): Promise<Seat | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<Seat | undefined>();
    const end = (seat: Seat | undefined): void => {
      if (this.#accept === end) this.#accept = undefined;
      resolve(seat);
    };
    this.#accept = end;
    waiting.then(() => end(undefined), reject);
    return promise;
  }

  /** Has other lanes that wait come along with its permit, within what a batch may be. Undefined if none comes. */
  #inviteOthers({ records, bytes }: Cut): Seat | undefined {
    const ports = this.#ports;
    let joint: Joint | undefined;
    let own: Seat | undefined;
    const seat = (): Seat => {
      joint ??= ports.joints.begin(ports.after(JOINT_DEADLINE_MS));
      // `isAwaited: false`: the inviting lane always takes a permit of its own, also when it tries again
      own ??= { ...joint.seat(), isAwaited: () => false };
      return joint.seat();
    };
    const room = { maxRecords: this.#limits.maxRecords - records.length, maxBytes: this.#limits.maxBytes - bytes };
    for (const other of ports.others()) {
      const { size, bytes: waiting } = other.inbox;
      if (!other.invite(room, seat)) continue;
      room.maxRecords -= size;
      room.maxBytes -= waiting;
    }
    return own;
  }

  /** Takes a permit, unless it was invited, cuts a batch and applies it. */
  async #writeNext(invited: Seat | undefined): Promise<Ended | undefined> {
    const guard = this.#guard;
    const ports = this.#ports;
    let seat = invited;
    if (seat === undefined) {
      const permit = ports.permit();
      seat = await this.#orInvited(permit);
      if (seat === undefined) await guard.takePermit(permit);
      // invited first: it goes with the other lane's permit, and gives its own back
      else void permit.then((release) => release());
    }
    try {
      const fenced = await guard.persistently('the look at the register', () => guard.fence());
      if (fenced !== undefined || ports.isDraining()) return fenced;
      const cut = this.inbox.cut(this.#limits);
      if (cut === undefined) return undefined;
      ports.onRoom();
      seat ??= this.#inviteOthers(cut);
      const { first, last, records } = cut;
      const rules = await guard.persistently('the rules', async () =>
        ports.store.rulesFor(records, ports.clock(), Math.max(this.#period, (await ports.store.register()).period)),
      );
      if (typeof rules === 'string') return rules;
      const batch = { incarnation: this.#incarnation, first, last, rules, records };
      return await this.#apply(batch, { mayBeThere: false, needsRepair: false }, seat);
    } finally {
      seat?.leave();
      guard.releasePermit();
    }
  }

  async #commitEnd(): Promise<boolean> {
    if (!(await this.#ports.commit(this.inbox.next, IDLE))) return false;
    this.#committedEnd = this.inbox.next;
    return true;
  }

  /** intent → insert → ledger. The next batch's intent, or an idle commit, commits this one's end. */
  async #apply(batch: Batch, progress: Progress, seat?: Seat): Promise<Ended | undefined> {
    const guard = this.#guard;
    const ports = this.#ports;
    const { store } = ports;
    const { incarnation, first, last, rules } = batch;
    const intent: Intent = { incarnation, first, last, rules };
    if (!(await ports.commit(first, encodeIntent(intent)))) return 'over';
    this.#committedEnd = undefined;
    this.#announced = intent;
    // No row of the batch has a period before `least`: whoever announced it may have known an older period than we do.
    const least = Math.min(this.#period, rules.period);
    const batchStore: BatchStore = {
      ...store,
      insert: (of, without, attempt, fence) => store.insert(of, without, attempt, fence, guard.permitted(seat)),
      found: async () => foundOf(await store.orphans(incarnation, first, least), batch),
      requestRepair: () => store.requestRepair(batch, least),
    };
    const name = `batch ${incarnation}:${first}-${last}`;
    const stored = await guard.persistently(`the insert of ${name}`, async () => {
      // whoever has a seat goes with the permit of the lane that invited
      if (seat?.isAwaited() !== true) await guard.takePermit();
      try {
        return await storeBatch(batchStore, batch, progress, () => guard.fence());
      } finally {
        seat?.leave();
      }
    });
    // the ledger has room of its own
    guard.releasePermit();
    if (typeof stored === 'string') return stored;
    const entry = ledgerEntry(batch, stored, this.#low, this.#lastRecord);
    this.#lastRecord = entry.end;
    const ended = await this.#writeLedger(`the ledger row of ${name}`, async () => entry);
    if (ended !== undefined) return ended;
    this.#announced = undefined;
    this.#period = Math.max(this.#period, rules.period);
    this.inbox.release();
    ports.badShare.add(stored.deadLetters);
    ports.onRoom();
    return undefined;
  }
}
