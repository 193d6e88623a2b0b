import { setImmediate } from 'node:timers/promises';
import type { Column, Definition, Render } from './definition.ts';
import { eachElement, elements, members, nestedList } from '../../common/json-text.ts';
import { unixMicroseconds } from './timestamp.ts';

/**
 * From what ClickHouse prints to the body callers get. Values stay text all the way: no number passes through a double.
 */
export const RESULT_FORMAT = 'JSONCompact';
/** stands before the rows; a column may be called so, but its quotes are escaped then */
const DATA = '"data":';
/** What the meaning of that format depends on. */
export const RESULT_SETTINGS = {
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_escape_forward_slashes: 0,
  date_time_output_format: 'simple',
  session_timezone: 'UTC',
} as const;

/** The event loop gets a turn after this many characters: other answers must not wait for a large one. */
const TURN_CHARACTERS = 512 * 1024;

export interface Body {
  /** `{"result":[...]}`; a string, because Node sends head and body in one piece then */
  readonly body: string;
  readonly rows: number;
  /** there were more than max rows; the rest is cut */
  readonly truncated: boolean;
}

/** The members of an object by those keys, in the order of the keys, without nulls. What is no valid JSON has none. */
function pick(text: string, keys: readonly string[]): string[] {
  try {
    JSON.parse(text);
  } catch {
    return [];
  }
  const found = members(text, keys);
  return keys.flatMap((k) => found.get(k) ?? []).filter((v) => v !== 'null');
}

const asIs = (token: string): string => token;

const renderers: Readonly<Record<Render, (token: string, keys: readonly string[]) => string>> = {
  string: asIs,
  number: asIs,
  integer: asIs,
  boolean: asIs,
  json: asIs,
  unix_microseconds: (token) => (token === 'null' ? token : unixMicroseconds(token.slice(1, -1))),
  utc: (token) => token.replace(' ', 'T').replace(/\.0+"$/, '"'),
  text: (token, keys) => pick(String(JSON.parse(token)), keys).find((v) => v.startsWith('"')) ?? '""',
  nested_list: (token, keys) => nestedList(pick(String(JSON.parse(token)), keys)[0]),
};

/**
 * Makes the body of a result in RESULT_FORMAT that was asked for with one row more than max rows.
 * Without declared columns those of the result are taken as they are, dates in the zone-less form.
 * That format is `{"meta":[{"name":..,"type":..}],"data":[[..],..],...}`.
 */
export async function renderBody({ columns: declared, maxRows }: Pick<Definition, 'maxRows'> & { readonly columns: readonly Column[] | undefined }, result: Buffer): Promise<Body> {
  const text = result.toString('utf8');
  const metaEnd = text.indexOf(DATA);
  if (metaEnd < 0) throw new Error('the result has no data');
  const meta = JSON.parse(`${text.slice(0, metaEnd).trimEnd().replace(/,$/, '')}}`) as { meta: { name: string; type: string }[] };
  const asTheyAre = (): Column[] => meta.meta.map(({ name, type }) => ({ name, from: name, description: '', nullable: true, render: /^(Nullable\()?Date/.test(type) ? 'utc' : 'json' }));
  const columns = (declared ?? asTheyAre()).map((column) => {
    const index = meta.meta.findIndex((m) => m.name === column.from);
    if (index < 0) throw new Error(`the statement has no column ${column.from}`);
    return { index, label: `${JSON.stringify(column.name)}:`, render: renderers[column.render], keys: column.keys ?? [] };
  });

  const rows: string[] = [];
  let truncated = false;
  let sinceTurn = 0;
  for (const row of eachElement(text, metaEnd + DATA.length)) {
    if (rows.length === maxRows) {
      truncated = true;
      break;
    }
    const tokens = elements(row);
    rows.push(`{${columns.map((c) => c.label + c.render(tokens[c.index] ?? 'null', c.keys)).join(',')}}`);
    sinceTurn += row.length;
    if (sinceTurn > TURN_CHARACTERS) {
      sinceTurn = 0;
      await setImmediate();
    }
  }
  return { body: `{"result":[${rows.join(',')}]}`, rows: rows.length, truncated };
}
