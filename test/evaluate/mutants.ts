import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

// npm run mutants -- [--file scanner.ts] [--from N]: changes the code of evaluation in one place at a time, and says
// which changes no check notices.

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
/** A mutant that never ends is killed too. */
const TIMEOUT_MS = 120_000;
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
const mutants = FILES.filter((file) => file.endsWith(`/${values.file}`))
  .flatMap(mutantsOf)
  .slice(Number(values.from));
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
  const survives = (): boolean =>
    spawnSync(process.execPath, ['test/evaluate/check-mutant.ts'], {
      cwd: folder,
      timeout: TIMEOUT_MS,
      stdio: 'ignore',
    }).status === 0;
  if (!survives()) throw new Error('the checks fail without a mutation');
  let killed = 0;
  for (const [i, mutant] of mutants.entries()) {
    writeFileSync(join(folder, mutant.file), mutant.text);
    if (survives()) console.log(`survives: ${i} ${mutant.file}:${mutant.line}  ${mutant.what}`);
    else killed++;
    writeFileSync(join(folder, mutant.file), readFileSync(join(ROOT, mutant.file)));
  }
  console.log(`${killed} of ${mutants.length} mutants of ${values.file} are killed`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
