import { eachMember } from '../../../common/json-text.ts';
import type { Definition } from '../definition/definition.ts';

/** The forms of an answer besides JSON. They are made from its JSON text, so digits stay as they are. */
export type OtherFormat = 'csv' | 'ndjson';
export const MEDIA_TYPES: Readonly<Record<OtherFormat, string>> = { csv: 'text/csv', ndjson: 'application/x-ndjson' };
export const CONTENT_TYPES: Readonly<Record<OtherFormat, string>> = {
  csv: 'text/csv; charset=utf-8; header=present',
  ndjson: 'application/x-ndjson; charset=utf-8',
};

/** precedes the rows */
export const RESULT = '{"result":';

/** Whether every column is a plain value. */
export function hasCsv({ columns, sandboxed }: Pick<Definition, 'columns' | 'sandboxed'>): boolean {
  return !sandboxed && columns.every(({ render }) => render !== 'json' && render !== 'nested_list');
}

function csvField(token: string): string {
  if (token === 'null') return '';
  if (!token.startsWith('"')) return token;
  const text = String(JSON.parse(token));
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** What a body has around its rows. A row is the text of a JSON object. */
export interface Layout {
  readonly head: string;
  readonly separator: string;
  readonly tail: string;
  readonly line: (row: string) => string;
}

/** Returns the layout of a format, and of JSON if there is none. */
export function layoutOf(format: OtherFormat | undefined, columns: Definition['columns']): Layout {
  if (format === undefined) return { head: `${RESULT}[`, separator: ',', tail: ']}', line: (row) => row };
  const lines = { separator: '', tail: '' };
  if (format === 'ndjson') return { ...lines, head: '', line: (row) => `${row}\n` };
  return {
    ...lines,
    head: `${columns.map(({ name }) => name).join(',')}\r\n`,
    line: (row) => `${[...eachMember(row)].map(([, value]) => csvField(value)).join(',')}\r\n`,
  };
}
