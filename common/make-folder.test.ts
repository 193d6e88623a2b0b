import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { makeFolder } from './make-folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'sluice-folder-'));
afterAll(() => rmSync(folder, { recursive: true }));

it('creates a folder with its parents, and leaves an existing one as it is', () => {
  const path = join(folder, 'a', 'b');
  makeFolder(path, 0o700);
  makeFolder(path, 0o755);
  expect([join(folder, 'a'), path].map((p) => statSync(p).mode & 0o777)).toEqual([0o700, 0o700]);
});

it('throws where a file is in the way', () => {
  writeFileSync(join(folder, 'file'), '');
  expect(() => makeFolder(join(folder, 'file'))).toThrow(/EEXIST/);
  expect(() => makeFolder(join(folder, 'file', 'a'))).toThrow(/ENOTDIR/);
});

it.runIf(existsSync('/proc/self'))('ends where a folder takes no new ones', () => {
  // in a process of its own: Node's recursive mkdir never returns there
  const module = new URL('config/data-folder.ts', import.meta.url);
  const script = `import { makeDataFolder } from ${JSON.stringify(module.href)}; makeDataFolder('/proc/none/data');`;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: 10_000,
    killSignal: 'SIGKILL',
  });
  expect([status, /\(ENOENT\); set DATA_DIR to a folder of your own/.test(stderr)]).toEqual([1, true]);
});
