import type { Logger } from '../../logger.ts';

/** Only a partition with a backlog makes an insert of that many bytes. A smaller BATCH_MAX_BYTES makes none. */
const LARGE_BYTES = 16_777_216;
/** The backlog has ended when no large insert ended for this long, milliseconds. */
const QUIET_MS = 3_000;
/**
 * Large inserts into one table before its parts are merged: each makes a part in every partition that it touches. With
 * 190 parts of 25 MB, uncached answers over a day take 57 to 124 ms instead of 8 to 30.
 */
const MOST_INSERTS = 200;
/** Merges that are late are not held again. */
const MOST_PARTS = 50;

const MAY_HOLD = `
SELECT (SELECT count() FROM system.merges) = 0
   AND (SELECT max(parts) FROM (SELECT count() AS parts FROM system.parts WHERE active GROUP BY table, partition_id)) < ${MOST_PARTS}`;

/**
 * Lets merges and mutations wait while a backlog comes in: merges take a quarter of the CPU of an edge event. They go on
 * when the backlog ends, and when one table has got MOST_INSERTS. A merge that runs is not interrupted: the hold begins
 * only when none does. The engine forgets it when the process ends. `run` executes a statement and gives its text.
 */
export function createMergeHold(run: (sql: string) => Promise<string>, logger: Logger) {
  /** large inserts of each table since merges are held; undefined: they are not */
  let held: Map<string, number> | undefined;
  let changing: Promise<void> | undefined;
  let lastAt = 0;
  let watch: NodeJS.Timeout | undefined;

  return {
    /** An insert ended. */
    inserted(table: string, bytes: number): void {
      if (bytes < LARGE_BYTES) return;
      lastAt = performance.now();
      if (held === undefined) return change(hold);
      const inserts = (held.get(table) ?? 0) + 1;
      held.set(table, inserts);
      if (inserts >= MOST_INSERTS) change(release);
    },
    /** Resolves when none of its statements runs. */
    async close(): Promise<void> {
      clearInterval(watch);
      await changing;
    },
  };

  function change(to: () => Promise<void>): void {
    changing ??= to()
      .catch((error: unknown) => logger.warn({ err: error }, 'merge_hold_failed'))
      .finally(() => {
        changing = undefined;
      });
  }

  async function hold(): Promise<void> {
    if ((await run(MAY_HOLD)).trim() !== '1') return;
    // before the statement: if its end is unknown, merges are released all the same
    held = new Map();
    watch = setInterval(() => {
      if (performance.now() - lastAt >= QUIET_MS) change(release);
    }, 1_000).unref();
    await run('SYSTEM STOP MERGES');
  }

  async function release(): Promise<void> {
    await run('SYSTEM START MERGES');
    clearInterval(watch);
    held = undefined;
  }
}
