import type { readFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { buildAssets } from './assets.ts';

const added = vi.hoisted(() => ({ toIndex: '' }));

vi.mock('node:fs', async (original) => {
  const fs = await original<{ readFileSync: typeof readFileSync }>();
  const read = (file: string): string =>
    fs.readFileSync(file, 'utf8') + (file.endsWith('index.html') ? added.toIndex : '');
  return { ...fs, readFileSync: read };
});

test('the version, which is the ETag of the page, changes with the page itself', () => {
  const before = buildAssets();
  expect(buildAssets().version).toBe(before.version);
  added.toIndex = ' ';
  expect(buildAssets().version).not.toBe(before.version);
});
