import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createIsolated } from './isolated.ts';

const { execPath } = process;
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'isolated-'));
  vi.stubEnv('TMPDIR', folder);
});
afterEach(() => {
  process.execPath = execPath;
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

it('a process that cannot be started fails its statement, leaves no folder, and close does not wait for it', async () => {
  process.execPath = join(folder, 'none');
  const isolated = createIsolated();
  const error = await isolated.read({ sql: 'SELECT 1', format: 'TSV' }).catch((thrown: unknown) => thrown);
  await isolated.close();
  expect(readdirSync(folder)).toEqual([]);
  expect(error).toMatchObject({ name: 'ClickHouseError', codeName: 'ENOENT', outcome: 'not_written' });
});
