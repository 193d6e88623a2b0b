import { accessSync, constants, readdirSync, readFileSync, readlinkSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { EXIT_CONFIG, StartError } from '../../errors.ts';
import { makeFolder } from '../../make-folder.ts';

/**
 * Makes the engine's own folder in the data folder, and returns its path. Throws StartError (one line) if another
 * process uses it, it is not writable, or has a name that the engine's inserts would take for a pattern of files.
 */
export function takeFolder(dataDir: string): string {
  const path = resolve(dataDir, 'clickhouse');
  const wildcard = /[*?{]/.exec(path);
  if (wildcard !== null)
    throw new StartError(
      `the data folder ${resolve(dataDir)} has ${wildcard[0]} in its path, which ClickHouse takes for a pattern; set DATA_DIR to another folder`,
      { exitCode: EXIT_CONFIG },
    );
  makeWritable(path, dataDir);
  const used = inUse(path, dataDir);
  if (used !== undefined) throw used;
  return path;
}

/** Returns the error for an engine's folder that another process uses. Undefined if none is known to. */
export function inUse(folder: string, dataDir: string): StartError | undefined {
  const holder = lockHolder(folder);
  if (holder === undefined) return undefined;
  return new StartError(
    `the data folder ${dataDir} is in use by process ${holder}; stop that first, wait for it if it is a command, or set DATA_DIR to another folder. If it is npm start, every command but move asks it: set HOST and PORT to its own, or use --url`,
  );
}

function makeWritable(folder: string, dataDir: string): void {
  try {
    makeFolder(folder);
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new StartError(
      `cannot write to the data folder ${dataDir}: ${(error as Error).message}; set DATA_DIR to a folder of your own`,
      { cause: error },
    );
  }
}

/**
 * Returns the process that has the folder open, as far as known: the engine's status file names the last one, and its
 * open files show whether it still holds the folder. The engine's own lock decides; this only gives the reason in one
 * line, where the engine would print its own.
 */
function lockHolder(folder: string): number | undefined {
  try {
    const status = realpathSync(join(folder, 'status'));
    const pid = Number(/^PID: (\d+)/m.exec(readFileSync(status, 'utf8'))?.[1]);
    const files = `/proc/${pid}/fd`;
    const holds =
      pid !== process.pid &&
      readdirSync(files).some((fd) => {
        try {
          return readlinkSync(join(files, fd)) === status;
        } catch {
          return false;
        }
      });
    return holds ? pid : undefined;
  } catch {
    return undefined;
  }
}
