import fc from 'fast-check';
import type { Mutation } from './process.ts';
import { Hang, runSchedule, scenarios, type Scenario } from './schedule.ts';
import type { Counts } from './world.ts';

interface CheckOptions {
  readonly seed: number;
  readonly runs: number;
  readonly mutation: Mutation;
  readonly counts: Counts;
  /** where among the seed's schedules to begin */
  readonly path?: string;
  /** only these of the scenario's actions, by index */
  readonly keep?: readonly number[] | undefined;
  readonly log?: (line: string) => void;
}

export interface Failure {
  readonly seed: number;
  readonly path: string;
  readonly scenario: Scenario;
  readonly error: unknown;
}

/**
 * Runs schedules until one breaks the invariant. A mutant that hangs in a schedule has neither lost nor doubled anything
 * there, so the next one decides. Nothing is shrunk: clones of fast-check's scheduler do not repeat themselves.
 */
export async function check({
  seed,
  runs,
  mutation,
  counts,
  path,
  keep,
  log,
}: CheckOptions): Promise<Failure | undefined> {
  const isMutant = Object.keys(mutation).length > 0;
  const property = fc.asyncProperty(fc.scheduler(), scenarios, async (scheduler, scenario) => {
    const actions = keep === undefined ? scenario.actions : scenario.actions.filter((_, i) => keep.includes(i));
    try {
      await runSchedule(scheduler, { ...scenario, actions }, mutation, counts, log);
    } catch (error) {
      if (!(isMutant && error instanceof Hang)) throw error;
    }
  });
  const details = await fc.check(property, {
    seed,
    numRuns: runs,
    endOnFailure: true,
    ...(path === undefined ? {} : { path }),
  });
  if (!details.failed) return undefined;
  return {
    seed: details.seed,
    path: details.counterexamplePath ?? '',
    scenario: details.counterexample![1],
    error: details.errorInstance,
  };
}

/** Leaves out of a failing schedule's actions what it fails without. */
export async function minimise(
  { seed, path, scenario }: Failure,
  mutation: Mutation,
): Promise<{ keep: readonly number[]; scenario: Scenario }> {
  let keep: readonly number[] = [...scenario.actions.keys()];
  for (let i = keep.length - 1; i >= 0; i--) {
    const fewer = keep.filter((k) => k !== i);
    if ((await check({ seed, path, runs: 1, mutation, counts: {}, keep: fewer })) !== undefined) keep = fewer;
  }
  return { keep, scenario: { ...scenario, actions: scenario.actions.filter((_, i) => keep.includes(i)) } };
}
