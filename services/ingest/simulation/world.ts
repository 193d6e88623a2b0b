import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Scheduler } from 'fast-check';

/** What a schedule went through; printed by `npm run simulate` as evidence that the rare paths were taken. */
export interface Counts {
  [what: string]: number;
}

/**
 * What every model of one schedule shares: time, order and chance. Order: every message between a process and a server
 * waits in fast-check's scheduler (`hop`), which picks the next one to arrive; a delayed one has to be picked several
 * times. Time stands still but for timers and the operator's actions. Chance comes from the scenario's seed: faults of
 * servers, sizes, kinds of records.
 */
export type World = ReturnType<typeof createWorld>;

const START = Date.UTC(2026, 2, 1);
const DONE = Promise.resolve();
const DELAYED = 0.02;
const MAX_DELAYS = 60;

export function createWorld(scheduler: Scheduler, seed: number, counts: Counts, log?: (line: string) => void) {
  let state = seed | 0;
  const failures: unknown[] = [];
  const world = {
    /** true time, unix milliseconds; processes see it through clocks of their own */
    now: START,
    /** no faults any more: the last owner is to finish */
    calm: false,
    counts,
    /** Resolves when the scheduler picks it; with the given probability it comes late, and others can do a lot before. */
    async hop(label: string, delayed = DELAYED): Promise<void> {
      for (let delays = world.chance(delayed) ? world.below(MAX_DELAYS) : 0; delays > 0; delays--)
        await scheduler.schedule(DONE, label);
      await scheduler.schedule(DONE, label);
    },
    pending: (): number => scheduler.count(),
    /** lets one pending hop happen, and everything that follows from it without another hop */
    async step(): Promise<void> {
      if (scheduler.count() > 0) await scheduler.waitOne();
      // setImmediate runs after every microtask: whatever can go on without another hop has gone on
      await nextTurn();
      world.now++;
    },
    /** a whole number from 0 to n - 1 */
    below: (n: number): number => Math.floor(random() * n),
    /** true with this probability, never while calm */
    chance: (probability: number): boolean => !world.calm && random() < probability,
    count(what: string): void {
      counts[what] = (counts[what] ?? 0) + 1;
    },
    trace(what: string, fields?: unknown): void {
      log?.(`${world.now - START} ${what}${fields === undefined ? '' : ` ${JSON.stringify(fields)}`}`);
    },
    /** something rejected that must not: the schedule has failed */
    fail: (error: unknown): void => {
      failures.push(error);
    },
    /** throws what `fail` was given */
    check(): void {
      if (failures.length > 0) throw failures[0];
    },
  };
  return world;

  /** mulberry32 */
  function random(): number {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }
}
