import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { copyleftOf, LICENCES, licencesMarkdown, licencesOf, readLockfile } from './licences.ts';

test('docs/licences.md lists every package of the lockfile (npm run licences)', () => {
  expect(readFileSync(LICENCES, 'utf8')).toBe(licencesMarkdown(licencesOf(readLockfile())));
});

test('nothing that is shipped asks anything of what contains it, and nothing at all asks it of the whole work', () => {
  for (const { name, licence, isShipped } of licencesOf(readLockfile())) {
    expect(copyleftOf(licence), name).not.toBe('of the whole work');
    if (isShipped) expect(copyleftOf(licence), name).toBe('none');
  }
});

test('copyleft is told apart; a licence that nobody has looked at is an error', () => {
  expect(copyleftOf('(MIT AND Zlib)')).toBe('none');
  expect(copyleftOf('MPL-2.0')).toBe('of its own files');
  for (const licence of ['GPL-3.0-only', 'AGPL-3.0-or-later', 'LGPL-2.1', 'MIT AND GPL-2.0-only'])
    expect(copyleftOf(licence)).toBe('of the whole work');
  expect(() => copyleftOf('SEE LICENSE IN FILE')).toThrow('not known here');
});

test('a package of another platform has the licence of the one that asks for it; the older form of package.json is read', () => {
  const lockfile = JSON.stringify({
    packages: {
      '': {},
      'node_modules/a': { version: '1.0.0', license: 'ISC', optionalDependencies: { 'a-win32-x64': '1.0.0' } },
      'node_modules/a-win32-x64': { version: '1.0.0' },
      'node_modules/a/node_modules/old': { version: '0.1.0', dev: true },
    },
  });
  expect(licencesOf(lockfile, (path) => (path.endsWith('old') ? 'MIT' : undefined))).toEqual([
    { name: 'a', version: '1.0.0', licence: 'ISC', isShipped: true },
    { name: 'a-win32-x64', version: '1.0.0', licence: 'ISC', isShipped: true },
    { name: 'old', version: '0.1.0', licence: 'MIT', isShipped: false },
  ]);
  expect(() => licencesOf(lockfile, () => undefined)).toThrow('old names no licence');
});
