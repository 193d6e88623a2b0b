import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createIsolated } from './isolated.ts';

const forking = vi.hoisted((): { error?: Error } => ({}));
vi.mock('node:child_process', async (original) => {
  const real = await original<typeof import('node:child_process')>();
  const fork = (...args: Parameters<typeof real.fork>): ReturnType<typeof real.fork> => {
    if (forking.error !== undefined) throw forking.error;
    return real.fork(...args);
  };
  return { ...real, fork };
});

const { execPath } = process;
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'isolated-'));
  vi.stubEnv('TMPDIR', folder);
});
afterEach(() => {
  process.execPath = execPath;
  delete forking.error;
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

it('a process that cannot be started fails its statement, leaves no folder, and close does not wait for it', async () => {
  process.execPath = join(folder, 'none');
  const isolated = createIsolated();
  const error = await isolated.read({ sql: 'SELECT 1', format: 'TSV' }).catch((thrown: unknown) => thrown);
  await isolated.close();
  expect(readdirSync(folder)).toEqual([]);
  expect(error).toMatchObject({ name: 'ClickHouseError', codeName: 'ENOENT', kind: 'fatal', outcome: 'not_written' });
});

it('without room for its folder, its statement fails as one whose process cannot be started', async () => {
  vi.stubEnv('TMPDIR', join(folder, 'none'));
  const isolated = createIsolated();
  const error = await isolated.read({ sql: 'SELECT 1', format: 'TSV' }).catch((thrown: unknown) => thrown);
  await isolated.close();
  expect(error).toMatchObject({ name: 'ClickHouseError', codeName: 'ENOENT', outcome: 'not_written' });
});

it('without memory for a process, its statement may be repeated, and no folder is left', async () => {
  forking.error = Object.assign(new Error('spawn ENOMEM'), { code: 'ENOMEM' });
  const isolated = createIsolated();
  const error = await isolated.read({ sql: 'SELECT 1', format: 'TSV' }).catch((thrown: unknown) => thrown);
  await isolated.close();
  expect(readdirSync(folder)).toEqual([]);
  expect(error).toMatchObject({ name: 'ClickHouseError', codeName: 'ENOMEM', kind: 'retry' });
});
