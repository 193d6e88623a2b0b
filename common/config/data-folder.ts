import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { StartError } from '../errors.ts';

/** What this process and its children make from now on is for their owner only: folders have mode 700, files 600. */
export function keepToOwner(): void {
  process.umask(0o077);
}

/**
 * Makes the data folder, for its owner only; one that is there is closed to others. Returns false where somebody else's
 * folder stays open to others.
 * Throws StartError where it cannot be made.
 */
export function makeDataFolder(dataDir: string): boolean {
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
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
