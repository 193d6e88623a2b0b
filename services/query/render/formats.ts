import { setImmediate } from 'node:timers/promises';
import { eachElement, eachMember } from '../../../common/json-text.ts';
import type { Definition } from '../definition/definition.ts';

/** The forms of an answer besides JSON. They are made from its JSON text, so digits stay as they are. */
export type OtherFormat = 'csv' | 'ndjson';
export const MEDIA_TYPES: Readonly<Record<OtherFormat, string>> = { csv: 'text/csv', ndjson: 'application/x-ndjson' };
export const CONTENT_TYPES: Readonly<Record<OtherFormat, string>> = {
  csv: 'text/csv; charset=utf-8; header=present',
  ndjson: 'application/x-ndjson; charset=utf-8',
};

/** precedes the rows */
const RESULT = '{"result":';
/** The event loop serves others after this many characters. */
const TURN_CHARACTERS = 256 * 1024;

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

/** Returns the body `{"result":[...]}` in another form. */
export async function inFormat(body: string, format: OtherFormat, columns: Definition['columns']): Promise<string> {
  const lines: string[] = [];
  let sinceTurn = 0;
  if (format === 'csv') lines.push(`${columns.map(({ name }) => name).join(',')}\r\n`);
  for (const row of eachElement(body, RESULT.length)) {
    lines.push(
      format === 'ndjson' ? `${row}\n` : `${[...eachMember(row)].map(([, value]) => csvField(value)).join(',')}\r\n`,
    );
    sinceTurn += row.length;
    if (sinceTurn > TURN_CHARACTERS) {
      sinceTurn = 0;
      await setImmediate();
    }
  }
  return lines.join('');
}
