import { parseArgs } from 'node:util';
import { mutants } from './mutants.ts';
import { check, minimise } from './check.ts';
import type { Mutation } from './process.ts';
import type { Counts } from './world.ts';

// npm run simulate -- [--runs N] [--seed S] [--mutant NAME]           runs N schedules
// npm run simulate -- --seed S --path P [--keep I,J,...] [--mutant NAME]  runs one again and tells what happens in it

/** A seed serves so many schedules; the next ones run under the next seed. */
const CHUNK = 10_000;

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
    runs: { type: 'string', default: '100000' },
    path: { type: 'string' },
    keep: { type: 'string' },
    mutant: { type: 'string' },
  },
});
const mutation: Mutation | undefined =
  values.mutant === undefined ? {} : Object.entries(mutants).find(([name]) => name === values.mutant)?.[1];
if (mutation === undefined) throw new Error(`no mutant ${values.mutant}; there are ${Object.keys(mutants).join(', ')}`);
const seed = Number(values.seed);
const counts: Counts = {};

if (values.path === undefined) {
  const runs = Number(values.runs);
  const begun = performance.now();
  for (let done = 0; done < runs && process.exitCode === undefined; done += CHUNK) {
    const failure = await check({ seed: seed + done / CHUNK, runs: Math.min(CHUNK, runs - done), mutation, counts });
    if (failure === undefined) continue;
    console.error(failure.error);
    const { keep, scenario } = await minimise(failure, mutation);
    console.error(JSON.stringify(scenario, undefined, 1));
    console.error(
      `replay with: npm run simulate -- --seed ${failure.seed} --path ${failure.path} --keep ${keep.join(',')}${values.mutant === undefined ? '' : ` --mutant ${values.mutant}`}`,
    );
    process.exitCode = 1;
  }
  console.log(`seed ${seed}, ${Math.round((performance.now() - begun) / 1000)} s`);
  for (const [what, n] of Object.entries(counts).toSorted(([a], [b]) => (a < b ? -1 : 1)))
    console.log(String(n).padStart(12), what);
} else {
  const failure = await check({
    seed,
    path: values.path,
    runs: 1,
    mutation,
    counts,
    keep: values.keep?.split(',').map(Number),
    log: console.log,
  });
  console.log(failure === undefined ? 'holds' : failure.error);
  if (failure !== undefined) process.exitCode = 1;
}
