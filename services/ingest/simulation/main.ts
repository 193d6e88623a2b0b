import { parseArgs } from 'node:util';
import { mutants } from './mutants.ts';
import { check, minimise } from './check.ts';
import type { Mutation } from './process.ts';
import type { Counts } from './world.ts';

const HELP = `npm run simulate -- [--runs N] [--seed S] [--mutant NAME]
  runs N random schedules (100000); exit code 1 where one breaks the guarantee
npm run simulate -- --seed S --path P [--keep I,J,...] [--mutant NAME]
  runs one schedule again and prints what happens in it

  --runs N      how many schedules
  --seed S      of the first 10000 schedules; each 10000 more take the next seed
  --mutant NAME takes one rule of the protocol out: ${Object.keys(mutants).join(', ')}
  --path P      the schedule, as a failure printed it
  --keep I,J    only these of its actions
  --help        this text
`;

/** A seed serves so many schedules; the next ones run under the next seed. */
const CHUNK = 10_000;

const values = readArguments();
const mutation: Mutation =
  values.mutant === undefined ? {} : new Map<string, Mutation>(Object.entries(mutants)).get(values.mutant)!;
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

/** Ends the process with a line on stderr where an argument is wrong. */
function readArguments() {
  try {
    const { values } = parseArgs({
      options: {
        seed: { type: 'string', default: String(Date.now() % 1_000_000_000) },
        runs: { type: 'string', default: '100000' },
        path: { type: 'string' },
        keep: { type: 'string' },
        mutant: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      process.exit();
    }
    for (const name of ['seed', 'runs'] as const)
      if (!/^\d{1,15}$/.test(values[name])) throw new TypeError(`--${name} takes a whole number`);
    if (values.mutant !== undefined && !Object.hasOwn(mutants, values.mutant))
      throw new TypeError(`--mutant takes one of ${Object.keys(mutants).join(', ')}`);
    return values;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    process.stderr.write(`simulate: ${error.message}; --help says more\n`);
    process.exit(1);
  }
}
