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
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return text.length;
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

  // One frame per open list or object. An object's keys are collected only from the first one on, because an event may
  // be millions of empty objects.
  const open: { readonly isObject: boolean; readonly isWrapped: boolean; keys: Set<string> | undefined }[] = [];
  let out = '';
  let i = start;
  let run = start;
  /**
   * Copies the run that ends before i, and leaves out what stands from i to `next`. Runs are long: added token by token,
   * a million empty lists took four times as long.
   */
  const leaveOut = (next: number): void => {
    if (i > run) out += value.slice(run, i);
    run = i = next;
  };
  const dropBlanks = (): void => {
    const next = skipBlanks(value, i);
    if (next > i) leaveOut(next);
  };
  do {
    const frame = open.at(-1);
    dropBlanks();
    const hasComma = value.charCodeAt(i) === COMMA;
    const item = hasComma ? skipBlanks(value, i + 1) : i;
    const closer = value.charCodeAt(item);
    if (frame !== undefined && (closer === CLOSE_LIST || closer === CLOSE_OBJECT)) {
      i = item;
      if (frame.isWrapped) {
        leaveOut(i + 1);
        out += '}]';
      } else i++;
      open.pop();
      continue;
    }
    let keyEnd = 0;
    if (frame?.isObject === true) {
      keyEnd = stringEnd(value, item);
      const key = unquoted(value.slice(item, keyEnd));
      if (frame.keys?.has(key) === true) {
        leaveOut(valueEnd(value, skipBlanks(value, skipBlanks(value, keyEnd) + 1)));
        continue;
      }
      frame.keys ??= new Set();
      frame.keys.add(key);
    }
    if (hasComma) {
      i++;
      dropBlanks();
    }
    if (keyEnd > 0) {
      i = keyEnd;
      dropBlanks();
      i++;
      dropBlanks();
    }
    const opener = value.charCodeAt(i);
    if (opener === OPEN_OBJECT || opener === OPEN_LIST) {
      const isObject = opener === OPEN_OBJECT;
      const isWrapped = isObject && (frame === undefined || frame.isObject);
      if (isWrapped) {
        leaveOut(i);
        out += '[';
      }
      open.push({ isObject, isWrapped, keys: undefined });
      i++;
    } else i = valueEnd(value, i);
  } while (open.length > 0 && i < value.length);
  return out + value.slice(run, i);
}
