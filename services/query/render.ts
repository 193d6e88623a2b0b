import { setImmediate } from 'node:timers/promises';
import type { Definition, Render } from './definition.ts';
import { asString, elements, members, nestedList } from './json.ts';
import { unixMicroseconds } from './timestamp.ts';

/**
 * From what ClickHouse prints to the body callers get. Values stay text all the way: no number passes through a double.
 */
export const RESULT_FORMAT = 'JSONCompactEachRowWithNames';
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
  /** `{"result":[...]}` */
  readonly body: Buffer;
  readonly rows: number;
  /** there were more than max rows; the rest is cut */
  readonly truncated: boolean;
}

/** The first of `keys` that the object has and that is not null. What is no valid JSON has none. */
function pick(text: string, keys: readonly string[]): string | undefined {
  try {
    JSON.parse(text);
  } catch {
    return undefined;
  }
  const found = members(text, keys);
  return keys.map((k) => found.get(k)).find((v) => v !== undefined && v !== 'null');
}

const asIs = (token: string): string => token;

const renderers: Readonly<Record<Render, (token: string, keys: readonly string[]) => string>> = {
  string: asIs,
  number: asIs,
  boolean: asIs,
  json: asIs,
  unix_microseconds: (token) => (token === 'null' ? token : unixMicroseconds(token.slice(1, -1))),
  utc: (token) => token.replace(' ', 'T').replace(/\.0+"$/, '"'),
  text: (token, keys) => asString(pick(String(JSON.parse(token)), keys)),
  nested_list: (token, keys) => nestedList(pick(String(JSON.parse(token)), keys)),
};

/** Makes the body of a result in RESULT_FORMAT that was asked for with one row more than max rows. */
export async function renderBody(definition: Pick<Definition, 'columns' | 'maxRows'>, result: Buffer): Promise<Body> {
  const parts: string[] = [];
  let rows = 0;
  let truncated = false;
  let sinceTurn = 0;
  let from = result.indexOf(0x0a);
  const names = elements(result.toString('utf8', 0, Math.max(from, 0))).map((name) => String(JSON.parse(name)));
  const columns = definition.columns.map((column) => {
    const index = names.indexOf(column.from);
    if (index < 0 && from >= 0) throw new Error(`the statement has no column ${column.from}`);
    return { index, label: `${JSON.stringify(column.name)}:`, render: renderers[column.render], keys: column.keys ?? [] };
  });
  while (from >= 0 && from + 1 < result.length) {
    const end = result.indexOf(0x0a, from + 1);
    const line = result.toString('utf8', from + 1, end < 0 ? result.length : end);
    from = end;
    if (line === '') continue;
    if (rows === definition.maxRows) {
      truncated = true;
      break;
    }
    const tokens = elements(line);
    parts.push(`{${columns.map((c) => c.label + c.render(tokens[c.index] ?? 'null', c.keys)).join(',')}}`);
    rows++;
    sinceTurn += line.length;
    if (sinceTurn > TURN_CHARACTERS) {
      sinceTurn = 0;
      await setImmediate();
    }
  }
  return { body: Buffer.from(`{"result":[${parts.join(',')}]}`), rows, truncated };
}
