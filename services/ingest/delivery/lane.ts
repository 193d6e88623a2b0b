import { createInbox, type Cut, type CutLimits, type Fetched } from '../inbox.ts';
import type { Record } from '../record.ts';
import type { Rules } from '../evaluate/evaluate.ts';
import { compareLog, isAt, markOf } from './comparison.ts';
import { decodeIntent, encodeIntent, type Intent } from './intent.ts';
import { foundOf, storeBatch, type Progress } from './recovery.ts';
import { planTakeover, type Compared, type Facts, type OpenBatch, type Plan } from './takeover.ts';
import type { Batch, Ended, Lane, LaneState, LedgerEntry, Ports, RecordMark, Service, Stored } from './ports.ts';

/**
 * The delivery protocol of one partition, from the moment it is assigned until it is taken away.
 *
 * Guarantee: the rows in the raw table, dead_letters, the ledger and every rollup are those of ONE split of the
 * partition's offsets
 * into batches, each batch applied once. How:
 *   intent  Before a batch is written, its boundaries and the rules of its evaluation are committed to the group's
 * metadata. Kafka
 *           refuses that commit to a member of an old generation, and the owner register names one group per partition.
 *   token   The batch is inserted under a token of its own: a late request of a former owner adds nothing while it is
 * remembered.
 *   ledger  One row, written last. Its end, not the group's offset, is where the next owner goes on.
 * Every batch that was announced or has rows, and that the ledger lacks, is open. Open batches are recovered by one
 * function
 * (recovery.ts), whoever left them. Which those are, and where the partition goes on, is decided by one function
 * (takeover.ts).
 * Knows neither Kafka's client nor ClickHouse nor timers: `npm run simulate` replaces the ports by models.
 */

/** Metadata of a commit without a batch in flight. */
export const IDLE = 'e';

const RETRY_FIRST_MS = 100;
const RETRY_MAX_MS = 5_000;
/** A paused lane looks this often whether it may go on, milliseconds. */
const PAUSE_LOOK_MS = 2_000;
/** A lane whose partition belongs to another group looks this often, milliseconds. */
const GROUP_LOOK_MS = 5_000;
/**
 * After a claim: a writer of the former group sends nothing later than this, because it reads the register every two
 * seconds.
 */
const SETTLE_MS = 5_000;
/** A lane with nothing to write commits its end after this long, milliseconds. */
const IDLE_COMMIT_MS = 1_000;
/** An offer or the end of the lane ends a wait earlier; this is only its bound, milliseconds. */
const IDLE_WAIT_MS = 60_000;

