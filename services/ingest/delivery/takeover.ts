import type { Intent } from './intent.ts';
import type { LedgerEnd, OrphanRows, Owner, RecordMark } from './ports.ts';

/** What says whose a partition is. */
export interface Ownership {
  readonly group: string;
  readonly end: LedgerEnd | undefined;
  readonly owner: Owner | undefined;
  /** members of the owner's group consume the partition; asked for only where that is not our group */
  readonly ownerHasMembers: boolean;
}

/** What is known of a partition of ours when it is taken. */
export interface Facts {
  readonly end: LedgerEnd | undefined;
  /** announced by our group, the one before it, the last writer of the ledger, or this process */
  readonly intents: readonly Intent[];
  /** beyond the ledger's end, by incarnation and last */
  readonly orphans: readonly OrphanRows[];
  readonly low: number;
  readonly high: number;
  readonly atEnd: SeenAtEnd;
  /** what comparing the log with what is stored has shown; undefined = it was not compared */
  readonly compared: Compared | undefined;
}

/**
 * What stands in Kafka at the offset of the ledger's last record instead of that record:
 * - `another`: another record there, or at an earlier mark
 * - `missing`: no record there, and the record of an earlier mark
 * - `nothing`: no record there, nor at any mark
 * - undefined: that record, or nobody has looked yet
 */
export type SeenAtEnd = 'another' | 'missing' | 'nothing' | undefined;

export interface Compared {
  readonly incarnation: number;
  /** the first offset whose record in the log is not stored; undefined = they have nothing in common */
  readonly differsFrom: number | undefined;
}

/** A batch that was announced or has rows, and is not in the ledger. */
export interface OpenBatch {
  readonly incarnation: number;
  readonly first: number;
  readonly last: number;
  readonly evaluatedAt: number;
  /** undefined where its announcement is lost */
  readonly intent: Intent | undefined;
}

/** How a partition becomes ours. */
export type OwnershipPlan =
  | { readonly kind: 'wait_for_group'; readonly group: string }
  /** former: the group that had it */
  | { readonly kind: 'claim'; readonly epoch: number; readonly former: string | undefined }
  /**
   * claimed from another group, which may write for a moment still: wait, and claim once more. Who claimed it may have
   * been killed since.
   */
  | { readonly kind: 'settle'; readonly epoch: number };

export type Plan =
  /**
   * The log ends before what is stored of this life of the topic, or another record stands there. 'perhaps': it has
   * no record at any mark, and may be the same log. `to`: nothing is stored from there on.
   */
  | {
      readonly kind: 'compare';
      readonly incarnation: number;
      readonly from: number;
      readonly to: number;
      readonly lifeEnded: 'yes' | 'perhaps';
    }
  | {
      readonly kind: 'go_on';
      readonly incarnation: number;
      /** first offset of the next batch, or of the first open one */
      readonly next: number;
      /** each begins where the one before it ended */
      readonly recover: readonly OpenBatch[];
      /** of lives that are over: into the ledger with what they wrote */
      readonly close: readonly OpenBatch[];
      readonly dropped: readonly Intent[];
      /** the ledger's last record, to be met again before anything is taken */
      readonly expected: RecordMark | undefined;
      readonly lastRecord: RecordMark | undefined;
    };

/** Decides how a partition becomes ours. Undefined if it is. */
export function planOwnership({ group, end, owner, ownerHasMembers }: Ownership): OwnershipPlan | undefined {
  const owning = owner?.group ?? end?.group ?? group;
  const former = owning === group ? undefined : owning;
  if (former !== undefined && ownerHasMembers) return { kind: 'wait_for_group', group: former };
  if (owner?.group !== group) return { kind: 'claim', epoch: (owner?.epoch ?? 0) + 1, former };
  // epoch 1 has no former claim: that another group wrote before it, only the ledger says
  const isSettled = owner.isSettled && !(owner.epoch === 1 && end !== undefined && end.group !== group);
  return isSettled ? undefined : { kind: 'settle', epoch: owner.epoch + 1 };
}

/** Decides how a partition of ours is taken. */
export function planTakeover(known: Facts): Plan {
  const { end, orphans, low, high, atEnd } = known;
  const inLedger = end?.incarnation ?? -1;
  const isOpen = (i: Intent): boolean => i.incarnation > inLedger || (i.incarnation === inLedger && i.last > end!.last);
  // The newest first, by the clocks of their writers: where two groups announced one range and neither has rows, only
  // the insert of the newer one may still arrive.
  const intents = known.intents.filter(isOpen).toSorted((a, b) => b.rules.evaluatedAt - a.rules.evaluatedAt);
  const facts = { ...known, intents };
  const latest = Math.max(
    inLedger,
    0,
    ...facts.intents.map((i) => i.incarnation),
    ...orphans.map((o) => o.incarnation),
  );
  let incarnation = end?.isClosed === true && latest === inLedger ? latest + 1 : latest;
  const compare = (life: number, from: number, how: 'yes' | 'perhaps'): Plan => ({
    kind: 'compare',
    incarnation: life,
    from,
    to: Math.min(high, lastKnown(facts, life) + 1),
    lifeEnded: how,
  });
  let begin = beginOf(facts, incarnation);
  const ended = lifeEnded(facts, incarnation);
  if (ended !== 'no') {
    const from = incarnation === inLedger ? low : Math.max(low, begin ?? low);
    if (facts.compared?.incarnation !== incarnation) return compare(incarnation, from, ended);
    begin = facts.compared.differsFrom ?? low;
    incarnation++;
  } else if (begin === undefined) {
    // where this life begins is known from the one before; of its first records some may be gone by now
    if (facts.compared?.incarnation !== inLedger) return compare(inLedger, low, 'yes');
    begin = Math.min(facts.compared.differsFrom ?? low, ...firstOf(orphans.find((o) => o.incarnation === incarnation)));
  }

  const { open, dropped } = openBatches(facts, incarnation, begin);
  const lastRecord = incarnation === inLedger ? end?.record : undefined;
  return {
    kind: 'go_on',
    incarnation,
    next: begin,
    recover: open,
    close: closedBatches(facts, inLedger, incarnation),
    dropped,
    lastRecord,
    expected: atEnd === undefined && lastRecord !== undefined && lastRecord.offset >= low ? lastRecord : undefined,
  };
}

