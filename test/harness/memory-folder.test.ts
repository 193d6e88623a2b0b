import { expect, test } from 'vitest';
import { memoryFolder } from './memory-folder.ts';

const GIB = 1024 ** 3;
const ROOT = '/dev/vda / ext4 rw,relatime 0 0\n';

test.each([
  ['in memory with room', 'tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n', 6 * GIB, '/dev/shm'],
  ['with too little room', 'tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n', 6 * GIB - 1, undefined],
  ['whose programs may not be started', 'tmpfs /dev/shm tmpfs rw,nosuid,nodev,noexec 0 0\n', 6 * GIB, undefined],
  ['on a disk', '/dev/vdb /dev/shm ext4 rw 0 0\n', 6 * GIB, undefined],
  ['that is not there', '', 6 * GIB, undefined],
])('of /dev/shm %s', (_, mount, room, expected) => {
  expect(memoryFolder(ROOT + mount, () => room)).toBe(expected);
});
