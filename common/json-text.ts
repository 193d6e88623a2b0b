/**
 * JSON as text. JSON.parse would lose digits beyond 2^53 and keep the last of duplicate keys; callers get the digits
 * that were sent, and the first of duplicate keys. It is iterative: depth costs memory, never the call stack. The input
 * is valid JSON, because nothing else is stored. For invalid input it never reads past the end.
 */
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

export function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

/** Returns the next position from `at` that is not blank. */
export function skipBlanks(text: string, at: number): number {
  let i = at;
  while (i < text.length && isBlank(text.charCodeAt(i))) i++;
  return i;
}

/** Returns the position after the string whose opening quote stands at `at`. */
function stringEnd(text: string, at: number): number {
  let quote = at;
  for (;;) {
    quote = text.indexOf('"', quote + 1);
    if (quote < 0) return text.length;
    let backslashes = 0;
    while (quote - 1 - backslashes > at && text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
  }
}

/** Returns the position after a number, true, false or null. */
function wordEnd(text: string, at: number): number {
  let i = at + 1;
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === COMMA || c === COLON || c === CLOSE_LIST || c === CLOSE_OBJECT || isBlank(c)) break;
  }
  return i;
}

/** Returns the position after the value that begins at `at` (no blank). */
export function valueEnd(text: string, at: number): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return stringEnd(text, at);
  if (first !== OPEN_LIST && first !== OPEN_OBJECT) return wordEnd(text, at);
  let depth = 0;
  let i = at;
  while (i < text.length) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      i = stringEnd(text, i);
      continue;
    }
    i++;
    if (c === OPEN_LIST || c === OPEN_OBJECT) depth++;
    else if ((c === CLOSE_LIST || c === CLOSE_OBJECT) && --depth === 0) break;
  }
  return i;
}

/** Returns the characters of a string literal; two keys are equal if these are. */
export function unquoted(literal: string): string {
  return literal.includes('\\') ? String(JSON.parse(literal)) : literal.slice(1, -1);
}

/** Yields the text of each element of the list that begins at `from`. */
export function* eachElement(text: string, from = 0): Generator<string, void> {
  let i = skipBlanks(text, skipBlanks(text, from) + 1);
  while (i < text.length && text.charCodeAt(i) !== CLOSE_LIST) {
    const end = valueEnd(text, i);
    yield text.slice(i, end);
    i = skipBlanks(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipBlanks(text, i + 1);
  }
}

/** Returns the texts of all elements of a list. */
export function elements(list: string): string[] {
  return [...eachElement(list)];
}

/**
 * Yields the texts of each member's key and value, in order, and the position after the value. A text that is no object
 * has no members.
 */
export function* eachMember(object: string): Generator<readonly [key: string, value: string, end: number], void> {
  let i = skipBlanks(object, 0);
  if (object.charCodeAt(i) !== OPEN_OBJECT) return;
  i = skipBlanks(object, i + 1);
  while (i < object.length && object.charCodeAt(i) === QUOTE) {
    const keyEnd = stringEnd(object, i);
    const value = skipBlanks(object, skipBlanks(object, keyEnd) + 1);
    const end = valueEnd(object, value);
    yield [object.slice(i, keyEnd), object.slice(value, end), end];
    i = skipBlanks(object, end);
    if (object.charCodeAt(i) === COMMA) i = skipBlanks(object, i + 1);
  }
}

/** Returns the texts of the wanted members of an object, of duplicate keys the first. */
export function members(object: string, wanted: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const [literal, value] of eachMember(object)) {
    const key = unquoted(literal);
    if (!wanted.includes(key) || found.has(key)) continue;
    found.set(key, value);
    if (found.size === wanted.length) break;
  }
  return found;
}

/**
 * Returns a value as a nested record list. An object becomes a list of one object, at every depth. In a list an object
 * stays an element, and its fields follow the same rule. Scalars, nulls and inner lists stay. The outermost value is
 * always a list: absent and null give [], a scalar [scalar], {} gives [{}]. Digits stay, and of duplicate keys the
 * first is kept.
 */
export function nestedList(value: string | undefined): string {
  if (value === undefined) return '[]';
  const start = skipBlanks(value, 0);
  const first = value.charCodeAt(start);
  if (first !== OPEN_OBJECT && first !== OPEN_LIST) {
    const scalar = value.slice(start, valueEnd(value, start));
    return scalar === 'null' || scalar === '' ? '[]' : `[${scalar}]`;
  }

  // One frame per open list or object. Its keys are collected only from the first one on, because an event may be
  // millions of empty objects.
  interface Frame {
    readonly isObject: boolean;
    keys: Set<string> | undefined;
    readonly closer: string;
    empty: boolean;
  }
  const open: Frame[] = [];
  let out = '';
  let i = start;
  do {
    const frame = open.at(-1);
    i = skipBlanks(value, i);
    let c = value.charCodeAt(i);
    if (frame !== undefined) {
      if (c === COMMA) {
        i = skipBlanks(value, i + 1);
        c = value.charCodeAt(i);
      }
      if (c === CLOSE_LIST || c === CLOSE_OBJECT) {
        out += frame.closer;
        open.pop();
        i++;
        continue;
      }
      if (frame.isObject) {
        const keyEnd = stringEnd(value, i);
        const literal = value.slice(i, keyEnd);
        const key = unquoted(literal);
        i = skipBlanks(value, skipBlanks(value, keyEnd) + 1);
        if (frame.keys?.has(key) === true) {
          i = valueEnd(value, i);
          continue;
        }
        frame.keys ??= new Set();
        frame.keys.add(key);
        out += frame.empty ? `${literal}:` : `,${literal}:`;
        frame.empty = false;
        c = value.charCodeAt(i);
      } else if (frame.empty) frame.empty = false;
      else out += ',';
    }
    if (c === OPEN_OBJECT) {
      const wrapped = frame === undefined || frame.isObject;
      out += wrapped ? '[{' : '{';
      open.push({ isObject: true, keys: undefined, closer: wrapped ? '}]' : '}', empty: true });
      i++;
    } else if (c === OPEN_LIST) {
      out += '[';
      open.push({ isObject: false, keys: undefined, closer: ']', empty: true });
      i++;
    } else {
      const end = valueEnd(value, i);
      out += value.slice(i, end);
      i = end;
    }
  } while (open.length > 0 && i < value.length);
  return out;
}
