import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { settingsTable, type Setting } from './settings.ts';

test('docs/settings.md has every setting as it is parsed, with a meaning', () => {
  const page = readFileSync(new URL('../../docs/settings.md', import.meta.url), 'utf8');
  const rows = page.match(/^\|.*$/gm)?.map((row) => row.replace(/ [^|\s][^|]* \|$/, ' MEANING |'));
  expect(rows).toEqual([
    '| variable | default | range | unit | MEANING |',
    '|---|---|---|---|---|',
    ...Object.entries<Setting<unknown>>(settingsTable).map(([name, { default: value, shown, parse, unit }]) => {
      const cells = [`\`${name}\``, shown ?? `\`${String(value)}\``, parse.range ?? '', unit ?? '', 'MEANING'];
      return `| ${cells.join(' | ')} |`;
    }),
  ]);
});
