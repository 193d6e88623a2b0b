/**
 * The exact form of a message for the engine to read fields from, where its own JSON reader could decide wrongly
 * (clickhouse/sources/envelope/exact.sql): the same document with
 * - of duplicate keys only the first;
 * - a list whose first element is an object replaced by that object, any other list empty;
 * - a string prefixed with `s`, lone surrogate escapes in it replaced by U+FFFD;
 * - a number as a string prefixed with `n`, in its own digits.
 * Empty where the message is not JSON in UTF-8, or nested deeper than the usual way takes it: the verdict is the same on both ways.
 */
export function probeOf(value: Uint8Array): string {
  let text: string;
  try {
    text = strictUtf8.decode(value);
    JSON.parse(text);
  } catch {
    return '';
  }
  const probe: string[] = [];
  try {
    copyValue({ text, at: 0, depth: 0 }, probe);
  } catch (error) {
    if (error instanceof TooDeep) return '';
    throw error;
  }
  return probe.join('');
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** simdjson's limit: a container at this depth (the event itself is at 1) must be empty. */
const MAX_DEPTH = 1024;
class TooDeep extends Error {}

/** A place in a text that is known to be JSON. */
interface Cursor {
  readonly text: string;
  at: number;
  depth: number;
}

/** Passes over the value at the cursor and appends its exact form to `out`, where there is one. */
function copyValue(cursor: Cursor, out: string[] | undefined): void {
  skipSpace(cursor);
  const { text, at } = cursor;
  switch (text.charAt(at)) {
    case '{': return copyObject(cursor, out);
    case '[': return copyList(cursor, out);
    case '"': {
      skipString(cursor);
      out?.push('"s', withoutLoneSurrogates(text.slice(at + 1, cursor.at)));
      return;
    }
    case 't': case 'f': case 'n': {
      skipScalar(cursor);
      out?.push(text.slice(at, cursor.at));
      return;
    }
    default: {
      skipScalar(cursor);
      out?.push('"n', text.slice(at, cursor.at), '"');
    }
  }
}

function copyObject(cursor: Cursor, out: string[] | undefined): void {
  const seen = new Set<string>();
  out?.push('{');
  for (let more = open(cursor, '}'); more; more = next(cursor, '}')) {
    const start = cursor.at;
    skipString(cursor);
    const key = withoutLoneSurrogates(cursor.text.slice(start, cursor.at));
    skipSpace(cursor);
    cursor.at++;
    const name = key.includes('\\') ? (JSON.parse(key) as string) : key.slice(1, -1);
    if (out === undefined || seen.has(name)) copyValue(cursor, undefined);
    else {
      out.push(seen.size === 0 ? '' : ',', key, ':');
      seen.add(name);
      copyValue(cursor, out);
    }
  }
  out?.push('}');
}

function copyList(cursor: Cursor, out: string[] | undefined): void {
  let more = open(cursor, ']');
  if (more && cursor.text[cursor.at] === '{') {
    copyValue(cursor, out);
    more = next(cursor, ']');
  } else {
    out?.push('[]');
  }
  for (; more; more = next(cursor, ']')) copyValue(cursor, undefined);
}

/** Enters a container; false where it is empty, and then the cursor stands behind it. */
function open(cursor: Cursor, close: string): boolean {
  cursor.at++;
  cursor.depth++;
  skipSpace(cursor);
  if (cursor.text[cursor.at] === close) return leave(cursor);
  if (cursor.depth >= MAX_DEPTH) throw new TooDeep();
  return true;
}

/** Goes on to the next element; false where there is none, and then the cursor stands behind the container. */
function next(cursor: Cursor, close: string): boolean {
  skipSpace(cursor);
  if (cursor.text[cursor.at] === close) return leave(cursor);
  cursor.at++;
  skipSpace(cursor);
  return true;
}

function leave(cursor: Cursor): false {
  cursor.at++;
  cursor.depth--;
  return false;
}

function skipSpace(cursor: Cursor): void {
  const { text } = cursor;
  // space, tab, line feed, carriage return: nothing else that may stand here is below '!'
  while (text.charCodeAt(cursor.at) <= 0x20) cursor.at++;
}

function skipString(cursor: Cursor): void {
  const { text } = cursor;
  for (let end = text.indexOf('"', cursor.at + 1); ; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text[end - 1 - backslashes] === '\\') backslashes++;
    if (backslashes % 2 === 0) {
      cursor.at = end + 1;
      return;
    }
  }
}

/** A number, true, false or null ends before a comma, a bracket, white space or the end of the text. */
function skipScalar(cursor: Cursor): void {
  const { text } = cursor;
  for (let code = text.charCodeAt(cursor.at); code > 0x20 && code !== 0x2c && code !== 0x5d && code !== 0x7d; code = text.charCodeAt(cursor.at)) cursor.at++;
}

const SURROGATE_ESCAPES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\./g;

/** The JSON string with each lone surrogate escape as U+FFFD. */
function withoutLoneSurrogates(json: string): string {
  return json.includes('\\') ? json.replace(SURROGATE_ESCAPES, (escape) => (escape.length === 6 ? '\\ufffd' : escape)) : json;
}
