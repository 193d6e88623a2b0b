/**
 * A reader of JSON (RFC 8259) for the oracle: strict, keeps the text of numbers and the first of duplicate keys.
 * Written without a look at, and sharing nothing with, what the services use.
 */
export type Json =
  | { readonly type: 'string'; readonly text: string }
  | { readonly type: 'number'; readonly text: string }
  | { readonly type: 'boolean' | 'null' }
  | { readonly type: 'list'; readonly elements: readonly Json[] }
  | { readonly type: 'object'; readonly members: ReadonlyMap<string, Json> };

export class NotJson extends Error {}

/** Containers with something in them may stand at depths up to this (the whole is at 1); deeper is refused. */
const DEEPEST = 512;

/** Throws NotJson unless the bytes are one JSON value in UTF-8 and nothing else but white space. */
export function readJson(bytes: Uint8Array): Json {
  return new Reader(decodeUtf8(bytes)).whole();
}

/** Code points of strict UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
function decodeUtf8(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length;) {
    const lead = bytes[i++]!;
    const extra =
      lead < 0x80
        ? 0
        : lead >= 0xc2 && lead <= 0xdf
          ? 1
          : lead >= 0xe0 && lead <= 0xef
            ? 2
            : lead >= 0xf0 && lead <= 0xf4
              ? 3
              : -1;
    if (extra < 0) throw new NotJson('not UTF-8');
    let point = extra === 0 ? lead : lead & (0x3f >> extra);
    for (let k = 0; k < extra; k++) {
      const byte = bytes[i++];
      if (byte === undefined || (byte & 0xc0) !== 0x80) throw new NotJson('not UTF-8');
      point = point * 64 + (byte & 0x3f);
    }
    const least = [0, 0x80, 0x800, 0x10000][extra]!;
    if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) throw new NotJson('not UTF-8');
    text += String.fromCodePoint(point);
  }
  return text;
}

const ESCAPED: { readonly [letter: string]: string } = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): Json {
    const value = this.#value();
    this.#space();
    if (this.#at !== this.#text.length) throw new NotJson(`something behind the value at ${this.#at}`);
    return value;
  }

  #space(): void {
    while (' \t\n\r'.includes(this.#text.charAt(this.#at)) && this.#at < this.#text.length) this.#at++;
  }

  /** Takes the character, or refuses the text. */
  #expect(character: string): void {
    if (this.#text[this.#at] !== character) throw new NotJson(`expected ${character} at ${this.#at}`);
    this.#at++;
  }

  #value(): Json {
    this.#space();
    const c = this.#text[this.#at];
    if (c === '{') return this.#object();
    if (c === '[') return this.#list();
    if (c === '"') return { type: 'string', text: this.#string() };
    for (const [word, type] of [
      ['true', 'boolean'],
      ['false', 'boolean'],
      ['null', 'null'],
    ] as const) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return { type };
      }
    }
    const number = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/.exec(
      this.#text.slice(this.#at, this.#at + 100_000),
    )?.[0];
    if (number === undefined) throw new NotJson(`no value at ${this.#at}`);
    this.#at += number.length;
    return { type: 'number', text: number };
  }

  #object(): Json {
    const members = new Map<string, Json>();
    this.#elements('}', () => {
      this.#space();
      const key = this.#string();
      this.#space();
      this.#expect(':');
      const value = this.#value();
      if (!members.has(key)) members.set(key, value);
    });
    return { type: 'object', members };
  }

  #list(): Json {
    const elements: Json[] = [];
    this.#elements(']', () => elements.push(this.#value()));
    return { type: 'list', elements };
  }

  #elements(close: string, element: () => void): void {
    this.#at++;
    this.#depth++;
    this.#space();
    if (this.#text[this.#at] !== close) {
      if (this.#depth > DEEPEST) throw new NotJson('too deep');
      for (;;) {
        element();
        this.#space();
        if (this.#text[this.#at] !== ',') break;
        this.#at++;
      }
    }
    this.#expect(close);
    this.#depth--;
  }

  /** The characters that it means; a surrogate escape without its partner is U+FFFD. */
  #string(): string {
    this.#expect('"');
    let meaning = '';
    for (;;) {
      const c = this.#text[this.#at++];
      if (c === undefined || c < ' ') throw new NotJson(`no end of the string at ${this.#at}`);
      if (c === '"') return meaning;
      if (c !== '\\') {
        meaning += c;
        continue;
      }
      const letter = this.#text[this.#at++] ?? '';
      if (letter !== 'u') {
        const escaped = ESCAPED[letter];
        if (escaped === undefined) throw new NotJson(`no escape at ${this.#at}`);
        meaning += escaped;
        continue;
      }
      const unit = this.#unit();
      const isHigh = unit >= 0xd800 && unit <= 0xdbff;
      const low =
        isHigh && this.#text.startsWith('\\u', this.#at)
          ? Number.parseInt(this.#text.slice(this.#at + 2, this.#at + 6), 16)
          : 0;
      if (low >= 0xdc00 && low <= 0xdfff && /^[0-9a-fA-F]{4}$/.test(this.#text.slice(this.#at + 2, this.#at + 6))) {
        this.#at += 6;
        meaning += String.fromCharCode(unit, low);
      } else {
        meaning += unit >= 0xd800 && unit <= 0xdfff ? '\ufffd' : String.fromCharCode(unit);
      }
    }
  }

  #unit(): number {
    const digits = this.#text.slice(this.#at, this.#at + 4);
    if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw new NotJson(`no escape at ${this.#at}`);
    this.#at += 4;
    return Number.parseInt(digits, 16);
  }
}
