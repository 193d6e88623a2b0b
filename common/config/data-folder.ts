import { chmodSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { StartError } from '../errors.ts';
import { makeFolder } from '../make-folder.ts';

/**
 * Makes everything that this process and its children create private to their owner: folders have mode 700, files 600.
 */
export function keepToOwner(): void {
  process.umask(0o077);
}

/**
 * Creates the data folder with mode 700, or closes an existing one to others. Returns false if another user's folder
 * stays open to others. Throws StartError if it cannot be created.
 */
export function makeDataFolder(dataDir: string): boolean {
  try {
    makeFolder(dataDir, 0o700);
    if ((statSync(dataDir).mode & 0o077) === 0) return true;
  } catch (error) {
    throw new StartError(
      `cannot write to the data folder ${dataDir} (${(error as NodeJS.ErrnoException).code}); set DATA_DIR to a folder of your own`,
      { cause: error },
    );
  }
  try {
    chmodSync(dataDir, 0o700);
    return true;
  } catch {
    return false;
  }
}

/** Returns the file of the first admin key if API_KEY is not set. The query service writes it, commands read it. */
export function keyFile(dataDir: string): string {
  return join(dataDir, 'api-key');
}

/** Returns the trimmed text of a file. Undefined if there is none, or if it belongs to another user. */
export function readOwnFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}
