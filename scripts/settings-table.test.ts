import { expect, test } from 'vitest';
import { readPage, withSettingsTable } from './settings-table.ts';

test('docs/settings.md lists the settings as they are parsed (npm run settings-table)', () => {
  expect(readPage()).toBe(withSettingsTable(readPage()));
});
