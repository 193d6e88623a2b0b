import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { keyFile, makeDataFolder } from '../../../common/config/data-folder.ts';
import type { Settings } from '../../../common/config/settings.ts';
import { StartError } from '../../../common/errors.ts';
import { randomKey } from './key-table.ts';
import { hashKey, type Key } from './key-ring.ts';

interface FirstKey {
  readonly key: Key;
  /** The text of the key if it was created now. It is shown only this once. */
  readonly made: string | undefined;
}

/**
 * Returns the admin key that is valid without a list: API_KEY, else the one in the data folder, else a new one, which
 * is stored there (mode 600). Throws StartError.
 */
export function firstKey({ API_KEY, DATA_DIR }: Pick<Settings, 'API_KEY' | 'DATA_DIR'>): FirstKey {
  const admin = (key: string): Key => ({
    id: 'first',
    name: 'first admin key',
    hash: hashKey(key),
    scopes: ['admin'],
    projects: [],
    expiresAt: undefined,
  });
  if (API_KEY !== undefined) return { key: admin(API_KEY), made: undefined };
  const file = keyFile(DATA_DIR);
  try {
    const kept = readFileSync(file, 'utf8').trim();
    if (kept !== '') return { key: admin(kept), made: undefined };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      throw new StartError(
        `cannot read the key file ${file}: ${(error as NodeJS.ErrnoException).code}; set API_KEY instead`,
        { cause: error },
      );
  }
  const made = randomKey();
  try {
    makeDataFolder(DATA_DIR);
    writeFileSync(file, `${made}\n`, { mode: 0o600 });
    chmodSync(file, 0o600);
  } catch (error) {
    throw new StartError(
      `cannot store the first key in ${file}: ${(error as NodeJS.ErrnoException).code}; set API_KEY, or set DATA_DIR to a writable folder`,
      { cause: error },
    );
  }
  return { key: admin(made), made };
}
