import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { Column, Definition, Render } from '../definition/definition.ts';
import { elements, members, nestedList } from '../../../common/json-text.ts';
import { unixMicroseconds } from '../definition/timestamp.ts';

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

/** The event loop gets a turn after this many bytes: other answers must not wait for a large one. */
const TURN_BYTES = 128 * 1024;

export interface Body {
  /** `{"result":[...]}`; a string where it is small, because Node sends head and body in one piece then */
  readonly body: string | Buffer;
  /** there were more than max rows; the rest is cut */
  readonly truncated: boolean;
  /** weak, of the body */
  readonly etag: string;
}

/** What a body is made of. */
export type Shape = Pick<Definition, 'maxRows'> & { readonly columns: readonly Column[] | undefined };

export function etagOf(body: string | Buffer): string {
  return `W/"${hash('sha256', body, 'base64url').slice(0, 22)}"`;
}

let checked = '';

/** Whether a text is JSON. The columns of a row are made from the same one: it is read once. */
function isJson(text: string): boolean {
  if (text === checked) return true;
  try {
    JSON.parse(text);
  } catch {
    return false;
  }
  checked = text;
  return true;
}

/** The members of an object by those keys, in the order of the keys, without nulls. What is no valid JSON has none. */
function pick(text: string, keys: readonly string[]): string[] {
  if (!isJson(text)) return [];
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

const [QUOTE, BACKSLASH, COMMA, OPEN, CLOSE] = [0x22, 0x5c, 0x2c, 0x5b, 0x5d];
const isBlank = (byte: number | undefined): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Behind the string whose opening quote stands at `at`. */
function stringEnd(bytes: Buffer, at: number): number {
  for (let quote = bytes.indexOf(QUOTE, at + 1); quote >= 0; quote = bytes.indexOf(QUOTE, quote + 1)) {
    let backslashes = 0;
    while (bytes[quote - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return bytes.length;
}

/** The text of each row of the list that begins behind `from`. By bytes, so that a large result never is one text. */
function* eachRow(bytes: Buffer, from: number): Generator<string, void> {
  let at = bytes.indexOf(OPEN, from) + 1;
  for (;;) {
    while (isBlank(bytes[at]) || bytes[at] === COMMA) at++;
    if (bytes[at] !== OPEN) return;
    let end = at;
    let depth = 0;
    do {
      const byte = bytes[end];
      if (byte === QUOTE) end = stringEnd(bytes, end);
      else {
        if (byte === OPEN) depth++;
        else if (byte === CLOSE) depth--;
        end++;
      }
    } while (depth > 0 && end < bytes.length);
    yield bytes.toString('utf8', at, end);
    at = end;
  }
}

/**
 * Rows of a body, each with the bytes of the result that it is made from; the last one is undefined if there are more
 * than max rows.
 */
function* renderedRows({ columns: declared, maxRows }: Shape, result: Buffer): Generator<string | undefined, void> {
  const metaEnd = result.indexOf(DATA);
  if (metaEnd < 0) throw new Error('the result has no data');
  const meta = JSON.parse(`${result.toString('utf8', 0, metaEnd).trimEnd().replace(/,$/, '')}}`) as {
    meta: { name: string; type: string }[];
  };
  const asTheyAre = (): Column[] =>
    meta.meta.map(({ name, type }) => ({
      name,
      from: name,
      description: '',
      nullable: true,
      render: /^(Nullable\()?Date/.test(type) ? 'utc' : 'json',
    }));
  const columns = (declared ?? asTheyAre()).map((column) => {
    const index = meta.meta.findIndex((m) => m.name === column.from);
    if (index < 0) throw new Error(`the statement has no column ${column.from}`);
    return {
      index,
      label: `${JSON.stringify(column.name)}:`,
      render: renderers[column.render],
      keys: column.keys ?? [],
    };
  });
  let rows = 0;
  for (const row of eachRow(result, metaEnd + DATA.length)) {
    if (rows++ === maxRows) {
      yield undefined;
      return;
    }
    const tokens = elements(row);
    yield `{${columns.map((c) => c.label + c.render(tokens[c.index] ?? 'null', c.keys)).join(',')}}`;
  }
}

/**
 * Makes the body of a small result in RESULT_FORMAT that was asked for with one row more than max rows.
 * Without declared columns those of the result are taken as they are, dates in the zone-less form.
 * That format is `{"meta":[{"name":..,"type":..}],"data":[[..],..],...}`.
 */
export async function renderBody(shape: Shape, result: Buffer): Promise<Body> {
  const rows: string[] = [];
  let truncated = false;
  let sinceTurn = 0;
  for (const row of renderedRows(shape, result)) {
    if (row === undefined) truncated = true;
    else rows.push(row);
    sinceTurn += row?.length ?? 0;
    if (sinceTurn > TURN_BYTES) {
      sinceTurn = 0;
      await setImmediate();
    }
  }
  const body = `{"result":[${rows.join(',')}]}`;
  return { body, truncated, etag: etagOf(body) };
}

/** The same of a large result, as bytes and in one go: for a thread of its own. */
export function renderBytes(shape: Shape, result: Buffer): Body & { readonly body: Buffer } {
  const pieces: Buffer[] = [Buffer.from('{"result":[')];
  let truncated = false;
  for (const row of renderedRows(shape, result)) {
    if (row === undefined) truncated = true;
    else pieces.push(Buffer.from(pieces.length > 1 ? `,${row}` : row));
  }
  pieces.push(Buffer.from(']}'));
  const body = Buffer.concat(pieces);
  return { body, truncated, etag: etagOf(body) };
}
