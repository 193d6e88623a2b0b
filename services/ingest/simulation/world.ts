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
export interface World {
  /** true time, unix milliseconds; processes see it through clocks of their own */
  now: number;
  /** no faults any more: the last owner is to finish */
  calm: boolean;
  readonly counts: Counts;
  /** Resolves when the scheduler picks it; with the given probability it comes late, and others can do a lot before. */
  hop(label: string, delayed?: number): Promise<void>;
  pending(): number;
  /** lets one pending hop happen, and everything that follows from it without another hop */
  step(): Promise<void>;
  /** a whole number from 0 to n - 1 */
  below(n: number): number;
  /** true with this probability, never while calm */
  chance(probability: number): boolean;
  count(what: string): void;
  trace(what: string, fields?: unknown): void;
  /** something rejected that must not: the schedule has failed */
  readonly fail: (error: unknown) => void;
  /** throws what `fail` was given */
  check(): void;
}

const START = Date.UTC(2026, 2, 1);
const DONE = Promise.resolve();
const DELAYED = 0.02;
const MAX_DELAYS = 60;

export function createWorld(scheduler: Scheduler, seed: number, counts: Counts, log?: (line: string) => void): World {
  let state = seed | 0;
  const failures: unknown[] = [];
  const world: World = {
    now: START,
    calm: false,
    counts,
    async hop(label, delayed = DELAYED) {
      for (let delays = world.chance(delayed) ? world.below(MAX_DELAYS) : 0; delays > 0; delays--)
        await scheduler.schedule(DONE, label);
      await scheduler.schedule(DONE, label);
    },
    pending: () => scheduler.count(),
    async step() {
      if (scheduler.count() > 0) await scheduler.waitOne();
      // setImmediate runs after every microtask: whatever can go on without another hop has gone on
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
      world.now++;
    },
    below: (n) => Math.floor(random() * n),
    chance: (probability) => !world.calm && random() < probability,
    count(what) {
      counts[what] = (counts[what] ?? 0) + 1;
    },
    trace(what, fields) {
      log?.(`${world.now - START} ${what}${fields === undefined ? '' : ` ${JSON.stringify(fields)}`}`);
    },
    fail: (error) => {
      failures.push(error);
    },
    check() {
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
