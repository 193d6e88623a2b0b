import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { freemem } from 'node:os';

const FOLDER = '/dev/shm';
const MOUNTS = '/proc/self/mounts';
/** The tests of .ci/run held 1.1 GB at once. */
const ROOM_BYTES = 6 * 1024 ** 3;

const mountsHere = (): string => (existsSync(MOUNTS) ? readFileSync(MOUNTS, 'utf8') : '');

function roomHere(): number {
  const { bavail, bsize } = statfsSync(FOLDER);
  return Math.min(bavail * bsize, freemem());
}

/**
 * Returns Linux' folder in memory if the tests have room there, and may start programs from it. Else undefined.
 *
 * For each new file, ext4 passes over every inode that was deleted a short time ago. Tests that create and drop many
 * tables spend a quarter of their time on it: rollup/history.test.ts takes 116 instead of 161 s in memory.
 */
export function memoryFolder(mounts = mountsHere(), room = roomHere): string | undefined {
  const lines = mounts.split('\n').map((line) => line.split(' '));
  const [, , type, options = ''] = lines.find(([, path]) => path === FOLDER) ?? [];
  if (type !== 'tmpfs' || options.split(',').includes('noexec')) return undefined;
  return room() < ROOM_BYTES ? undefined : FOLDER;
}
