/** Lists and objects within each other: as many are accepted of an event, its own object included. */
export const MAX_JSON_DEPTH = 512;

const [TAB, NEWLINE, RETURN, BLANK, QUOTE, PLUS, COMMA, MINUS, DOT, SLASH] = [0x09, 0x0a, 0x0d, 0x20, 0x22, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f];
const [ZERO, NINE, COLON, OPEN_LIST, BACKSLASH, OPEN_OBJECT, CLOSE_OBJECT] = [0x30, 0x39, 0x3a, 0x5b, 0x5c, 0x7b, 0x7d];
const WORDS = ['true', 'false', 'null'].map((word) => Buffer.from(word));
/** What may stand behind a backslash, but for u. */
const ESCAPES = new Set(Buffer.from('"\\/bfnrt'));
/** What the functions below return for a place behind which nothing can be JSON. */
const NONE = -1;

/**
 * Whether bytes of valid UTF-8 are one JSON text (RFC 8259, nothing beyond it) of at most MAX_JSON_DEPTH levels.
 * One pass, without building anything: JSON.parse takes seconds for 8 MB of brackets.
 */
export function checkJson(bytes: Uint8Array): 'json' | 'not_json' | 'too_deep' {
  const closers = new Uint8Array(MAX_JSON_DEPTH + 1);
  let depth = 0;
  let i = behindBlanks(bytes, 0);
  for (;;) {
    const first = bytes[i];
    if (first === OPEN_LIST || first === OPEN_OBJECT) {
      if (depth === MAX_JSON_DEPTH) return 'too_deep';
      const closer = first + 2; // so they stand in ASCII
      closers[++depth] = closer;
      i = behindBlanks(bytes, i + 1);
      if (bytes[i] !== closer) {
        if (closer === CLOSE_OBJECT) i = behindName(bytes, i);
        if (i === NONE) return 'not_json';
        continue;
      }
      i++;
      depth--;
    } else {
      i = first === QUOTE ? behindString(bytes, i) : first === MINUS || isDigit(first) ? behindNumber(bytes, i) : behindWord(bytes, i);
      if (i === NONE) return 'not_json';
    }
    for (;;) {
      i = behindBlanks(bytes, i);
      if (depth === 0) return i === bytes.length ? 'json' : 'not_json';
      if (bytes[i] === COMMA) {
        i = behindBlanks(bytes, i + 1);
        if (closers[depth] === CLOSE_OBJECT) i = behindName(bytes, i);
        if (i === NONE) return 'not_json';
        break;
      }
      if (bytes[i] !== closers[depth]) return 'not_json';
      i++;
      depth--;
    }
  }
}

function behindBlanks(bytes: Uint8Array, at: number): number {
  let i = at;
  while (bytes[i] === BLANK || bytes[i] === NEWLINE || bytes[i] === RETURN || bytes[i] === TAB) i++;
  return i;
}

/** Behind the name of a member and its colon: where its value begins. */
function behindName(bytes: Uint8Array, at: number): number {
  if (bytes[at] !== QUOTE) return NONE;
  const end = behindString(bytes, at);
  if (end === NONE) return NONE;
  const colon = behindBlanks(bytes, end);
  return bytes[colon] === COLON ? behindBlanks(bytes, colon + 1) : NONE;
}

function behindString(bytes: Uint8Array, at: number): number {
  for (let i = at + 1; i < bytes.length; i++) {
    const c = bytes[i]!;
    if (c === QUOTE) return i + 1;
    if (c < BLANK) return NONE;
    if (c !== BACKSLASH) continue;
    i++;
    if (ESCAPES.has(bytes[i]!)) continue;
    if (bytes[i] !== 0x75) return NONE;
    for (const end = i + 4; i < end;) if (!isHexDigit(bytes[++i])) return NONE;
  }
  return NONE;
}

function behindNumber(bytes: Uint8Array, at: number): number {
  let i = bytes[at] === MINUS ? at + 1 : at;
  if (bytes[i] === ZERO) i++;
  else if ((i = behindDigits(bytes, i)) === NONE) return NONE;
  if (bytes[i] === DOT && (i = behindDigits(bytes, i + 1)) === NONE) return NONE;
  if (bytes[i] !== 0x65 && bytes[i] !== 0x45) return i;
  i++;
  return behindDigits(bytes, bytes[i] === PLUS || bytes[i] === MINUS ? i + 1 : i);
}

/** Behind one digit or more. */
function behindDigits(bytes: Uint8Array, at: number): number {
  let i = at;
  while (isDigit(bytes[i])) i++;
  return i === at ? NONE : i;
}

function behindWord(bytes: Uint8Array, at: number): number {
  const word = WORDS.find((w) => w[0] === bytes[at]);
  return word !== undefined && word.every((c, i) => bytes[at + i] === c) ? at + word.length : NONE;
}

function isDigit(c: number | undefined): boolean {
  return c !== undefined && c > SLASH && c <= NINE;
}

function isHexDigit(c: number | undefined): boolean {
  return c !== undefined && (isDigit(c) || (c > 0x40 && c < 0x47) || (c > 0x60 && c < 0x67));
}
