import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { completeLockfile, platformEntry } from './complete-lockfile.ts';

test('a platform is read from the name of its package', () => {
  expect(platformEntry('@oxlint/binding-linux-arm64-musl', '1.0.0')).toEqual({
    version: '1.0.0',
    optional: true,
    os: ['linux'],
    cpu: ['arm64'],
    libc: ['musl'],
  });
  expect(platformEntry('@oxlint/binding-win32-x64-msvc', '1.0.0')).toEqual({
    version: '1.0.0',
    optional: true,
    os: ['win32'],
    cpu: ['x64'],
  });
  expect(platformEntry('fsevents', '1.0.0')).toBeUndefined();
});

test('the lockfile is complete and names no registry', () => {
  const text = readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8');
  expect(completeLockfile(text)).toBe(text);
  expect(text).not.toContain('"resolved"');
});
