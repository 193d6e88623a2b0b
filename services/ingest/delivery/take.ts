import type { Fetched } from './inbox.ts';
import { compareLog, isMarked } from './comparison.ts';
import type { Guard } from './guard.ts';
import { decodeIntent, type Intent } from './intent.ts';
import {
  planOwnership,
  planTakeover,
  type Compared,
  type Facts,
  type OwnershipPlan,
  type Plan,
  type SeenAtEnd,
} from './takeover.ts';
import type { Ended, Ports } from './ports.ts';

/** A lane whose partition belongs to another group looks this often, milliseconds. */
const GROUP_LOOK_MS = 5_000;
/**
 * After a claim: a writer of the former group sends nothing later than this, because what it knows of the register
 * is at most AGE_MS + LAG_MS old (register.ts).
 */
const SETTLE_MS = 5_000;
/** At most so many fetches look for a record at the marks before the ledger's end. */
const MAX_LOOKS = 20;
/** An offer or the end of the lane ends a wait earlier; this is only its bound, milliseconds. */
export const IDLE_WAIT_MS = 60_000;

export interface Takeover {
  readonly plan: Extract<Plan, { kind: 'go_on' }>;
  readonly facts: Facts;
  /** offset of our group's commit if no batch is announced with it */
  readonly committedEnd: number | undefined;
}

/**
 * Takes a partition: looks, decides (takeover.ts), does what was decided, and looks again until the lane can go on.
 * `announced`: a batch that this process announced.
 */
export async function takePartition(guard: Guard, announced: Intent | undefined): Promise<Takeover | Ended> {
  const { ports, intake } = guard;
  const { retake } = intake;
  const atEnd = retake === 'missing' ? await seenBefore(guard) : retake === 'another' ? retake : undefined;
  if (atEnd === 'over' || atEnd === 'retake') return atEnd;
  let compared: Compared | undefined;
  let claimed = 0;
  for (;;) {
    intake.close();
    const found = await guard.persistently('the takeover', () => look(ports, announced, atEnd, compared));
    if (typeof found === 'string') return found;
    if ('kind' in found) {
      // never an epoch twice: its token may be there without its row
      if ('epoch' in found) claimed = Math.max(found.epoch, claimed + 1);
      const ended = await own(guard, found, claimed);
      if (ended !== undefined) return ended;
      continue;
    }
    const plan = planTakeover(found.facts);
    if (plan.kind === 'go_on') return { plan, ...found };
    const result = await compare(guard, plan);
    if (typeof result === 'string') return result;
    compared = result;
  }
}

/** Returns how the partition becomes ours; if it is, what is known of it. */
async function look(
  ports: Ports,
  announced: Intent | undefined,
  atEnd: SeenAtEnd,
  compared: Compared | undefined,
): Promise<OwnershipPlan | Pick<Takeover, 'facts' | 'committedEnd'>> {
  const { group, store } = ports;
  await store.endRunning();
  const { owner } = await store.register(true);
  const end = await store.ledgerEnd();
  const owning = owner?.group ?? end?.group ?? group;
  const ownerHasMembers = owning !== group && (await ports.hasMembers(owning));
  const ownership = planOwnership({ group, end, owner, ownerHasMembers });
  if (ownership !== undefined) return ownership;
  const groups = [...new Set([owner?.former, end?.group, group])].filter((g) => g !== undefined);
  const commits = await Promise.all(groups.map((of) => ports.committed(of)));
  const intents = [...commits.map((c) => decodeIntent(c?.metadata)), announced].filter((i) => i !== undefined);
  const orphans = await store.orphans(end?.incarnation ?? 0, end === undefined ? 0 : end.last + 1, end?.period ?? 0);
  const ownCommit = commits[groups.indexOf(group)];
  return {
    committedEnd:
      ownCommit !== undefined && decodeIntent(ownCommit.metadata) === undefined ? ownCommit.offset : undefined,
    facts: { end, intents, orphans, ...(await ports.watermarks()), atEnd, compared },
  };
}

