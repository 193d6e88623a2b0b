import { expect, test } from 'vitest';
import { readReadme, withSettingsTable } from './settings-table.ts';

test('the README lists the settings as they are parsed (npm run settings-table)', () => {
  expect(readReadme()).toBe(withSettingsTable(readReadme()));
});