/** Does nothing before run(). `limits`: of one batch; one that was announced under others keeps its own boundaries. */
export function createLane(ports: Ports, limits: CutLimits): Lane {
  const { store, badShare } = ports;
  let inbox = createInbox(0);
  let state: LaneState = 'taking';
  let incarnation = 0;
  let isRecovering = false;
  /** no row of a later batch is of an earlier period */
  let period = 0;
  /**
   * announced and not in the ledger; where retention took our position, the client commits another one and the
   * announcement is gone from the group
   */
  let announced: Intent | undefined;
  /** offset of the group's commit where no batch is announced with it */
  let committedEnd: number | undefined;
  let lastRecord: RecordMark | undefined;
  /** first offset of Kafka's log when the partition was taken: what is missing before it is the gap */
  let low = 0;
  /** the ledger's last record, to be met again before anything is taken */
  let expected: RecordMark | undefined;
  /**
   * what the next offer was fetched from, unless the log began again, its start moved, or the fetch is of before a
   * rejoin
   */
  let asked = 0;
  /**
   * why the partition is to be taken again: a fetch from elsewhere than our position, or the record at the ledger's end
   * is another
   */
  let retake: 'elsewhere' | 'changed' | undefined;
  /** what a comparison waits for */
  let peeked: Fetched | undefined;
  let release: (() => void) | undefined;

  return {
    get inbox() {
      return inbox;
    },
    get state() {
      return state;
    },
    get isRecovering() {
      return isRecovering;
    },
    offer,
    moved,
    run,
  };

  function offer(fetched: Fetched & { readonly at: number }): boolean {
    const isWanted = state === 'running' || state === 'storing' || (state === 'comparing' && peeked === undefined);
    if (!isWanted || retake !== undefined) return false;
    if (fetched.at !== asked) {
      retake = 'elsewhere';
      return false;
    }
    if (state === 'comparing') {
      peeked = fetched;
      return true;
    }
    asked = fetched.to + 1;
    if (expected !== undefined) {
      if (fetched.to < expected.offset) return true;
      const { offset } = expected;
      const record = fetched.records.find((r) => r.offset === offset);
      if (record !== undefined && !isAt(record, expected)) retake = 'changed';
      expected = undefined;
      if (retake !== undefined) return false;
    }
    inbox.offer(fetched);
    return true;
  }

  function moved(to: number): void {
    if (state !== 'running' && state !== 'storing' && state !== 'comparing') return;
    // nothing stands there
    if (state === 'comparing') peeked ??= { to, records: [] };
    else asked = Math.max(asked, to + 1);
  }

  async function run(): Promise<void> {
    while ((await onceTaken()) !== 'over');
    ports.log('lane_over', { next: inbox.next });
  }

  async function onceTaken(): Promise<Ended> {
    const taken = (await whilePaused()) ?? (await take());
    if (typeof taken === 'string') return taken;
    for (const batch of taken.close) {
      const ended = await closeBatch(batch);
      if (ended !== undefined) return ended;
    }
    for (const batch of taken.recover) {
      const ended = await recoverBatch(batch);
      if (ended !== undefined) return ended;
    }
    return work();
  }

  /**
   * Nothing of the partition is held or announced meanwhile. Whoever has it looks in the same place whether it may go
   * on.
   */
  async function whilePaused(): Promise<Ended | undefined> {
    for (;;) {
      if (ports.isOver() || (ports.isDraining() && state === 'paused')) return 'over';
      const pause = await persistently('the look at pauses', () => badShare.paused());
      if (typeof pause === 'string') return pause;
      if (pause === undefined) break;
      if (state !== 'paused') ports.log('partition_paused', pause);
      state = 'paused';
      inbox = createInbox(inbox.next);
      ports.onRoom();
      await ports.wait(Math.min(pause.leftMs, PAUSE_LOOK_MS));
    }
    if (state === 'paused') ports.log('partition_resumed', {});
    return undefined;
  }

  /** Finds where to go on, and what must be finished first. */
  async function take(): Promise<Extract<Plan, { kind: 'go_on' }> | Ended> {
    const isChanged = retake === 'changed';
    let compared: Compared | undefined;
    for (;;) {
      state = 'taking';
      isRecovering = false;
      retake = undefined;
      expected = undefined;
      const found = await persistently('the takeover', () => look(isChanged, compared));
      if (typeof found === 'string') return found;
      const { facts, idleAt } = found;
      const plan = planTakeover(facts);
      let ended: Ended | undefined;
      switch (plan.kind) {
        case 'wait_for_group':
          ended = await waitForGroup(plan.group);
          break;
        case 'claim':
          ended = await claim(plan);
          break;
        case 'settle':
          ended = await settle(plan.epoch);
          break;
        case 'compare': {
          const result = await compareLog(
            {
              marks: (life) => persistently('the comparison', () => store.marks(life)),
              firstDifference: (life, of) => persistently('the comparison', () => store.firstDifference(life, of)),
              peek,
            },
            plan,
            facts.high,
          );
          if (typeof result === 'string') ended = result;
          else compared = result;
          break;
        }
        case 'go_on':
          begin(plan, facts, idleAt);
          return plan;
      }
      if (ended !== undefined) return ended;
    }
  }

  async function look(
    isChanged: boolean,
    compared: Compared | undefined,
  ): Promise<{ facts: Facts; idleAt: number | undefined }> {
    await store.endRunning();
    const { owner } = await store.register(true);
    const end = await store.ledgerEnd();
    const owning = owner?.group ?? end?.group ?? ports.group;
    const ownerHasMembers = owning !== ports.group && (await ports.hasMembers(owning));
    const groups = [...new Set([owning, owner?.former, end?.group, ports.group])].filter((g) => g !== undefined);
    const commits = await Promise.all(groups.map((group) => ports.committed(group)));
    const intents = [...commits.map((c) => decodeIntent(c?.metadata)), announced].filter((i) => i !== undefined);
    period = end?.period ?? 0;
    const orphans = await store.orphans(end?.incarnation ?? 0, end === undefined ? 0 : end.last + 1, period);
    const { low: first, high } = await ports.watermarks();
    const own = commits[groups.indexOf(ports.group)];
    const idleAt = own !== undefined && decodeIntent(own.metadata) === undefined ? own.offset : undefined;
    return {
      idleAt,
      facts: {
        group: ports.group,
        end,
        owner,
        ownerHasMembers,
        intents,
        orphans,
        low: first,
        high,
        isChanged,
        compared,
      },
    };
  }

  function begin(
    plan: Extract<Plan, { kind: 'go_on' }>,
    { end, orphans, low: first, high }: Facts,
    idleAt: number | undefined,
  ): void {
    const { next, dropped, recover, close } = plan;
    ({ incarnation, lastRecord, expected } = plan);
    announced = recover.find((b) => b.intent !== undefined)?.intent;
    low = first;
    if (end !== undefined && incarnation > end.incarnation)
      ports.log('topic_recreated', { incarnation, from: next, ledger_end: end.last, low, high });
    if (dropped.length > 0) ports.log('intent_dropped', { dropped, incarnation, next, high });
    const unannounced = [...recover, ...close].filter((b) => b.intent === undefined);
    if (unannounced.length > 0)
      ports.log('orphan_rows_found', {
        incarnation,
        next,
        batches: orphans.map((o) => ({ last: o.last, rows: o.offsets.length + o.deadOffsets.length })),
      });
    inbox = createInbox(next);
    committedEnd = idleAt === next ? next : undefined;
    if (low > next) {
      ports.log('offsets_gone', { incarnation, first: next, last: low - 1 });
      inbox.offer({ to: low - 1, records: [] });
    }
    ports.log('partition_taken', { incarnation, next, low, high });
    state = 'running';
    asked = expected === undefined ? inbox.end : expected.offset;
    ports.fetchFrom(asked);
  }

  async function waitForGroup(group: string): Promise<Ended | undefined> {
    if (ports.isDraining()) return 'over';
    ports.log('waiting_for_group', { group });
    state = 'waiting';
    await ports.wait(GROUP_LOOK_MS);
    return ports.isOver() || ports.isDraining() ? 'over' : undefined;
  }

  async function claim({ epoch, former }: Extract<Plan, { kind: 'claim' }>): Promise<Ended | undefined> {
    const claimed = await persistently('the claim', async () => (await asMember()) ?? (await store.claim(epoch)));
    if (claimed === 'over' || claimed === 'retake') return claimed;
    ports.log('partition_claimed', { epoch, former });
    return ports.isOver() ? 'over' : undefined;
  }

  /**
   * Ends the time in which the former group may still write. Only the second claim says that it is over: the one who
   * made the first may not have lived.
   */
  async function settle(epoch: number): Promise<Ended | undefined> {
    const until = ports.monotonic() + SETTLE_MS;
    while (!ports.isOver() && ports.monotonic() < until) await ports.wait(until - ports.monotonic());
    const settled = await persistently('the claim', async () => (await asMember()) ?? (await store.claim(epoch)));
    return settled === 'over' || settled === 'retake' ? settled : undefined;
  }

  /** What stands in the log at this offset and after. */
  async function peek(at: number): Promise<Fetched | Ended> {
    state = 'comparing';
    peeked = undefined;
    asked = at;
    ports.fetchFrom(at);
    for (;;) {
      if (ports.isDraining()) return 'over';
      const ended = check();
      if (ended !== undefined) return ended;
      const fetched = peeked as Fetched | undefined;
      if (fetched !== undefined) return { ...fetched, records: fetched.records.filter((r) => r.offset >= at) };
      await ports.wait(IDLE_WAIT_MS);
    }
  }

  async function recoverBatch({
    first,
    last,
    evaluatedAt,
    intent,
    incarnation: of,
  }: OpenBatch): Promise<Ended | undefined> {
    let cut: Cut | undefined;
    isRecovering = true;
    while ((cut = inbox.cutAt(last)) === undefined) {
      if (ports.isDraining()) return 'over';
      const ended = check();
      if (ended !== undefined) return ended;
      await ports.wait(IDLE_WAIT_MS);
      // the log may have been recreated, shorter, since it was looked at
      const marks = await persistently('the recovery', () => ports.watermarks());
      if (typeof marks === 'string') return marks;
      if (marks.high <= last) return 'retake';
    }
    isRecovering = false;
    const { records } = cut;
    const rules = intent?.rules ?? (await persistently('the recovery', () => rulesOf(records, evaluatedAt)));
    if (typeof rules === 'string') return rules;
    ports.log('batch_recovered', {
      incarnation: of,
      first,
      last,
      records: records.length,
      announced: intent !== undefined,
    });
    try {
      return await apply({ incarnation: of, first, last, rules, records }, { mayBeThere: true, needsRepair: false });
    } finally {
      letGo();
    }
  }

  /**
   * Of a batch whose announcement is lost. Its rows may be of any period since the ledger's end, and so may those of
   * the next open batch.
   */
  function rulesOf(records: readonly Record[], evaluatedAt: number): Promise<Rules> {
    return store.rulesFor(records, evaluatedAt, period);
  }

  /** Into the ledger with what it wrote: the records of its life are gone. */
  async function closeBatch(batch: OpenBatch): Promise<Ended | undefined> {
    const { incarnation: of, first, last } = batch;
    const recorded = await persistently('the ledger row', async () => {
      const { stored } = foundOf(await store.orphans(of, first, period), batch);
      const rules = batch.intent?.rules ?? (await rulesOf([], batch.evaluatedAt));
      const intent = { incarnation: of, first, last, rules };
      await store.requestRepair(intent, period);
      const size = last - first + 1;
      const entry = {
        ...intent,
        stored,
        nullValues: 0,
        noRecords: 0,
        gap: size - stored.rows - stored.deadLetters,
        begin: undefined,
        end: undefined,
        closes: true,
      };
      return (await asMember()) ?? (await store.record(entry));
    });
    return recorded === 'over' || recorded === 'retake' ? recorded : undefined;
  }

  async function work(): Promise<Ended> {
    let waitingSince: number | undefined;
    /** since the last look a batch was written */
    let isUndecided = false;
    for (;;) {
      const ended = check();
      if (ended !== undefined) return ended;
      if (ports.isDraining()) {
        if (committedEnd !== inbox.next) await commitEnd();
        return 'over';
      }
      if (isUndecided || inbox.end > inbox.next) {
        const pauses = await persistently('the look at bad messages', () => badShare.pauses(incarnation, inbox.next));
        if (pauses === true) return (await commitEnd()) ? 'retake' : 'over';
        if (pauses !== false) return pauses;
        isUndecided = false;
      }
      if (inbox.end === inbox.next) {
        const behind = committedEnd !== inbox.next;
        await ports.wait(behind ? IDLE_COMMIT_MS : IDLE_WAIT_MS);
        if (behind && inbox.end === inbox.next && check() === undefined && !(await commitEnd())) return 'over';
        continue;
      }
      const now = ports.monotonic();
      waitingSince ??= now;
      const left = ports.lingerMs() - (now - waitingSince);
      if (inbox.size < limits.maxRecords && inbox.bytes < limits.maxBytes && left > 0) {
        await ports.wait(left);
        continue;
      }
      const written = await writeNext();
      if (written === 'over' || written === 'retake') return written;
      waitingSince = undefined;
      isUndecided = true;
    }
  }

  /** Takes a permit, cuts a batch and applies it. */
  async function writeNext(): Promise<Ended | undefined> {
    release = await ports.permit();
    try {
      const mayCut = await persistently('the look at the register', fence);
      if (mayCut !== undefined) return mayCut;
      if (ports.isDraining()) return undefined;
      const cut = inbox.cut(limits);
      if (cut === undefined) return undefined;
      ports.onRoom();
      const { first, last, records } = cut;
      const rules = await persistently('the rules', async () =>
        store.rulesFor(records, ports.clock(), Math.max(period, (await store.register()).period)),
      );
      if (typeof rules === 'string') return rules;
      return await apply({ incarnation, first, last, rules, records }, { mayBeThere: false, needsRepair: false });
    } finally {
      letGo();
    }
  }

  async function commitEnd(): Promise<boolean> {
    if (!(await ports.commit(inbox.next, IDLE))) return false;
    committedEnd = inbox.next;
    return true;
  }

  /** intent → insert → ledger. The next batch's intent, or an idle commit, commits this one's end. */
  async function apply(batch: Batch, progress: Progress): Promise<Ended | undefined> {
    state = 'storing';
    const { incarnation: of, first, last, rules } = batch;
    const intent: Intent = { incarnation: of, first, last, rules };
    if (!(await ports.commit(batch.first, encodeIntent(intent)))) return 'over';
    committedEnd = undefined;
    announced = intent;
    const least = Math.min(period, batch.rules.period);
    const searched = {
      ...store,
      found: async () => foundOf(await store.orphans(batch.incarnation, batch.first, least), batch),
      requestRepair: () => store.requestRepair(batch, least),
    };
    const stored = await persistently(`the insert of ${nameOf(batch)}`, async () => {
      release ??= await ports.permit();
      return storeBatch(searched, batch, progress, fence);
    });
    if (typeof stored === 'string') return stored;
    // the ledger has room of its own
    letGo();
    const entry = ledgerEntry(batch, stored, low, lastRecord);
    lastRecord = entry.end;
    const recorded = await persistently(
      `the ledger row of ${nameOf(batch)}`,
      async () => (await asMember()) ?? (await store.record(entry)),
    );
    if (recorded === 'over' || recorded === 'retake') return recorded;
    announced = undefined;
    period = Math.max(period, batch.rules.period);
    state = 'running';
    inbox.release();
    badShare.add(stored.deadLetters);
    ports.onRoom();
    return undefined;
  }

  function letGo(): void {
    release?.();
    release = undefined;
  }

  function check(): Ended | undefined {
    if (ports.isOver()) return 'over';
    return retake === undefined ? undefined : 'retake';
  }

  /** Right before an insert: no other process of our group, and no other group, can be the owner for long. */
  async function fence(): Promise<Ended | undefined> {
    const { owner } = await store.register();
    if (owner?.group !== ports.group) return ports.isOver() ? 'over' : 'retake';
    return asMember();
  }

  /**
   * Resolves when this process is surely a member: what we write must not arrive long after another became the owner.
   */
  async function asMember(): Promise<Ended | undefined> {
    while (!ports.isMember() && !ports.isOver()) await ports.wait(RETRY_FIRST_MS);
    return ports.isOver() ? 'over' : undefined;
  }

  /**
   * Repeats while a service is unavailable, for as long as the lane has its partition. Throws any other error, with
   * what failed.
   */
  async function persistently<T>(what: string, step: () => Promise<T>): Promise<T | Ended> {
    let service: Service | undefined;
    for (let failures = 0; ; failures++) {
      if (ports.isOver()) return 'over';
      try {
        const result = await step();
        if (service !== undefined) ports.log('available_again', { service, failures });
        return result;
      } catch (error) {
        service = ports.unavailable(error);
        if (service === undefined)
          throw new Error(`${what} failed: ${error instanceof Error ? error.message.split('\n')[0] : String(error)}`, {
            cause: error,
          });
        // others need not wait for what cannot go on
        letGo();
        // half of it by chance: lanes that failed together do not come back together
        const delay = Math.ceil(Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** failures) * (0.5 + ports.random() / 2));
        ports.log(`${service}_unavailable`, { failures: failures + 1, during: what, err: error, retry_in_ms: delay });
        await ports.wait(delay);
      }
    }
  }
}

function nameOf({ incarnation, first, last }: Intent): string {
  return `batch ${incarnation}:${first}-${last}`;
}

/**
 * `low`: first offset of Kafka's log: what is missing before it is the gap. `before`: the last record before the batch.
 */
function ledgerEntry(
  { records, incarnation, first, last, rules }: Batch,
  stored: Stored,
  low: number,
  before: RecordMark | undefined,
): LedgerEntry {
  const nullValues = records.filter((r) => r.value === null).length;
  const rest = last - first + 1 - stored.rows - stored.deadLetters - nullValues;
  const [begin, end] = [records[0], records.at(-1)];
  const gap = Math.min(rest, Math.max(0, Math.min(low, begin?.offset ?? last + 1, last + 1) - first));
  return {
    incarnation,
    first,
    last,
    rules,
    stored,
    nullValues,
    gap,
    noRecords: rest - gap,
    closes: false,
    begin: begin === undefined ? undefined : markOf(begin),
    end: end === undefined ? before : markOf(end),
  };
}
