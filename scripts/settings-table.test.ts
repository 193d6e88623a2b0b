import { expect, test } from 'vitest';
import { readPage, withSettingsTable } from './settings-table.ts';

test('docs/settings.md lists the settings as they are parsed (npm run settings-table)', () => {
  expect(readPage()).toBe(withSettingsTable(readPage()));
});

test('docs/settings.md has the range of every number', () => {
  expect(readPage()).toContain('| `PORT` | `4000` | 0 to 65535 |');
  expect(readPage()).toContain('| `METRICS_PORT` | served on PORT | 0 to 65535 |');
});