/** The batches with rows of lives that are over. */
function closedBatches(facts: Facts, inLedger: number, incarnation: number): OpenBatch[] {
  const { end, orphans } = facts;
  const intents = facts.intents.filter((i) => hasRows(orphans, i));
  const lives = [...new Set(orphans.map((o) => o.incarnation))].filter((life) => life < incarnation);
  return lives.flatMap((life) => {
    const announced = intents.filter((i) => i.incarnation === life).map((i) => i.first);
    const first =
      life === inLedger
        ? end!.last + 1
        : Math.min(...announced, ...firstOf(orphans.find((o) => o.incarnation === life)));
    return openBatches({ ...facts, intents }, life, first).open;
  });
}

/**
 * Whether this life of the topic ended: the log ends before what is known of this life, or holds another record.
 * 'perhaps' if it has no record by which that could be known, until a comparison has shown no other one.
 */
function lifeEnded(facts: Facts, incarnation: number): 'yes' | 'no' | 'perhaps' {
  const { end, high, atEnd, compared } = facts;
  const inLedger = end?.incarnation === incarnation;
  if ((inLedger && atEnd === 'another') || lastKnown(facts, incarnation) >= high) return 'yes';
  return inLedger && atEnd === 'nothing' && (compared?.differsFrom ?? -1) <= end.last ? 'perhaps' : 'no';
}

/** The last offset of this life that is in the ledger, was announced or has rows; -1 if there is none. */
function lastKnown({ end, intents, orphans }: Facts, incarnation: number): number {
  const known = [...(end === undefined ? [] : [end]), ...intents, ...orphans];
  return Math.max(-1, ...known.filter((k) => k.incarnation === incarnation).map((k) => k.last));
}

/** First offset of this life that is not in the ledger. Undefined if only a comparison with the life before tells. */
function beginOf({ end, intents, orphans, low }: Facts, incarnation: number): number | undefined {
  if (end?.incarnation === incarnation) return end.last + 1;
  const announced = intents.find((i) => i.incarnation === incarnation);
  const stored = orphans.find((o) => o.incarnation === incarnation);
  // of the first batch ever some records may be gone from Kafka by now
  if (end === undefined) return Math.min(low, announced?.first ?? low, ...firstOf(stored));
  // if an earlier batch than the announced one has rows, nothing says where that batch, and so this life, begins
  return announced !== undefined && (stored === undefined || stored.last >= announced.last)
    ? announced.first
    : undefined;
}

/**
 * The batches of one life that are open from `begin` on. An announcement counts where it fits, or where its batch has
 * rows.
 */
function openBatches(
  { intents, orphans }: Facts,
  incarnation: number,
  begin: number,
): { open: OpenBatch[]; dropped: Intent[] } {
  const found = new Map<number, { evaluatedAt: number; intent: Intent | undefined }>();
  for (const { incarnation: of, last, evaluatedAt } of orphans) {
    // rows with the same `last` and a later `evaluatedAt` are replayed dead letters
    if (of === incarnation && !found.has(last)) found.set(last, { evaluatedAt, intent: undefined });
  }
  const dropped: Intent[] = [];
  for (const intent of intents) {
    const rows = found.get(intent.last);
    if (
      intent.incarnation !== incarnation ||
      (rows === undefined && ![...found.keys()].every((last) => last < intent.first))
    )
      dropped.push(intent);
    else if (rows === undefined || (rows.intent === undefined && hasRows(orphans, intent)))
      found.set(intent.last, { evaluatedAt: intent.rules.evaluatedAt, intent });
    else if (rows.intent?.rules.evaluatedAt !== intent.rules.evaluatedAt) dropped.push(intent);
  }
  const open: OpenBatch[] = [];
  let next = begin;
  for (const [last, { evaluatedAt, intent }] of [...found].toSorted(([a], [b]) => a - b)) {
    if (last < next) continue;
    if (intent !== undefined && intent.first !== next && !hasRows(orphans, intent)) {
      dropped.push(intent);
      continue;
    }
    open.push({ incarnation, first: next, last, evaluatedAt, intent });
    next = last + 1;
  }
  return { open, dropped };
}

function hasRows(orphans: readonly OrphanRows[], { incarnation, last, rules }: Intent): boolean {
  return orphans.some((o) => o.incarnation === incarnation && o.last === last && o.evaluatedAt === rules.evaluatedAt);
}

function firstOf(rows: OrphanRows | undefined): number[] {
  return [rows?.offsets[0], rows?.deadOffsets[0]].filter((offset) => offset !== undefined);
}
