import { keptSecret, keyFile } from '../../../common/config/data-folder.ts';
import type { Settings } from '../../../common/config/settings.ts';
import { randomKey } from './key-table.ts';
import { hashKey, type Key } from './key-ring.ts';

/**
 * Returns the admin key that is valid without a list: API_KEY, else the one in the data folder, else a new one, which
 * is stored there (mode 600). `made` is the text of a new one, to be shown only this once. Throws StartError.
 */
export function firstKey({ API_KEY, DATA_DIR }: Pick<Settings, 'API_KEY' | 'DATA_DIR'>) {
  const admin = (key: string): Key => ({
    id: 'first',
    name: 'first admin key',
    hash: hashKey(key),
    scopes: ['admin'],
    projects: [],
    expiresAt: undefined,
  });
  if (API_KEY !== undefined) return { key: admin(API_KEY), made: undefined };
  const { secret, isNew } = keptSecret(
    keyFile(DATA_DIR),
    (text) => text !== '',
    randomKey,
    'set API_KEY, or set DATA_DIR to a writable folder',
  );
  return { key: admin(secret), made: isNew ? secret : undefined };
}
