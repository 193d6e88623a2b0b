import { HISTORY_STEPS, STEP_SECONDS } from './wire.ts';

/** The longest time that a rule looks back from a step of the last hour. */
export const LONGEST_WINDOW_SECONDS = 1800;

/**
 * Steps kept: the last hour, what rules look back at from its first step, the current step, and one more for readers
 * that began before it.
 */
const KEPT = HISTORY_STEPS + LONGEST_WINDOW_SECONDS / STEP_SECONDS + 2;

/** Returns the number of the step of an instant, unix milliseconds. */
export function stepOf(ms: number): number {
  return Math.floor(ms / 1000 / STEP_SECONDS);
}

/** Numbers by name and step for the last hour and a half, in a ring. Pure: time is the number of a step. */
export interface History {
  set(name: string, step: number, value: number): void;
  get(name: string, step: number): number | undefined;
  /** Forgets the values of this step and later ones, for names with this prefix. */
  clearFrom(step: number, prefix: string): void;
  /** Returns every name with a value within the steps. */
  names(from: number, to: number): string[];
  /** Returns the subjects of the names `<series>:<subject>` among them. */
  subjects(series: string, from: number, to: number): string[];
  /** Returns the values of the steps from..to, both included; `missing` for unknown ones. */
  values<T extends number | null>(name: string, from: number, to: number, missing: T): (number | T)[];
}

export function createHistory(): History {
  const rings = new Map<string, { readonly steps: Float64Array; readonly values: Float64Array }>();
  const get = (name: string, step: number): number | undefined => {
    const ring = rings.get(name);
    const at = step % KEPT;
    return ring !== undefined && ring.steps[at] === step ? ring.values[at] : undefined;
  };
  const names = (from: number, to: number, prefix = ''): string[] =>
    [...rings]
      .filter(([name, { steps }]) => name.startsWith(prefix) && steps.some((s) => s >= from && s <= to))
      .map(([name]) => name)
      .sort();
  return {
    get,
    set(name, step, value) {
      let ring = rings.get(name);
      if (ring === undefined) {
        ring = { steps: new Float64Array(KEPT).fill(-1), values: new Float64Array(KEPT) };
        rings.set(name, ring);
      }
      const at = step % KEPT;
      // a late value from before the kept steps must not replace a current one
      if ((ring.steps[at] ?? -1) > step) return;
      ring.steps[at] = step;
      ring.values[at] = value;
    },
    clearFrom(step, prefix) {
      for (const [name, { steps }] of rings)
        if (name.startsWith(prefix)) for (let i = 0; i < KEPT; i++) if ((steps[i] ?? -1) >= step) steps[i] = -1;
    },
    names: (from, to) => names(from, to),
    subjects: (series, from, to) => names(from, to, `${series}:`).map((name) => name.slice(series.length + 1)),
    values: (name, from, to, missing) =>
      Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => get(name, from + i) ?? missing),
  };
}

/**
 * Returns for how long up to now the value has been above the threshold, at most `forSeconds`, and the value. Undefined
 * if it is not above. Unknown steps count like their neighbours.
 */
export function heldFor(
  valueAt: (step: number) => number | undefined,
  threshold: number,
  forSeconds: number,
  step: number,
  oldest: number,
): { seconds: number; value: number } | undefined {
  let latest: number | undefined;
  let held = 0;
  for (let s = step; s >= oldest; s--) {
    const value = valueAt(s);
    if (value === undefined) continue;
    if (value <= threshold) break;
    latest ??= value;
    held = (step - s + 1) * STEP_SECONDS;
    if (held >= forSeconds) break;
  }
  return latest === undefined ? undefined : { seconds: held, value: latest };
}
