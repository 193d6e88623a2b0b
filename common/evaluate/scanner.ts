import { createPaths, MAX_NAME } from './paths.ts';

/**
 * Passes once over the bytes of an event: strict JSON (RFC 8259) in strict UTF-8, nested at most MAX_DEPTH deep. It
 * builds nothing, so time is linear and memory constant for any input. Only a text that does not end in a bracket is
 * copied. In `found` it notes where the values stand that the paths name: of duplicate keys the first, and for a list
 * whose first element is an object, that object. Keys may contain escapes.
 */
export type Scanner = ReturnType<typeof createScanner>;

export const VALID = -1;
export const TOO_DEEP = -2;
/** Nesting of objects and lists, including the event itself. */
export const MAX_DEPTH = 512;

/** Kinds of a value. ESCAPED: a string with escapes. OTHER: true, false, or a list that stands for no object. */
export const ABSENT = 0;
export const STRING = 1;
export const ESCAPED = 2;
export const NUMBER = 3;
export const NULL = 4;
export const OBJECT = 5;
export const OTHER = 6;

/** Classes of a byte within a string. */
const PLAIN = 0;
const QUOTE = 1;
const BACKSLASH = 2;
const LEAD = 3;
const NEVER = 4;
const CLASS = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte === 0x22) return QUOTE;
  if (byte === 0x5c) return BACKSLASH;
  if (byte >= 0xc2 && byte <= 0xf4) return LEAD;
  return byte < 0x20 || byte >= 0x80 ? NEVER : PLAIN;
});
/** The character of the letter after a backslash; 0 if the escape is invalid. */
const MEANING = new Uint8Array(256);
for (const [letter, meaning] of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t'])
  MEANING[letter!.charCodeAt(0)] = meaning!.charCodeAt(0);

/** A view of the memory that was read last; the events of a fetch share it. */
let words: DataView = new DataView(new ArrayBuffer(0));

/** For each open container but the innermost: its node * 2, plus 1 if it is a list. */
const open = new Uint16Array(MAX_DEPTH);
/** Whether the string that was read last has escapes. */
let hasEscape = false;

export function createScanner(wanted: readonly string[]) {
  const paths = createPaths(wanted);
  /**
   * three numbers per node: the kind of its value, its start and its end. Strings have no quotes. Only texts and
   * numbers have a start and an end
   */
  const found = new Int32Array(paths.size * 3);
  const name = new Uint8Array(MAX_NAME);
  return { paths, found, memberOf, scan };

  /**
   * Returns the node of the member of `node` whose key stands in bytes[from, to), or 0 if no path names it or it was
   * there before.
   */
  function memberOf(node: number, bytes: Uint8Array, from: number, to: number, isEscaped: boolean): number {
    const child = isEscaped ? escapedChildOf(node, bytes, from, to) : paths.childOf(node, bytes, from, to - from);
    return found[child * 3] === ABSENT ? child : 0;
  }

  function escapedChildOf(node: number, bytes: Uint8Array, from: number, to: number): number {
    let length = 0;
    for (let i = from; i < to; length++) {
      if (length === MAX_NAME) return 0;
      let c = bytes[i++]!;
      if (c === 0x5c) {
        c = bytes[i++]!;
        if (c === 0x75) {
          c = 0;
          for (const end = i + 4; i < end; i++)
            c = c * 16 + (bytes[i]! <= 0x39 ? bytes[i]! - 0x30 : (bytes[i]! & 0x0f) + 9);
        } else {
          c = MEANING[c]!;
        }
      }
      // names are ASCII
      if (c >= 0x80) return 0;
      name[length] = c;
    }
    return paths.childOf(node, name, 0, length);
  }

  /**
   * Returns VALID, TOO_DEEP, or the offset from `start` of the byte where bytes[start, limit) stops being a JSON
   * object.
   */
  function scan(bytes: Uint8Array, start: number, limit: number): number {
    found.fill(0);
    if (words.buffer !== bytes.buffer) words = new DataView(bytes.buffer);
    let end = limit;
    while (end > start && isSpace(bytes[end - 1]!)) end--;
    // the last byte closes the event, so reads outside of strings end before it
    if (end - start < 2 || bytes[end - 1] !== 0x7d) return scanOpen(bytes.subarray(start, end));
    let i = start;
    while (isSpace(bytes[i]!)) i++;
    if (bytes[i] !== 0x7b) return i - start;
    const result = scanObject(bytes, i, end, found, memberOf);
    return result < 0 ? result : result - start;
  }

  /** Finds the wrong byte of a text that does not end in a bracket. It is refused anyway, so it may cost a copy. */
  function scanOpen(text: Uint8Array): number {
    const closed = new Uint8Array(text.length + 1);
    closed.set(text);
    closed[text.length] = 0x7d;
    const result = scan(closed, 0, closed.length);
    return result === VALID ? text.length : Math.min(result, text.length);
  }
}

/** Scans the object at i, which must close at the last byte. Returns as `scan`, but the wrong byte's own position. */
function scanObject(
  bytes: Uint8Array,
  i: number,
  end: number,
  found: Int32Array,
  memberOf: Scanner['memberOf'],
): number {
  let depth = 0;
  let isList = false;
  /** of the open container */
  let node = 0;
  /** of the next value */
  let child = 1;
  let isKey = false;
  let c = 0x7b;
  // a value or a key begins at i with c
  for (;;) {
    if (c === 0x22) {
      const from = ++i;
      i = endOfString(bytes, i, end);
      if (i < 0) return -1 - i;
      if (isKey) {
        child = node === 0 ? 0 : memberOf(node, bytes, from, i, hasEscape);
        do c = bytes[++i]!;
        while (isSpace(c));
        if (c !== 0x3a) return i;
        do c = bytes[++i]!;
        while (isSpace(c));
        isKey = false;
        continue;
      }
      if (child !== 0) put(found, child, hasEscape ? ESCAPED : STRING, from, i);
      i++;
    } else if (isKey) {
      return i;
    } else if (c === 0x7b || c === 0x5b) {
      if (depth === MAX_DEPTH) return TOO_DEEP;
      open[depth++] = node * 2 + (isList ? 1 : 0);
      isList = c === 0x5b;
      do c = bytes[++i]!;
      while (isSpace(c));
      if (isList) {
        node = 0;
        if (child !== 0 && c !== 0x7b) {
          found[child * 3] = OTHER;
          child = 0;
        }
        if (c !== 0x5d) continue;
      } else {
        node = child;
        if (child !== 0) found[child * 3] = OBJECT;
        isKey = c !== 0x7d;
        if (isKey) continue;
      }
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      const from = i;
      i = endOfNumber(bytes, i);
      if (i < 0) return -1 - i;
      if (child !== 0) put(found, child, NUMBER, from, i);
    } else {
      const length = wordAt(bytes, i);
      if (length === 0) return i;
      if (child !== 0) found[child * 3] = c === 0x6e ? NULL : OTHER;
      i += length;
    }
    // after a value, or at the bracket that closes an empty container
    for (;;) {
      c = bytes[i]!;
      while (isSpace(c)) c = bytes[++i]!;
      if (c === 0x2c) break;
      if (c !== (isList ? 0x5d : 0x7d)) return i;
      i++;
      const outer = open[--depth]!;
      if (depth === 0) return i === end ? VALID : i;
      if (i === end) return i;
      isList = (outer & 1) === 1;
      node = outer >> 1;
    }
    do c = bytes[++i]!;
    while (isSpace(c));
    isKey = !isList;
    child = 0;
  }
}

export function put(found: Int32Array, node: number, kind: number, from = 0, to = 0): void {
  found[node * 3] = kind;
  found[node * 3 + 1] = from;
  found[node * 3 + 2] = to;
}

/**
 * Returns the position of the quote that ends the string whose first character stands at i. Sets hasEscape. If a byte is
 * wrong, returns -1 minus its position.
 */
function endOfString(bytes: Uint8Array, i: number, end: number): number {
  const view = words;
  const base = bytes.byteOffset;
  const lastWord = end - 4;
  hasEscape = false;
  for (;;) {
    // four bytes at a time: marks the highest bit of each that is a quote, a backslash, below a blank or not ASCII
    // (bytes after such a byte may be marked too)
    while (i <= lastWord) {
      const word = view.getUint32(base + i, true);
      const marks =
        (((word ^ 0x22222222) - 0x01010101) | ((word ^ 0x5c5c5c5c) - 0x01010101) | (word - 0x20202020) | word) &
        0x80808080;
      if (marks !== 0) {
        i += (31 - Math.clz32(marks & -marks)) >> 3;
        break;
      }
      i += 4;
    }
    if (bytes[i] === 0x22 && i < end) return i;
    // after the last word, byte by byte
    while (i < end && CLASS[bytes[i]!] === PLAIN) i++;
    if (i === end) return -1 - end;
    if (bytes[i] === 0x22) return i;
    const kind = CLASS[bytes[i]!]!;
    const next = kind === BACKSLASH ? afterEscape(bytes, i, end) : kind === LEAD ? afterCharacter(bytes, i, end) : -1;
    if (next < 0) return -1 - i;
    if (kind === BACKSLASH) hasEscape = true;
    i = next;
  }
}

/** Returns the position after the number at i. If a byte is wrong, returns -1 minus its position. */
function endOfNumber(bytes: Uint8Array, i: number): number {
  let c = bytes[i]!;
  if (c === 0x2d) c = bytes[++i]!;
  if (c === 0x30) c = bytes[++i]!;
  else if (isDigit(c))
    do c = bytes[++i]!;
    while (isDigit(c));
  else return -1 - i;
  if (c === 0x2e) {
    c = bytes[++i]!;
    if (!isDigit(c)) return -1 - i;
    do c = bytes[++i]!;
    while (isDigit(c));
  }
  if (c === 0x65 || c === 0x45) {
    c = bytes[++i]!;
    if (c === 0x2b || c === 0x2d) c = bytes[++i]!;
    if (!isDigit(c)) return -1 - i;
    do c = bytes[++i]!;
    while (isDigit(c));
  }
  return i;
}

function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
}

