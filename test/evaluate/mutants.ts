import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

// npm run mutants -- [--file scanner.ts|all] [--from N]: changes the code of evaluation in one place at a time, and says
// which changes no check notices. Exit code 1 if there is one that EQUIVALENT does not list. A file has 26 to 347
// mutants; each takes the time of all checks.

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const FILES = [
  'common/evaluate/scanner.ts',
  'common/evaluate/paths.ts',
  'common/evaluate/timestamp.ts',
  'common/evaluate/event.ts',
  'services/ingest/evaluate/requests.ts',
  'services/ingest/evaluate/row-binary.ts',
  'services/ingest/evaluate/native-block.ts',
  'services/ingest/evaluate/raw-rows.ts',
  'services/ingest/evaluate/evaluate.ts',
];
/** A mutant that never ends is killed too: it takes this many times as long as the checks without a mutation. */
const SLOWER = 10;
const SEED = 7;

/** What is changed to what. */
const CHANGES: readonly (readonly [RegExp, (found: string) => string])[] = [
  [/ === /g, () => ' !== '],
  [/ !== /g, () => ' === '],
  [/ < /g, () => ' <= '],
  [/ <= /g, () => ' < '],
  [/ > /g, () => ' >= '],
  [/ >= /g, () => ' > '],
  [/ && /g, () => ' || '],
  [/ \|\| /g, () => ' && '],
  [/\b0x[0-9a-f]{1,2}\b/g, (hex) => String(Number(hex) + 1)],
  [/\b0x[0-9a-f]{8}\b/g, (hex) => `0x${(Number(hex) ^ 1).toString(16)}`],
  [/(?<= [-+*] )\d+\b/g, (n) => String(Number(n) + 1)],
  [/\+\+/g, () => '--'],
  [/ \+ /g, () => ' - '],
  [/ - /g, () => ' + '],
  [/\btrue\b/g, () => 'false'],
  [/\bfalse\b/g, () => 'true'],
  [/\bcontinue;/g, () => ';'],
  [/\bbreak;/g, () => ';'],
  [/\breturn -1;/g, () => ';'],
  [/\breturn (?:-1 - )?i;/g, () => ';'],
];

/** Mutants that survive because they do the same as the code, with the reason. `what` as it is printed. */
const EQUIVALENT: readonly { readonly file: string; readonly what: string; readonly reason: string }[] = [];

interface Mutant {
  readonly file: string;
  readonly line: number;
  readonly what: string;
  readonly text: string;
}

function mutantsOf(file: string): Mutant[] {
  const whole = readFileSync(join(ROOT, file), 'utf8');
  const lines = whole.split('\n');
  return lines.flatMap((line, at) => {
    if (/^\s*(?:\/\*\*|\*|\/\/|import )/.test(line)) return [];
    return CHANGES.flatMap(([pattern, change]) =>
      [...line.matchAll(pattern)].map((match) => {
        const changed = line.slice(0, match.index) + change(match[0]) + line.slice(match.index + match[0].length);
        return {
          file,
          line: at + 1,
          what: `${line.trim()}  →  ${changed.trim()}`,
          text: lines.with(at, changed).join('\n'),
        };
      }),
    );
  });
}

const { values } = parseArgs({
  options: { file: { type: 'string', default: 'scanner.ts' }, from: { type: 'string', default: '0' } },
});
const files = FILES.filter((file) => values.file === 'all' || file.endsWith(`/${values.file}`));
const mutants = files.flatMap(mutantsOf).slice(Number(values.from));
if (mutants.length === 0) {
  const names = FILES.map((file) => file.split('/').at(-1)).join(', ');
  console.error(`no mutant of ${values.file} from ${values.from} on; --file takes all or one of ${names}`);
  process.exit(1);
}
const folder = mkdtempSync(join(tmpdir(), 'sluice-mutants-'));
try {
  for (const part of ['common', 'services', 'schemas', 'demo', 'test/evaluate', 'test/harness', 'package.json'])
    cpSync(join(ROOT, part), join(folder, part), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(
    join(folder, 'test/evaluate/check-mutant.ts'),
    `import { edgesOfFields, edgesOfJson, edgesOfRequests, edgesOfTimes, mutatedEvents, randomMessages } from './checks.ts';
for (const check of [edgesOfRequests, edgesOfTimes, edgesOfFields, edgesOfJson, () => mutatedEvents(${SEED}, 10_000)]) if (await check() !== undefined) process.exit(1);
await randomMessages(${SEED}, 5);
`,
  );
  const survives = (timeout?: number): boolean =>
    spawnSync(process.execPath, ['test/evaluate/check-mutant.ts'], { cwd: folder, timeout, stdio: 'ignore' }).status ===
    0;
  const started = performance.now();
  if (!survives()) throw new Error('the checks fail without a mutation');
  const timeout = Math.ceil((performance.now() - started) * SLOWER);
  let [killed, equivalent] = [0, 0];
  for (const [i, mutant] of mutants.entries()) {
    writeFileSync(join(folder, mutant.file), mutant.text);
    if (!survives(timeout)) killed++;
    else if (EQUIVALENT.some(({ file, what }) => file === mutant.file && what === mutant.what)) equivalent++;
    else console.log(`survives: ${i} ${mutant.file}:${mutant.line}  ${mutant.what}`);
    writeFileSync(join(folder, mutant.file), readFileSync(join(ROOT, mutant.file)));
  }
  console.log(`${killed} of ${mutants.length} mutants of ${values.file} are killed, ${equivalent} are equivalent`);
  if (killed + equivalent < mutants.length) process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
