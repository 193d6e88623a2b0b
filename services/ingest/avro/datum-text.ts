import { isUtf8 } from 'node:buffer';
import { afterCharacter, MAX_DEPTH } from '../../../common/evaluate/scanner.ts';

// Reads an Avro datum and writes JSON text. One datum at a time: the state is the module's, cheaper than an object's.

/** The datum is not one of its schema: cut off, bytes left over, or a value that Avro does not allow. */
export class MalformedAvro extends Error {}

/** The JSON text would be larger than allowed. */
export class TextTooLarge extends Error {}

/** Items of lists in one datum that take no bytes. */
export const MAX_EMPTY_ITEMS = 1_000;

/** Writes a value; of text it returns whether there are escapes in it. */
export type Write = () => boolean | void;

/**
 * The text of most datums fits into it. It is the memory of one text after the other: new memory for every text would
 * make V8 mark its heap each time, as it would in RowBinary.
 */
const USUAL_BYTES = 1024 * 1024;

/**
 * The memory in which the datum lies, whole; `at` and `end` are places in it, `base` is that of the message's first
 * byte.
 */
let input: Uint8Array = new Uint8Array(0);
let inputWords: DataView = new DataView(input.buffer);
let base = 0;
export let at = 0;
let end = 0;
export let out: Buffer = Buffer.alloc(0);
let outWords: DataView = new DataView(out.buffer);
/** where the text goes on in `out`; it begins at 0 */
export let pos = 0;
let textLimit = 0;
let depth = 0;
let emptyItems = 0;

/** Prepares for the datum that fills `bytes` from `start` to its end, and for a text of at most maxBytes. */
export function begin(bytes: Buffer, start: number, maxBytes: number): void {
  if (bytes.buffer !== input.buffer) {
    input = new Uint8Array(bytes.buffer);
    inputWords = new DataView(bytes.buffer);
  }
  base = bytes.byteOffset;
  at = base + start;
  end = base + bytes.length;
  if (out.length !== USUAL_BYTES) newText(USUAL_BYTES);
  pos = 0;
  textLimit = maxBytes;
  depth = 0;
  emptyItems = 0;
}

/** The text, until the next datum begins. Throws MalformedAvro if something is left of the datum, TextTooLarge. */
export function finish(): Buffer {
  if (at !== end) throw new MalformedAvro(`${end - at} bytes left over`);
  if (pos > textLimit) throw tooLarge();
  return out.subarray(0, pos);
}

/** Where the datum is read now, for messages. */
export function place(): number {
  return at - base;
}

export function writeByte(byte: number): void {
  reserve(1);
  out[pos++] = byte;
}

function tooLarge(): TextTooLarge {
  return new TextTooLarge(`more than ${textLimit} bytes as JSON`);
}

function newText(bytes: number): void {
  out = Buffer.allocUnsafeSlow(bytes);
  outWords = new DataView(out.buffer);
}

/** So much of the room that is asked for may stay unused. A text that cannot fit is refused before it is written. */
const MAX_UNUSED = 32;

/** Makes room for that many bytes. What is written moves along. */
function reserve(bytes: number): void {
  if (pos + bytes > out.length) grow(bytes);
}

function grow(bytes: number): void {
  const most = textLimit + MAX_UNUSED;
  if (pos + bytes > most) throw tooLarge();
  const text = out.subarray(0, pos);
  newText(Math.min((pos + bytes) * 2, most));
  text.copy(out);
}

function cutOff(): MalformedAvro {
  return new MalformedAvro(`cut off at byte ${end - base}`);
}

function readByte(): number {
  if (at >= end) throw cutOff();
  return input[at++]!;
}

/** A varint, zigzag decoded; exact within 2^52, beyond it some number beyond 2^52. */
export function readNumber(): number {
  let byte = readByte();
  const isNegative = (byte & 1) === 1;
  if (byte < 0x80) return isNegative ? -(byte >>> 1) - 1 : byte >>> 1;
  let raw = byte & 0x7f;
  let factor = 0x80;
  for (let i = 1; ; i++) {
    if (i === 10) throw new MalformedAvro(`integer of more than 10 bytes at byte ${at - base}`);
    byte = readByte();
    raw += (byte & 0x7f) * factor;
    if (byte < 0x80) break;
    factor *= 0x80;
  }
  return isNegative ? -(raw + 1) / 2 : raw / 2;
}

function readLength(): number {
  const length = readNumber();
  if (length < 0) throw new MalformedAvro(`negative length at byte ${at - base}`);
  if (length > end - at) throw new MalformedAvro(`length ${length} with ${end - at} bytes left at byte ${at - base}`);
  return length;
}

