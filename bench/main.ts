import { benchStart } from './start.ts';

/** One command for every measurement: `npm run bench -- <name>`; each prints a table and ends within a few minutes. */
const benches: Readonly<Record<string, () => Promise<void>>> = {
  start: benchStart,
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  process.stderr.write(`npm run bench -- ${Object.keys(benches).join(' | ')}\n`);
  process.exitCode = 64;
} else {
  await bench();
}
