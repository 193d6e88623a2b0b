import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startServer, type TestServer } from '../../harness/clickhouse-server.ts';
import { temporaryFolder } from '../../harness/temporary-folder.ts';

// Guarantee: a server with deploy/clickhouse/sluice.xml keeps room on its disk.

const FILE = new URL('../../../deploy/clickhouse/sluice.xml', import.meta.url);
const folder = temporaryFolder();
let server: TestServer;

beforeAll(async () => {
  // beside the configuration, as in the container
  const beside = join(folder.path, 'server-25.8', 'config.d');
  mkdirSync(beside, { recursive: true });
  writeFileSync(
    join(beside, 'sluice.xml'),
    readFileSync(FILE, 'utf8').replaceAll('/backups/', join(folder.path, 'backups/')),
  );
  server = await startServer({ dataDir: folder.path });
});
afterAll(async () => {
  await server.stop();
  folder.remove();
});

test('1 GiB of the disk of the data stays free; that of the backups may be filled', async () => {
  expect(await server.query('SELECT name, keep_free_space FROM system.disks ORDER BY name')).toBe(
    `backups\t0\ndefault\t${2 ** 30}`,
  );
});