/** Waits for the owner, becomes it, or outwaits what the former one may still send. */
async function own(guard: Guard, plan: OwnershipPlan, epoch: number): Promise<Ended | undefined> {
  const { ports, intake } = guard;
  if (plan.kind === 'wait_for_group') {
    if (ports.isDraining()) return 'over';
    ports.log('waiting_for_group', { group: plan.group });
    intake.state = 'waiting';
    await ports.wait(GROUP_LOOK_MS);
    return guard.checkOrDrain();
  }
  if (plan.kind === 'settle') {
    // only the second claim says that the wait is over: the process that made the first may have been killed
    const until = ports.monotonic() + SETTLE_MS;
    while (!ports.isOver() && ports.monotonic() < until) {
      if (ports.isDraining()) return 'over';
      await ports.wait(until - ports.monotonic());
    }
  }
  const ended = await guard.persistently('the claim', async () => {
    const lost = await guard.asMember();
    if (lost === undefined) await ports.store.claim(epoch);
    return lost;
  });
  if (ended === undefined && plan.kind === 'claim') ports.log('partition_claimed', { epoch, former: plan.former });
  return ended;
}

/**
 * No record stands at the ledger's end: compaction took it, or the topic was recreated and has a control record there.
 * The newest mark at which the log has a record decides. If MAX_LOOKS fetches do not find it, the comparison decides.
 */
async function seenBefore(guard: Guard): Promise<SeenAtEnd | Ended> {
  const { ports, intake } = guard;
  const { store } = ports;
  const found = await guard.persistently('the comparison', async () => ({
    life: (await store.ledgerEnd())?.incarnation ?? 0,
    ...(await ports.watermarks()),
  }));
  if (typeof found === 'string') return found;
  intake.close();
  const peek = peekOf(guard);
  let before = found.high;
  // each step looks at twice as many marks as the one before
  for (let count = 1, looks = 0; ; count *= 2) {
    const page = await guard.persistently('the comparison', () => store.marks(found.life, before));
    if (typeof page === 'string') return page;
    const marks = page.slice(0, count).filter((m) => m.offset >= found.low);
    const [newest, oldest] = [marks[0], marks.at(-1)];
    if (newest === undefined || oldest === undefined) return 'nothing';
    const byOffset = new Map(marks.map((m) => [m.offset, m]));
    let seen: SeenAtEnd;
    for (let at = oldest.offset; at <= newest.offset;) {
      if (++looks > MAX_LOOKS) return 'nothing';
      const fetched = await peek(at);
      if (typeof fetched === 'string') return fetched;
      for (const record of fetched.records) {
        const mark = byOffset.get(record.offset);
        if (mark !== undefined) seen = isMarked(record, mark) ? 'missing' : 'another';
      }
      at = fetched.to + 1;
    }
    if (seen !== undefined) return seen;
    before = oldest.offset;
  }
}

/** Returns a function that reads the log from an offset on. */
function peekOf(guard: Guard) {
  const { ports, intake } = guard;
  return async (at: number): Promise<Fetched | Ended> => {
    intake.peek(at);
    for (;;) {
      const ended = guard.checkOrDrain();
      if (ended !== undefined) return ended;
      const { peeked } = intake;
      if (peeked !== undefined) return { ...peeked, records: peeked.records.filter((r) => r.offset >= at) };
      await ports.wait(IDLE_WAIT_MS);
    }
  };
}

function compare(guard: Guard, plan: Extract<Plan, { kind: 'compare' }>): Promise<Compared | Ended> {
  const { store } = guard.ports;
  const reads = {
    peek: peekOf(guard),
    mark: (life: number, before: number) =>
      guard.persistently('the comparison', async () => (await store.marks(life, before))[0]),
    compare: (life: number, of: Fetched['records']) =>
      guard.persistently('the comparison', () => store.compare(life, of)),
  };
  return compareLog(reads, plan);
}