function isDigit(c: number): boolean {
  return c >= 0x30 && c <= 0x39;
}

/**
 * Returns the length of null, true or false at i, else 0. None of them reaches past the bracket that ends the event.
 */
function wordAt(bytes: Uint8Array, i: number): number {
  switch (bytes[i]!) {
    case 0x6e:
      return bytes[i + 1] === 0x75 && bytes[i + 2] === 0x6c && bytes[i + 3] === 0x6c ? 4 : 0;
    case 0x74:
      return bytes[i + 1] === 0x72 && bytes[i + 2] === 0x75 && bytes[i + 3] === 0x65 ? 4 : 0;
    case 0x66:
      return bytes[i + 1] === 0x61 && bytes[i + 2] === 0x6c && bytes[i + 3] === 0x73 && bytes[i + 4] === 0x65 ? 5 : 0;
    default:
      return 0;
  }
}

/** Returns the position after the escape at i, or -1 if it is invalid. */
function afterEscape(bytes: Uint8Array, i: number, end: number): number {
  const letter = bytes[i + 1]!;
  if (letter !== 0x75) return MEANING[letter] === 0 ? -1 : i + 2;
  if (i + 6 > end) return -1;
  for (let k = i + 2; k < i + 6; k++) {
    const c = bytes[k]! | 0x20;
    if (!isDigit(bytes[k]!) && !(c >= 0x61 && c <= 0x66)) return -1;
  }
  return i + 6;
}

/**
 * Returns the position after the multi-byte character whose lead byte, 0xc2 to 0xf4, stands at i. Returns -1 for an
 * overlong form, a surrogate, or anything beyond U+10FFFF (Unicode, table 3-7).
 */
export function afterCharacter(bytes: Uint8Array, i: number, end: number): number {
  const lead = bytes[i]!;
  const size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (i + size > end) return -1;
  const second = bytes[i + 1]!;
  if (
    second < (lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80) ||
    second > (lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf)
  )
    return -1;
  for (let k = 2; k < size; k++) if ((bytes[i + k]! & 0xc0) !== 0x80) return -1;
  return i + size;
}
