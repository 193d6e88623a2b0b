import { randomUUID } from 'node:crypto';
import {
  chmodSync,
  constants,
  copyFileSync,
  linkSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
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

/**
 * Returns the trimmed text of a file of the data folder. Undefined if there is none. Throws StartError if it is
 * unreadable.
 */
export function readOwnFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw unreadable(path, error);
  }
}

function unreadable(path: string, cause: unknown): StartError {
  const { code } = cause as NodeJS.ErrnoException;
  return new StartError(
    `cannot read ${path} (${code}); run this as the user that owns it, or set DATA_DIR to a folder of your own`,
    { cause },
  );
}

/**
 * Returns whether the embedded engine has data in a data folder. Throws StartError if what it created there belongs to
 * another user.
 */
export function hasData(dataDir: string): boolean {
  const path = join(dataDir, 'clickhouse');
  const isThere = ownerOf(path) !== undefined;
  // not of the folder itself: a mount point may belong to anybody
  assertOwn(join(path, 'metadata'));
  return isThere;
}

/**
 * Throws StartError if a folder belongs to another user than what this process creates in it: that user could not read
 * it. Volumes of a network may give every file the same owner, whoever creates it.
 */
export function assertOwn(folder: string, uid = process.geteuid?.(), ofNew = ownerOfNew): void {
  const owner = ownerOf(folder);
  if (owner === undefined || uid === undefined || owner === uid || ofNew(folder) === owner) return;
  throw new StartError(
    `the data in ${dirname(folder)} belongs to uid ${owner}, and this process runs as uid ${uid}; run it as that user (sudo -u '#${owner}'), or set DATA_DIR to a folder of your own`,
  );
}

function ownerOf(path: string): number | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false })?.uid;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined;
    throw unreadable(path, error);
  }
}

/** Returns the owner of what this process creates in a folder. Undefined if it may not. */
function ownerOfNew(folder: string): number | undefined {
  try {
    const probe = mkdtempSync(join(folder, 'owner-'));
    const owner = ownerOf(probe);
    rmdirSync(probe);
    return owner;
  } catch {
    return undefined;
  }
}

/** Gives a file its name, completely or not at all, and never over that of another process. Throws EEXIST. */
function place(part: string, file: string): void {
  try {
    linkSync(part, file);
  } catch (error) {
    // some volumes (SMB, exFAT) have no links
    if (!['EPERM', 'ENOTSUP', 'ENOSYS'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    copyFileSync(part, file, constants.COPYFILE_EXCL);
  }
}

/**
 * Returns the secret that a file of the data folder keeps, and creates it (mode 600) where the file has none. Processes
 * that create it at once all get the same one. Throws StartError; `remedy` says what to do if it cannot be written.
 */
export function keptSecret(
  file: string,
  isSecret: (text: string) => boolean,
  make: () => string,
  remedy = 'set DATA_DIR to a writable folder',
): { readonly secret: string; readonly isNew: boolean } {
  makeDataFolder(dirname(file));
  const kept = readOwnFile(file);
  if (kept !== undefined && isSecret(kept)) return { secret: kept, isNew: false };
  const secret = make();
  // processes of several containers may have the same pid
  const part = `${file}.${randomUUID()}.part`;
  try {
    writeFileSync(part, `${secret}\n`, { mode: 0o600, flush: true });
    if (kept !== undefined) rmSync(file, { force: true });
    place(part, file);
    return { secret, isNew: true };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // another process was faster; a link to nowhere has no text
    if (code === 'EEXIST' && readOwnFile(file) !== undefined) return keptSecret(file, isSecret, make, remedy);
    throw new StartError(`cannot write ${file} (${code}); ${remedy}`, { cause: error });
  } finally {
    rmSync(part, { force: true });
  }
}