const MAX_INT = 2 ** 31 - 1;
const MAX_LONG = 2n ** 63n - 1n;
/** Below it a zigzag number is exact in a double. */
const EXACT = 2 ** 52;

function writeInt(): void {
  reserve(20);
  const value = readNumber();
  if (value > MAX_INT || value < -MAX_INT - 1) throw new MalformedAvro(`int beyond 32 bits at byte ${at - base}`);
  writeAscii(String(value));
}

function writeLong(): void {
  reserve(20);
  const from = at;
  const value = readNumber();
  writeAscii(String(value < EXACT && value > -EXACT ? value : exactLong(from)));
}

/** The same varint again, where a double cannot hold it. */
function exactLong(from: number): bigint {
  let raw = 0n;
  for (let i = from; i < at; i++) raw |= BigInt(input[i]! & 0x7f) << BigInt(7 * (i - from));
  if (raw > 2n * MAX_LONG + 1n) throw new MalformedAvro(`long beyond 64 bits at byte ${at - base}`);
  return (raw & 1n) === 0n ? raw >> 1n : -(raw >> 1n) - 1n;
}

/** Short text of ASCII characters, into reserved room. */
function writeAscii(text: string): void {
  for (let i = 0; i < text.length; i++) out[pos++] = text.charCodeAt(i);
}

function writeFloat(): void {
  if (end - at < 4) throw cutOff();
  writeNumber(inputWords.getFloat32(at, true));
  at += 4;
}

function writeDouble(): void {
  if (end - at < 8) throw cutOff();
  writeNumber(inputWords.getFloat64(at, true));
  at += 8;
}

function writeNumber(value: number): void {
  reserve(32);
  writeAscii(Number.isFinite(value) ? (Object.is(value, -0) ? '-0' : String(value)) : 'null');
}

function writeBoolean(): void {
  reserve(5);
  const byte = readByte();
  if (byte > 1) throw new MalformedAvro(`boolean ${byte} at byte ${at - base}`);
  writeAscii(byte === 1 ? 'true' : 'false');
}

function writeNull(): void {
  reserve(4);
  writeAscii('null');
}

/** What a byte of a string needs: nothing, an escape, or to be the first of a character of several bytes. */
const [PLAIN, ESCAPE, LEAD, NEVER] = [0, 1, 2, 3];
const byteClass = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte < 0x20 || byte === 0x22 || byte === 0x5c) return ESCAPE;
  if (byte < 0x80) return PLAIN;
  return byte >= 0xc2 && byte <= 0xf4 ? LEAD : NEVER;
});
/** The letter of a short escape, 0 where there is none. */
const shortEscape = new Uint8Array(0x60);
for (const [letter, meaning] of ['b\b', 't\t', 'n\n', 'f\f', 'r\r', '""', '\\\\'])
  shortEscape[meaning!.charCodeAt(0)] = letter!.charCodeAt(0);

/** Returns whether it has escapes. */
export function writeString(): boolean {
  const length = readLength();
  // room for one byte each; an escape asks for more
  reserve(length + 2);
  const source = inputWords;
  let target = outWords;
  const stop = at + length;
  const lastWord = stop - 4;
  let i = at;
  let p = pos;
  let isEscaped = false;
  target.setUint8(p++, 0x22);
  for (;;) {
    while (i <= lastWord) {
      const word = source.getInt32(i, true);
      // the highest bit of each byte: not ASCII, below a blank, a quotation mark, a backslash (or, seldom, none of
      // them: a carry)
      if (
        ((word | (word - 0x20202020) | ((word ^ 0x22222222) - 0x01010101) | ((word ^ 0x5c5c5c5c) - 0x01010101)) &
          0x80808080) !==
        0
      )
        break;
      target.setInt32(p, word, true);
      i += 4;
      p += 4;
      // the last word overlaps the one just copied
      if (i > lastWord && i < stop) {
        p -= i - lastWord;
        i = lastWord;
      }
    }
    if (i >= stop) break;
    for (const until = Math.min(stop, i + 4); i < until;) {
      const byte = source.getUint8(i);
      const kind = byteClass[byte]!;
      if (kind === PLAIN) {
        target.setUint8(p++, byte);
        i++;
      } else if (kind === ESCAPE) {
        isEscaped = true;
        i++;
        pos = p;
        reserve(stop - i + 7);
        writeEscape(byte);
        target = outWords;
        p = pos;
      } else {
        const next = kind === LEAD ? afterCharacter(input, i, stop) : -1;
        if (next < 0) throw new MalformedAvro(`string that is not UTF-8 at byte ${i - base}`);
        for (; i < next; i++) target.setUint8(p++, source.getUint8(i));
      }
    }
  }
  target.setUint8(p++, 0x22);
  at = stop;
  pos = p;
  return isEscaped;
}

