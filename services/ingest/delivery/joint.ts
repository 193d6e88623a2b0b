import type { Ended, Fence } from './ports.ts';

/** What one batch adds to a joint insert. */
export interface Contribution<Rows> {
  readonly rows: Rows;
  /** asked right before the insert */
  readonly fence: Fence;
  /**
   * Inserts the rows of these contributions. A joint insert calls only that of the first contribution whose fence
   * lets it. 'unfinished': the raw rows are there, but a view failed.
   */
  insertAll(contributions: readonly Contribution<Rows>[]): Promise<'done' | 'unfinished'>;
}

/** The part of one batch in a joint insert. */
export interface Seat {
  /**
   * Resolves when the rows are inserted with those of the others. Inserts them alone if the others do not wait for them.
   * Throws what the insert throws.
   */
  insert<Rows>(contribution: Contribution<Rows>): Promise<'done' | 'unfinished' | Ended>;
  /** True while the others wait for this batch: it has neither come nor left, and the deadline is not over. */
  isAwaited(): boolean;
  /** The batch does not come, if it has not come before. */
  leave(): void;
}

/**
 * One insert of what several partitions of a topic have waiting: the statement is most of what a small insert costs.
 * It is sent when all have come that took a seat, or at the deadline with those that have.
 *
 * Only for an engine that ends with this process. Each batch keeps its announcement and its row of the ledger. After a
 * failure each batch is completed by itself, under its own token (store-batch.ts). If the joint insert reached the
 * engine after that, its other token would store the batch again. So it must have ended before. Two things make that
 * certain. Nobody else can have the engine while this process exists. After a rebalance, lanes first wait for the joint
 * inserts of the lanes before them (Joints.end). On a server, the insert of a suspended process could come later.
 */
export class Joint {
  readonly #contributions: Contribution<unknown>[] = [];
  /** what has become of each */
  readonly #sent = Promise.withResolvers<readonly ('done' | 'unfinished' | Ended)[]>();
  #seats = 0;
  #isClosed = false;

  /** resolves when nothing of it runs any more, or will */
  readonly ended: Promise<unknown>;

  constructor(deadline: Promise<void>) {
    // each batch hears of a failure
    this.ended = this.#sent.promise.catch(() => {});
    void deadline.then(() => this.#close());
  }

  seat(): Seat {
    this.#seats++;
    let isTaken = true;
    const giveBack = (): void => {
      if (!isTaken) return;
      isTaken = false;
      this.#seats--;
      if (this.#seats === 0) this.#close();
    };
    return {
      insert: async (contribution) => {
        const own = contribution as Contribution<unknown>;
        if (this.#isClosed || !isTaken) return (await insertAllowed([own]))[0]!;
        const at = this.#contributions.push(own) - 1;
        giveBack();
        return (await this.#sent.promise)[at]!;
      },
      isAwaited: () => isTaken && !this.#isClosed,
      leave: giveBack,
    };
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    insertAllowed(this.#contributions).then(this.#sent.resolve, this.#sent.reject);
  }
}

/** The joint inserts of one process. */
export class Joints {
  readonly #running = new Set<Joint>();

  /** Begins one. It is sent at the deadline at the latest. */
  begin(deadline: Promise<void>): Joint {
    const joint = new Joint(deadline);
    this.#running.add(joint);
    void joint.ended.then(() => this.#running.delete(joint));
    return joint;
  }

  /** Resolves when those that have begun are ended. Until then `kill`, again and again, ends what the engine has of them. */
  async end(kill: () => Promise<void>, pause: () => Promise<void>): Promise<void> {
    const begun = [...this.#running];
    const areRunning = (): boolean => begun.some((joint) => this.#running.has(joint));
    while (areRunning()) {
      await kill();
      if (areRunning()) await pause();
    }
  }
}

/** Inserts the contributions whose fence lets them. Returns what has become of each. */
export async function insertAllowed<Rows>(
  contributions: readonly Contribution<Rows>[],
): Promise<readonly ('done' | 'unfinished' | Ended)[]> {
  const refusals: (Ended | undefined)[] = [];
  for (const { fence } of contributions) refusals.push(await fence());
  const allowed = contributions.filter((_, at) => refusals[at] === undefined);
  const outcome = (await allowed[0]?.insertAll(allowed)) ?? 'done';
  return refusals.map((refusal) => refusal ?? outcome);
}
