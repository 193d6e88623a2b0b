import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { StartError } from '../errors.ts';
import { assertOwn, hasData, keptSecret } from './data-folder.ts';

let folder: ReturnType<typeof temporaryFolder>;
let file = '';
beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder.path, 'secret');
});
afterEach(() => folder.remove());

const kept = (make: () => string, at = file) => keptSecret(at, (text) => /^[a-z]+$/.test(text), make);

it('a secret is created once, readable by its owner alone, and nothing else is left in the folder', () => {
  expect(kept(() => 'first')).toEqual({ secret: 'first', isNew: true });
  expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777]).toEqual(['first\n', 0o600]);
  expect(kept(() => 'second')).toEqual({ secret: 'first', isNew: false });
  expect(readdirSync(folder.path)).toEqual(['secret']);
});

it('where a secret is kept nothing is written, so a full disk or a read-only folder does not matter', () => {
  kept(() => 'first');
  const before = statSync(folder.path, { bigint: true }).mtimeNs;
  kept(() => 'second');
  expect(statSync(folder.path, { bigint: true }).mtimeNs).toBe(before);
});

it.each(['', '\n', 'tor\0n'])('a file without a secret gets one: %j', (text) => {
  writeFileSync(file, text, { mode: 0o644 });
  expect(kept(() => 'made')).toEqual({ secret: 'made', isNew: true });
  expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777]).toEqual(['made\n', 0o600]);
});

it('of two processes that create it at once, both have the one that the file has', () => {
  const slower = kept(() => {
    expect(kept(() => 'faster')).toEqual({ secret: 'faster', isNew: true });
    return 'slower';
  });
  expect(slower).toEqual({ secret: 'faster', isNew: false });
  expect(readdirSync(folder.path)).toEqual(['secret']);
});

it('a file that cannot be read or written is named with the cause, in one line', () => {
  mkdirSync(file);
  expect(() => kept(() => 'x')).toThrow(StartError);
  expect(() => kept(() => 'x')).toThrow(`cannot read ${file} (EISDIR); `);
  // nobody can create a file there
  if (existsSync('/proc/self'))
    expect(() => kept(() => 'x', '/proc/self/secret')).toThrow(
      new StartError('cannot write /proc/self/secret (ENOENT); set DATA_DIR to a writable folder'),
    );
});

it('a link to a file that is not there is named, and not followed for ever', () => {
  symlinkSync(join(folder.path, 'nowhere'), file);
  expect(() => kept(() => 'x')).toThrow(
    new StartError(`cannot write ${file} (EEXIST); set DATA_DIR to a writable folder`),
  );
  expect(readdirSync(folder.path)).toEqual(['secret']);
});

it('data of another user is refused, because files that this process created there would lock that user out', () => {
  expect(hasData(folder.path)).toBe(false);
  mkdirSync(join(folder.path, 'clickhouse'));
  expect(hasData(folder.path)).toBe(true);
  const { uid } = statSync(folder.path);
  const metadata = join(folder.path, 'metadata');
  assertOwn(metadata, uid + 1, () => uid + 1);
  mkdirSync(metadata);
  // a volume that gives every file this owner
  assertOwn(metadata, uid + 1);
  expect(readdirSync(metadata)).toEqual([]);
  expect(() => assertOwn(metadata, uid + 1, () => uid + 1)).toThrow(
    new StartError(
      `the data in ${folder.path} belongs to uid ${uid}, and this process runs as uid ${uid + 1}; run it as that user (sudo -u '#${uid}'), or set DATA_DIR to a folder of your own`,
    ),
  );
});

it('a data folder that cannot be looked into is not taken for an empty one', () => {
  // root may look everywhere, but follows no link to itself
  for (const name of ['clickhouse', 'secret']) symlinkSync(name, join(folder.path, name));
  expect(() => hasData(folder.path)).toThrow(`cannot read ${join(folder.path, 'clickhouse')} (ELOOP); `);
  expect(() => kept(() => 'x')).toThrow(/ELOOP/);
});