function writeEscape(byte: number): void {
  out[pos++] = 0x5c;
  const letter = shortEscape[byte]!;
  if (letter === 0) writeAscii(`u00${byte.toString(16).padStart(2, '0')}`);
  else out[pos++] = letter;
}

export function writeBytes(): boolean {
  return writeLatin1(readLength());
}

/** Bytes where the reader has a string: text if they are UTF-8. Nothing else says what they are, so they are no fault. */
export function writeBytesAsText(): boolean {
  const from = at;
  const length = readLength();
  if (!isUtf8(input.subarray(at, at + length))) return writeLatin1(length);
  at = from;
  return writeString();
}

/** Each byte as the character of its number. Returns whether there are escapes. */
export function writeLatin1(length: number): boolean {
  if (length > end - at) throw cutOff();
  reserve(length + 2);
  let isEscaped = false;
  out[pos++] = 0x22;
  for (const stop = at + length; at < stop; at++) {
    const byte = input[at]!;
    if (byteClass[byte] === PLAIN) {
      out[pos++] = byte;
      continue;
    }
    reserve(stop - at + 7);
    if (byte >= 0x80) {
      out[pos++] = 0xc0 | (byte >>> 6);
      out[pos++] = 0x80 | (byte & 0x3f);
    } else {
      isEscaped = true;
      writeEscape(byte);
    }
  }
  out[pos++] = 0x22;
  return isEscaped;
}

/** The writers of types that are the same in every schema. */
export const primitives: Readonly<Record<string, Write | undefined>> = {
  null: writeNull,
  boolean: writeBoolean,
  int: writeInt,
  long: writeLong,
  float: writeFloat,
  double: writeDouble,
  string: writeString,
};

/** Text that a schema gives, in words of 4 bytes; what the last of them has too much is overwritten by what follows. */
interface Constant {
  readonly words: Uint32Array;
  readonly length: number;
}

export function constant(text: string): Constant {
  const bytes = Buffer.from(text);
  const padded = Buffer.alloc(Math.ceil(bytes.length / 4) * 4);
  bytes.copy(padded);
  return {
    words: Uint32Array.from({ length: padded.length / 4 }, (_, i) => padded.readUInt32LE(i * 4)),
    length: bytes.length,
  };
}

export function writeConstant({ words, length }: Constant): void {
  reserve(length + 4);
  const target = outWords;
  let p = pos;
  for (let i = 0; i < words.length; i++, p += 4) target.setUint32(p, words[i]!, true);
  pos += length;
}

export function enter(): void {
  if (++depth > MAX_DEPTH) throw new MalformedAvro(`nested deeper than ${MAX_DEPTH}`);
}

export function open(bracket: number): void {
  enter();
  writeByte(bracket);
}

/** Closes the record at `start`, whose fields each began with a comma. The bracket takes the place of the first. */
export function closeRecord(start: number): void {
  reserve(2);
  if (pos === start) pos++;
  out[start] = 0x7b;
  out[pos++] = 0x7d;
  depth--;
}

/** Closes what was opened and whose parts each ended in a comma. */
export function close(bracket: number): void {
  reserve(1);
  if (out[pos - 1] === 0x2c) pos--;
  out[pos++] = bracket;
  depth--;
}

/** Blocks of a list or a map: a count of items, or its negative with the bytes of the block; 0 ends. */
export function writeBlocks(writeItem: Write, minItemBytes: number, writeFirst: Write = writeItem): void {
  for (let next = writeFirst; ;) {
    let count = readNumber();
    let blockEnd = -1;
    if (count === 0) return;
    if (count < 0) {
      count = -count;
      const size = readLength();
      blockEnd = at + size;
    }
    if (minItemBytes > 0 ? count * minItemBytes > end - at : (emptyItems += count) > MAX_EMPTY_ITEMS)
      throw new MalformedAvro(`block of ${count} items with ${end - at} bytes left at byte ${at - base}`);
    for (let i = 0; i < count; i++) {
      next();
      next = writeItem;
      writeByte(0x2c);
    }
    if (blockEnd !== -1 && at !== blockEnd)
      throw new MalformedAvro(`block that ends at byte ${at - base}, not ${blockEnd - base}`);
  }
}
