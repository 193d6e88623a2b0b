import type { Batch, Ended, Fence, OrphanRows, Store, Stored } from './ports.ts';

/** What is stored of one batch. */
export interface Found {
  readonly offsets: ReadonlySet<number>;
  readonly stored: Stored;
}

/** How far one batch has come, over all its attempts. */
export interface Progress {
  /** something of the batch may be stored */
  mayBeThere: boolean;
  /** views may lack rows that raw has: a part was there before, or a second token was needed */
  needsRepair: boolean;
}

const NONE: ReadonlySet<number> = new Set();

/**
 * Stores every record of the batch that has a value exactly once. A new batch is inserted at once. Any other may be
 * there in part: a former owner left it, or its insert ended in an unknown way. For it:
 * 1. End the partition's inserts that may still run.
 * 2. Look which offsets are stored. They stay as they are.
 * 3. Insert the rest, and repeat from 1.
 * Throws what the store throws; the next call continues.
 */
export async function storeBatch(
  store: BatchStore,
  batch: Batch,
  progress: Progress,
  fence: Fence,
): Promise<Stored | Ended> {
  const isMissing = (offsets: ReadonlySet<number>): boolean =>
    batch.records.some((r) => r.value !== null && !offsets.has(r.offset));
  if (!progress.mayBeThere) {
    if (!isMissing(NONE)) return { rows: 0, deadLetters: 0, minTimestamp: undefined };
    progress.mayBeThere = true;
    const inserted = await store.insert(batch, NONE, 0, fence);
    if (inserted !== 'unfinished') return inserted;
  }
  // Attempt 0 has the batch's own token. The first insert had it too, unless it was joint (joint.ts). Attempt 1 has the
  // second token.
  for (let attempt = 0; ; attempt++) {
    const ended = await fence();
    if (ended !== undefined) return ended;
    await store.endRunning();
    const { offsets, stored } = await store.found();
    // What the look before attempt 0 finds was there before. The look at attempt 2 comes after an insert under the
    // second token.
    progress.needsRepair ||= (attempt === 0 && offsets.size > 0) || attempt > 1;
    if (!isMissing(offsets)) {
      // before the ledger's row: whoever sees that one need not look for this
      if (progress.needsRepair) await store.requestRepair();
      return stored;
    }
    const inserted = await store.insert(batch, offsets, attempt, fence);
    if (inserted === 'over' || inserted === 'retake') return inserted;
    if (inserted === 'unfinished') progress.needsRepair = true;
  }
}

/** What storing one batch needs of the store. `#apply` in lane.ts and `storeLetter` in dead-letters.ts provide it. */
export interface BatchStore extends Pick<Store, 'endRunning' | 'insert'> {
  found(): Promise<Found>;
  requestRepair(): Promise<void>;
}

/** Sums up what orphan rows say of a batch: a dead letter that was replayed is a row too, and counts as the letter. */
export function foundOf(
  orphans: readonly OrphanRows[],
  { incarnation, first, last }: Pick<Batch, 'incarnation' | 'first' | 'last'>,
): Found {
  const dead = new Set<number>();
  const rows = new Set<number>();
  let minTimestamp: number | undefined;
  for (const orphan of orphans) {
    if (orphan.incarnation !== incarnation || orphan.last !== last) continue;
    for (const offset of orphan.deadOffsets) if (offset >= first) dead.add(offset);
    for (const offset of orphan.offsets) if (offset >= first) rows.add(offset);
    if (orphan.minTimestamp !== undefined && orphan.minTimestamp < (minTimestamp ?? Infinity))
      minTimestamp = orphan.minTimestamp;
  }
  const offsets = new Set([...dead, ...rows]);
  return { offsets, stored: { rows: offsets.size - dead.size, deadLetters: dead.size, minTimestamp } };
}
