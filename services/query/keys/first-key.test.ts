import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { firstKey } from './first-key.ts';
import { hashKey } from './key-ring.ts';

test('the first key is made once and kept for its owner alone, also where an empty file of others is in its place', () => {
  const folder = temporaryFolder();
  try {
    const file = join(folder.path, 'api-key');
    writeFileSync(file, '\n');
    chmodSync(file, 0o644);
    const { key, made } = firstKey({ API_KEY: undefined, DATA_DIR: folder.path });
    expect(made).toMatch(/^sluice_.{43}$/);
    expect(key).toMatchObject({ hash: hashKey(made!), scopes: ['admin'], projects: [] });
    expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777]).toEqual([`${made}\n`, 0o600]);
    const again = firstKey({ API_KEY: undefined, DATA_DIR: folder.path });
    expect(again).toEqual({ key, made: undefined });
    expect(firstKey({ API_KEY: 'given', DATA_DIR: folder.path }).key.hash).toEqual(hashKey('given'));
  } finally {
    folder.remove();
  }
});
