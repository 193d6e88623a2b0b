import { hash } from 'node:crypto';
import type { Column, Definition, Render } from '../definition/definition.ts';
import { eachElement, isBlank, members, nestedList } from '../../../common/json-text.ts';
import { RESULT, layoutOf, type Layout, type OtherFormat } from './formats.ts';
import { unixMicroseconds } from '../definition/timestamp.ts';

/**
 * Turns what ClickHouse prints into the body that callers get. Values stay text all the way: no number passes through a
 * double.
 */
export const RESULT_FORMAT = 'JSONCompact';
/** Precedes the rows. It cannot occur in the meta before it, because quotes in names are escaped there. */
const DATA = '"data":';
/** Callers get slashes as they are. All else in that format is as for every read. */
export const RESULT_SETTINGS = { output_format_json_escape_forward_slashes: 0 } as const;

/** Room for what a body has more than its result. */
const MORE_BYTES = 1024;

export interface Body {
  /** `{"result":[...]}`, or its rows in another form; a string if it is small (renderer.ts) */
  readonly body: string | Buffer;
  /** true if there were more than max rows; the rest is cut */
  readonly truncated: boolean;
  /** weak, of the body */
  readonly etag: string;
}

/** What a body depends on besides the result. */
export type Shape = Pick<Definition, 'maxRows'> & { readonly columns: readonly Column[] | undefined };

/** Returns the same bytes as a Buffer: they arrive from another thread as a Uint8Array. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

export function etagOf(body: string | Buffer): string {
  return `W/"${hash('sha256', body, 'base64url').slice(0, 22)}"`;
}

let checked = '';

/**
 * Returns whether a text is JSON. It remembers the last text, because several columns of a row come from the same one.
 */
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

/** Returns the members of an object with these keys, in their order, without nulls. Invalid JSON has none. */
function pick(text: string, keys: readonly string[]): string[] {
  if (!isJson(text)) return [];
  const found = members(text, keys);
  return keys.flatMap((k) => found.get(k) ?? []).filter((v) => v !== 'null');
}

const asIs = (token: string): string => token;

/** Renderings that change the text of a value. */
const renderers: { readonly [R in Render]?: (token: string, keys: readonly string[]) => string } = {
  unix_microseconds: (token) => (token === 'null' ? token : unixMicroseconds(token.slice(1, -1))),
  utc: (token) => token.replace(' ', 'T').replace(/\.0+"$/, '"'),
  text: (token, keys) => pick(String(JSON.parse(token)), keys).find((v) => v.startsWith('"')) ?? '""',
  nested_list: (token, keys) => nestedList(pick(String(JSON.parse(token)), keys)[0]),
};

const [QUOTE, BACKSLASH, COMMA, OPEN] = [0x22, 0x5c, 0x2c, 0x5b];
/** the brackets of a row: of a result, of a body */
const LIST: readonly [number, number] = [OPEN, 0x5d];
const OBJECT: typeof LIST = [0x7b, 0x7d];

/** Returns the position after the string whose opening quote stands at `at`. */
function stringEnd(bytes: Buffer, at: number): number {
  for (let quote = bytes.indexOf(QUOTE, at + 1); quote >= 0; quote = bytes.indexOf(QUOTE, quote + 1)) {
    let backslashes = 0;
    while (bytes[quote - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return bytes.length;
}

/**
 * Yields the text of each row of the list that begins after `from`. It works on bytes, so a large result never becomes
 * one string.
 */
function* eachRow(bytes: Buffer, from: number, [open, close] = LIST): Generator<string, void> {
  let at = bytes.indexOf(OPEN, from) + 1;
  for (;;) {
    while (at < bytes.length && (isBlank(bytes[at]!) || bytes[at] === COMMA)) at++;
    if (bytes[at] !== open) return;
    let end = at;
    let depth = 0;
    do {
      const byte = bytes[end];
      if (byte === QUOTE) end = stringEnd(bytes, end);
      else {
        if (byte === open) depth++;
        else if (byte === close) depth--;
        end++;
      }
    } while (depth > 0 && end < bytes.length);
    yield bytes.toString('utf8', at, end);
    at = end;
  }
}

/** Yields the rows of a body. The last one is undefined if there are more than max rows. */
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
      render: renderers[column.render] ?? asIs,
      keys: column.keys ?? [],
    };
  });
  let rows = 0;
  for (const row of eachRow(result, metaEnd + DATA.length)) {
    if (rows++ === maxRows) {
      yield undefined;
      return;
    }
    const tokens = [...eachElement(row)];
    yield `{${columns.map((c) => c.label + c.render(tokens[c.index] ?? 'null', c.keys)).join(',')}}`;
  }
}

/**
 * Returns a body in an ArrayBuffer of its own. Rows go into it one by one, because pieces and their concatenation would
 * take twice the memory. An undefined row is a cut.
 */
function bodyOf(
  rows: Iterable<string | undefined>,
  size: number,
  { head, separator, tail, line }: Layout,
): Body & { readonly body: Buffer } {
  let bytes = Buffer.allocUnsafeSlow(size + MORE_BYTES);
  let used = 0;
  const add = (text: string): void => {
    const needed = used + Buffer.byteLength(text);
    if (needed > bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.ceil(needed * 1.25));
      bytes.copy(larger, 0, 0, used);
      bytes = larger;
    }
    used += bytes.write(text, used);
  };
  add(head);
  const start = used;
  let truncated = false;
  for (const row of rows) {
    if (row === undefined) truncated = true;
    else {
      if (used > start) add(separator);
      add(line(row));
    }
  }
  add(tail);
  // Whoever keeps the body, such as the cache, counts only its own bytes. So it keeps at most twice as many.
  const body = used < bytes.length / 2 ? Buffer.from(bytes.buffer.transfer(used)) : bytes.subarray(0, used);
  return { body, truncated, etag: etagOf(body) };
}

/**
 * Returns the body of a result in RESULT_FORMAT, which was requested with one row more than max rows. Without declared
 * columns it takes those of the result, and prints dates without a zone. The format is
 * `{"meta":[{"name":..,"type":..}],"data":[[..],..],...}`.
 */
export function renderBody(shape: Shape, result: Buffer, format?: OtherFormat): ReturnType<typeof bodyOf> {
  return bodyOf(renderedRows(shape, result), result.length, layoutOf(format, shape.columns ?? []));
}

/** Returns the body `{"result":[...]}` in another form. */
export function convertBody(body: Buffer, format: OtherFormat, columns: readonly Column[]): ReturnType<typeof bodyOf> {
  return bodyOf(eachRow(body, RESULT.length, OBJECT), body.length, layoutOf(format, columns));
}
