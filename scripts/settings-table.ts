import { readFileSync, writeFileSync } from 'node:fs';
import { settingsTable, type Setting } from '../common/config/settings.ts';

const PAGE = new URL('../docs/settings.md', import.meta.url);
const BEGIN = '<!-- settings: made by `npm run settings-table` -->';
const END = '<!-- /settings -->';

/** The table of settings, from the same table that parses them. */
function settingsTableMarkdown(): string {
  return [
    '| variable | default | range | unit | meaning |',
    '|---|---|---|---|---|',
    ...Object.entries<Setting<unknown>>(settingsTable).map(
      ([name, s]) =>
        `| \`${name}\` | ${s.shown ?? `\`${String(s.default)}\``} | ${s.parse.range ?? ''} | ${s.unit ?? ''} | ${s.description} |`,
    ),
  ].join('\n');
}

/** Returns the page of settings with a new table. Throws if the marks are missing. */
export function withSettingsTable(page: string): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error('docs/settings.md lacks the marks of its settings table');
  return `${page.slice(0, begin + BEGIN.length)}\n${settingsTableMarkdown()}\n${page.slice(end)}`;
}

export const readPage = (): string => readFileSync(PAGE, 'utf8');

if (import.meta.main) writeFileSync(PAGE, withSettingsTable(readPage()));
