import { readFileSync, writeFileSync } from 'node:fs';
import { settingsRows } from '../common/config/settings.ts';

const README = new URL('../README.md', import.meta.url);
const BEGIN = '<!-- settings: made by `npm run settings-table` -->';
const END = '<!-- /settings -->';

/** The README's table of settings, from the same table that parses them. */
function settingsTableMarkdown(): string {
  return [
    '| variable | default | unit | meaning |',
    '|---|---|---|---|',
    ...settingsRows().map((r) => `| \`${r.name}\` | ${r.shown} | ${r.unit} | ${r.description} |`),
  ].join('\n');
}

/** The README with its table made anew. Throws where the marks are missing. */
export function withSettingsTable(readme: string): string {
  const begin = readme.indexOf(BEGIN);
  const end = readme.indexOf(END);
  if (begin < 0 || end < begin) throw new Error('README.md lacks the marks of its settings table');
  return `${readme.slice(0, begin + BEGIN.length)}\n${settingsTableMarkdown()}\n${readme.slice(end)}`;
}

export const readReadme = (): string => readFileSync(README, 'utf8');

if (import.meta.main) writeFileSync(README, withSettingsTable(readReadme()));
