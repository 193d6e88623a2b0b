import avro from 'avsc';
import {
  ABSENT,
  ESCAPED,
  NULL,
  NUMBER,
  OBJECT,
  OTHER,
  STRING,
  type Scanner,
} from '../../../common/evaluate/scanner.ts';

/**
 * Avro datum → JSON text, straight from bytes to bytes: no object is built, a string is copied as it is where it needs
 * no escape.
 * A schema becomes a tree of closures, one per type; nothing of a schema is ever turned into code.
 * Typical edge event (1,206 bytes, 2,218 as text) on one busy core: 5 us; decoding by avsc and JSON.stringify 15 us.
 *
 * What is written, and why it loses nothing:
 * - Everything that the WRITER's schema has, under the writer's names: fields that the reader (the schema of this
 *   folder) does not know are kept,
 *   which Avro's resolution would drop. What resolution would do to the fields that are read is done here or by
 * evaluation:
 *   names      a writer's field that the reader knows by an alias is written under the reader's name
 *   promotion  int, long, float and double are digits, whatever of them the reader names; bytes are text where the
 * reader has a string
 *   defaults   every default of a reader's field is null, and null is an absent key (schemas/README.md)
 *   others     a type that Avro would not resolve is written as it is: in JSON events too, types vary between producers
 * and reject nothing
 * - null, as the value of a record's field, is an absent key: that is the same event, and a third of the bytes where a
 *   schema has many fields.
 * - int and long: all digits, also beyond 2^53. float (as the double it is) and double: the shortest text that reads
 *   back as the same, null where
 *   it is not finite. bytes and fixed: one character U+0000 to U+00FF for each byte, as in Avro's own JSON encoding.
 * enum: its symbol.
 *   map: an object. union: the value of its branch, without the branch's name.
 *
 * What the columns are read from is noted on the way, as the scanner would note it of the text: a scan of the text
 * would cost half as much again.
 *
 * Hostile datums: every read is within the datum, every count is checked against the bytes that are left, so time and
 * memory are linear in
 * the datum; what takes no bytes (lists of nulls or of empty records) is bounded by MAX_EMPTY_ITEMS, nesting by
 * MAX_DEPTH, the text by the caller.
 */

/** The datum is not one of its schema: cut off, bytes left over, or a value that Avro does not allow. */
export class MalformedAvro extends Error {}

/** The JSON text would be larger than allowed. */
export class TextTooLarge extends Error {}

/** Records, lists and maps within each other; the same as for JSON events. */
export const MAX_DEPTH = 512;
/** Items of lists in one datum that take no bytes. */
export const MAX_EMPTY_ITEMS = 1_000;

/**
 * JSON text of the datum that fills `bytes` from `start` to its end; at most maxBytes long. Throws MalformedAvro,
 * TextTooLarge. The result's memory is its own.
 */
export type Transcode = (bytes: Buffer, start: number, maxBytes: number) => Buffer;

/** Writes a value; of text it returns whether there are escapes in it. */
type Write = () => boolean | void;

/** Texts of many datums share one chunk. */
const CHUNK_BYTES = 1024 * 1024;

/**
 * The memory in which the datum lies, whole; `at` and `end` are places in it, `base` is that of the message's first
 * byte.
 */
let input: Uint8Array = new Uint8Array(0);
let inputWords: DataView = new DataView(input.buffer);
let base = 0;
let at = 0;
let end = 0;
let out: Buffer = Buffer.alloc(0);
let outWords: DataView = new DataView(out.buffer);
let pos = 0;
let textStart = 0;
let textLimit = 0;
let depth = 0;
let emptyItems = 0;

/**
 * Prepares the way from datums of `writer` to JSON text that `reader` would understand.
 * Both are types of avsc made with wrapUnions, so that every union is allowed. The places of its values in the text are
 * left in `scanner.found`.
 */
export function compile(writer: avro.Type, reader: avro.Type | undefined, scanner: Scanner): Transcode {
  const write = notedWriter(writer, reader, { made: new Map(), scanner }, EVENT, false);
  return (bytes, start, maxBytes) => {
    if (bytes.buffer !== input.buffer) {
      input = new Uint8Array(bytes.buffer);
      inputWords = new DataView(bytes.buffer);
    }
    base = bytes.byteOffset;
    at = base + start;
    end = base + bytes.length;
    if (pos + (end - at) * 3 > out.length) newChunk((end - at) * 3);
    textStart = pos;
    textLimit = maxBytes;
    depth = 0;
    emptyItems = 0;
    scanner.found.fill(0);
    write();
    if (at !== end) throw new MalformedAvro(`${end - at} bytes left over`);
    if (pos - textStart > maxBytes) throw tooLarge();
    return out.subarray(textStart, pos);
  };
}

function tooLarge(): TextTooLarge {
  return new TextTooLarge(`more than ${textLimit} bytes as JSON`);
}

function newChunk(bytes: number): void {
  out = Buffer.allocUnsafeSlow(Math.max(CHUNK_BYTES, bytes));
  outWords = new DataView(out.buffer);
  pos = 0;
}

/**
 * Makes room for that many bytes. What is written of the present text moves along; earlier texts stay in their chunk.
 */
function reserve(bytes: number): void {
  if (pos + bytes > out.length) grow(bytes);
}

function grow(bytes: number): void {
  const text = out.subarray(textStart, pos);
  if (text.length > textLimit) throw tooLarge();
  newChunk((text.length + bytes) * 2);
  text.copy(out);
  textStart = 0;
  pos = text.length;
}

function cutOff(): MalformedAvro {
  return new MalformedAvro(`cut off at byte ${end - base}`);
}

function readByte(): number {
  if (at >= end) throw cutOff();
  return input[at++]!;
}

/** A varint, zigzag decoded; exact within 2^52, beyond it some number beyond 2^52. */
function readNumber(): number {
  let byte = readByte();
  if (byte < 0x80) return (byte & 1) === 0 ? byte >>> 1 : -(byte >>> 1) - 1;
  let raw = byte & 0x7f;
  let factor = 0x80;
  for (let i = 1; ; i++) {
    if (i === 10) throw new MalformedAvro(`integer of more than 10 bytes at byte ${at - base}`);
    byte = readByte();
    raw += (byte & 0x7f) * factor;
    if (byte < 0x80) break;
    factor *= 0x80;
  }
  return raw % 2 === 0 ? raw / 2 : -(raw + 1) / 2;
}

function readLength(): number {
  const length = readNumber();
  if (length < 0) throw new MalformedAvro(`negative length at byte ${at - base}`);
  if (length > end - at) throw new MalformedAvro(`length ${length} with ${end - at} bytes left at byte ${at - base}`);
  return length;
}

const MAX_INT = 2 ** 31 - 1;
const MAX_LONG = 2n ** 63n - 1n;
const MAX_UINT = 2 ** 32 - 1;
/** Below it a zigzag number is exact in a double. */
const EXACT = 2 ** 52;

function writeInt(): void {
  reserve(20);
  const value = readNumber();
  if (value > MAX_INT || value < -MAX_INT - 1) throw new MalformedAvro(`int beyond 32 bits at byte ${at - base}`);
  writeDigits(value);
}

function writeLong(): void {
  reserve(20);
  const from = at;
  const value = readNumber();
  if (value < EXACT && value > -EXACT) writeDigits(value);
  else writeAscii(String(exactLong(from)));
}

/** The same varint again, where a double cannot hold it. */
function exactLong(from: number): bigint {
  let raw = 0n;
  for (let i = from; i < at; i++) raw |= BigInt(input[i]! & 0x7f) << BigInt(7 * (i - from));
  if (raw > 2n * MAX_LONG + 1n) throw new MalformedAvro(`long beyond 64 bits at byte ${at - base}`);
  return (raw & 1n) === 0n ? raw >> 1n : -(raw >> 1n) - 1n;
}

/** An integer within 2^52, into reserved room. */
function writeDigits(value: number): void {
  let rest = value;
  if (rest < 0) {
    out[pos++] = 0x2d;
    rest = -rest;
  }
  let digits = 1;
  for (let power = 10; digits < 16 && rest >= power; power *= 10) digits++;
  let p = pos + digits;
  pos = p;
  while (rest > MAX_UINT) {
    const quotient = Math.floor(rest / 10);
    out[--p] = 0x30 + (rest - quotient * 10);
    rest = quotient;
  }
  let small = rest >>> 0;
  do {
    const quotient = Math.floor(small / 10) >>> 0;
    out[--p] = 0x30 + small - quotient * 10;
    small = quotient;
  } while (small > 0);
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

/** What a byte of a string needs: nothing, an escape, or to be the first of a character of 2, 3 or 4 bytes. */
const [PLAIN, ESCAPE, NEVER] = [0, 1, 5];
const byteClass = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte < 0x20 || byte === 0x22 || byte === 0x5c) return ESCAPE;
  if (byte < 0x80) return PLAIN;
  if (byte >= 0xc2 && byte <= 0xdf) return 2;
  if (byte >= 0xe0 && byte <= 0xef) return 3;
  return byte >= 0xf0 && byte <= 0xf4 ? 4 : NEVER;
});
/** The letter of a short escape, 0 where there is none. */
const shortEscape = new Uint8Array(0x60);
for (const [byte, letter] of [
  [0x08, 'b'],
  [0x09, 't'],
  [0x0a, 'n'],
  [0x0c, 'f'],
  [0x0d, 'r'],
  [0x22, '"'],
  [0x5c, '\\'],
] as const)
  shortEscape[byte] = letter.charCodeAt(0);

/** Returns whether it has escapes. */
function writeString(): boolean {
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
        checkCharacter(source, i, stop, kind);
        for (const last = i + kind; i < last; i++) target.setUint8(p++, source.getUint8(i));
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

/** Unicode 16, table 3-7: well-formed UTF-8. */
function checkCharacter(source: DataView, i: number, stop: number, size: number): void {
  const first = source.getUint8(i);
  const second = i + 1 < stop ? source.getUint8(i + 1) : 0;
  const low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  let valid = size !== NEVER && i + size <= stop && second >= low && second <= high;
  for (let k = i + 2; valid && k < i + size; k++) valid = (source.getUint8(k) & 0xc0) === 0x80;
  if (!valid) throw new MalformedAvro(`string that is not UTF-8 at byte ${i - base}`);
}

function writeBytes(): boolean {
  return writeLatin1(readLength());
}

/** Each byte as the character of its number. Returns whether there are escapes. */
function writeLatin1(length: number): boolean {
  if (length > end - at) throw cutOff();
  reserve(length * 6 + 2);
  let isEscaped = false;
  out[pos++] = 0x22;
  for (const stop = at + length; at < stop; at++) {
    const byte = input[at]!;
    if (byte >= 0x80) {
      out[pos++] = 0xc0 | (byte >>> 6);
      out[pos++] = 0x80 | (byte & 0x3f);
    } else if (byteClass[byte] === ESCAPE) {
      isEscaped = true;
      writeEscape(byte);
    } else {
      out[pos++] = byte;
    }
  }
  out[pos++] = 0x22;
  return isEscaped;
}

/** Text that a schema gives, in words of 4 bytes; what the last of them has too much is overwritten by what follows. */
interface Constant {
  readonly words: Uint32Array;
  readonly length: number;
}

function constant(text: string): Constant {
  const bytes = Buffer.from(text);
  const padded = Buffer.alloc(Math.ceil(bytes.length / 4) * 4);
  bytes.copy(padded);
  return {
    words: Uint32Array.from({ length: padded.length / 4 }, (_, i) => padded.readUInt32LE(i * 4)),
    length: bytes.length,
  };
}

function writeConstant({ words, length }: Constant): void {
  reserve(length + 4);
  const target = outWords;
  let p = pos;
  for (let i = 0; i < words.length; i++, p += 4) target.setUint32(p, words[i]!, true);
  pos += length;
}

function enter(): void {
  if (++depth > MAX_DEPTH) throw new MalformedAvro(`nested deeper than ${MAX_DEPTH}`);
}

/** Closes what was opened with one byte and whose parts each ended in a comma. */
function close(bracket: number): void {
  reserve(1);
  if (out[pos - 1] === 0x2c) pos--;
  out[pos++] = bracket;
  depth--;
}

/** Blocks of a list or a map: a count of items, or its negative with the bytes of the block; 0 ends. */
function writeBlocks(writeItem: Write, minItemBytes: number, writeFirst: Write = writeItem): void {
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
      reserve(1);
      out[pos++] = 0x2c;
    }
    if (blockEnd !== -1 && at !== blockEnd)
      throw new MalformedAvro(`block that ends at byte ${at - base}, not ${blockEnd - base}`);
  }
}

// --- from types to closures ---

/** Writers by writer's type and reader's type: a type that holds itself finds its own. */
type Made = Map<avro.Type, Map<avro.Type | undefined, { write: Write }>>;

interface Context {
  readonly made: Made;
  readonly scanner: Scanner;
}

/** The scanner's node of the event itself. */
const EVENT = 1;
/** The scanner's node of what nobody asks for. */
const NOBODY = 0;

/** Stands for a writer while that is being made. */
const unmade: Write = () => {};

function valueWriter(writer: avro.Type, reader: avro.Type | undefined, context: Context): Write {
  const { made } = context;
  const ofWriter = made.get(writer) ?? new Map<avro.Type | undefined, { write: Write }>();
  made.set(writer, ofWriter);
  const known = ofWriter.get(reader);
  if (known !== undefined) return known.write === unmade ? () => known.write() : known.write;
  const entry: { write: Write } = { write: unmade };
  ofWriter.set(reader, entry);
  entry.write = makeWriter(writer, reader, context);
  return entry.write;
}

function makeWriter(writer: avro.Type, reader: avro.Type | undefined, context: Context): Write {
  if (isUnion(writer)) return unionWriter(writer.types.map((branch) => valueWriter(branch, reader, context)));
  switch (writer.typeName) {
    case 'null':
      return writeNull;
    case 'boolean':
      return writeBoolean;
    case 'int':
      return writeInt;
    case 'long':
      return writeLong;
    case 'float':
      return writeFloat;
    case 'double':
      return writeDouble;
    case 'string':
      return writeString;
    case 'bytes':
      return branchOf(reader, 'bytes') === undefined && branchOf(reader, 'string') !== undefined
        ? writeString
        : writeBytes;
    case 'fixed':
      return fixedWriter(writer as avro.types.FixedType);
    case 'enum':
      return enumWriter(writer as avro.types.EnumType);
    case 'array':
      return arrayWriter(writer as avro.types.ArrayType, reader, context, NOBODY);
    case 'map':
      return mapWriter(writer as avro.types.MapType, reader, context, NOBODY);
    case 'record':
      return recordWriter(writer as avro.types.RecordType, readerRecord(writer, reader), context, NOBODY);
    default:
      throw new Error(`a type ${writer.typeName}`);
  }
}

/**
 * A writer that notes at the node what it has written, unless something is noted there already: of duplicate keys the
 * first counts. isItem: it is the
 * first of a list, which stands for the list where it is an object. Nodes are a tree, so this ends also where a type
 * holds itself.
 */
function notedWriter(
  writer: avro.Type,
  reader: avro.Type | undefined,
  context: Context,
  node: number,
  isItem: boolean,
): Write {
  const plain = valueWriter(writer, reader, context);
  if (node === NOBODY) return plain;
  if (isUnion(writer))
    return unionWriter(writer.types.map((branch) => notedWriter(branch, reader, context, node, isItem)));
  const { found } = context.scanner;
  const note = (kind: number, from = 0, to = 0): void => {
    found[node * 3] = kind;
    found[node * 3 + 1] = from;
    found[node * 3 + 2] = to;
  };
  const noted = ((): Write => {
    switch (writer.typeName) {
      case 'record':
      case 'map': {
        const write =
          writer.typeName === 'map'
            ? mapWriter(writer as avro.types.MapType, reader, context, node)
            : recordWriter(writer as avro.types.RecordType, readerRecord(writer, reader), context, node);
        return () => {
          note(OBJECT);
          write();
        };
      }
      default:
        if (isItem)
          return () => {
            note(OTHER);
            plain();
          };
    }
    switch (writer.typeName) {
      case 'array': {
        const write = arrayWriter(writer as avro.types.ArrayType, reader, context, node);
        return () => {
          write();
          if (found[node * 3] === ABSENT) note(OTHER);
        };
      }
      case 'string':
      case 'bytes':
      case 'fixed':
      case 'enum':
        return () => {
          const from = pos - textStart + 1;
          const isEscaped = plain() === true;
          note(isEscaped ? ESCAPED : STRING, from, pos - textStart - 1);
        };
      case 'int':
      case 'long':
      case 'float':
      case 'double':
        return () => {
          const from = pos - textStart;
          plain();
          // a number that is not finite is written as null
          if (out[textStart + from] === 0x6e) note(NULL);
          else note(NUMBER, from, pos - textStart);
        };
      default:
        return () => {
          plain();
          note(writer.typeName === 'null' ? NULL : OTHER);
        };
    }
  })();
  return () => (found[node * 3] === ABSENT ? noted() : plain());
}

function arrayWriter(
  { itemsType }: avro.types.ArrayType,
  reader: avro.Type | undefined,
  context: Context,
  node: number,
): Write {
  const readerItems = (branchOf(reader, 'array') as avro.types.ArrayType | undefined)?.itemsType;
  const writeItem = valueWriter(itemsType, readerItems, context);
  const writeFirst = notedWriter(itemsType, readerItems, context, node, true);
  const minItemBytes = minBytes(itemsType);
  return () => {
    enter();
    reserve(1);
    out[pos++] = 0x5b;
    writeBlocks(writeItem, minItemBytes, writeFirst);
    close(0x5d);
  };
}

function mapWriter(
  { valuesType }: avro.types.MapType,
  reader: avro.Type | undefined,
  context: Context,
  node: number,
): Write {
  const readerValues = (branchOf(reader, 'map') as avro.types.MapType | undefined)?.valuesType;
  const { scanner } = context;
  const writeValue = valueWriter(valuesType, readerValues, context);
  const noted = Array.from({ length: scanner.paths.size }, (_, child) =>
    node !== NOBODY && scanner.paths.parentOf(child) === node
      ? notedWriter(valuesType, readerValues, context, child, false)
      : writeValue,
  );
  const writeEntry = (): void => {
    const from = pos - textStart + 1;
    const isEscaped = writeString();
    const child = node === NOBODY ? NOBODY : scanner.memberOf(node, out, textStart + from, pos - 1, isEscaped);
    reserve(1);
    out[pos++] = 0x3a;
    noted[child]!();
  };
  return () => {
    enter();
    reserve(1);
    out[pos++] = 0x7b;
    writeBlocks(writeEntry, 1);
    close(0x7d);
  };
}

/** A field of a record: `"name":value,`, or nothing where the value is null. */
interface FieldPlan {
  readonly key: Constant;
  /** branch of the union that is null, -1 where the type is not a union of two with null */
  readonly nullBranch: number;
  /** of the value that stands behind the union's index */
  readonly kind: 'string' | 'long' | 'other' | 'whole';
  /** the value; for `whole` the union's index and the key too */
  readonly write: Write;
}

function recordWriter(
  writer: avro.types.RecordType,
  reader: avro.types.RecordType | undefined,
  context: Context,
  node: number,
): Write {
  const fields = writer.fields
    .filter((field) => field.type.typeName !== 'null')
    .map((field) => {
      const readerField = fieldOf(reader, writer, field);
      const name = Buffer.from(readerField?.name ?? field.name);
      return fieldPlan(
        name.toString(),
        field.type,
        readerField?.type,
        context,
        node === NOBODY ? NOBODY : context.scanner.paths.childOf(node, name, 0, name.length),
      );
    });
  return () => {
    enter();
    reserve(1);
    out[pos++] = 0x7b;
    for (const { nullBranch, kind, key, write } of fields) {
      if (kind === 'whole') {
        write();
        continue;
      }
      if (nullBranch !== -1) {
        const index = readNumber();
        if (index === nullBranch) continue;
        if (index !== 1 - nullBranch) throw badBranch(index, 2);
      }
      writeConstant(key);
      if (kind === 'string') writeString();
      else if (kind === 'long') writeLong();
      else write();
      reserve(1);
      out[pos++] = 0x2c;
    }
    close(0x7d);
  };
}

function fieldPlan(
  name: string,
  writer: avro.Type,
  reader: avro.Type | undefined,
  context: Context,
  node: number,
): FieldPlan {
  const key = constant(`${JSON.stringify(name)}:`);
  const plan = (nullBranch: number, type: avro.Type): FieldPlan => {
    const write = notedWriter(type, reader, context, node, false);
    return { key, nullBranch, kind: write === writeString ? 'string' : write === writeLong ? 'long' : 'other', write };
  };
  if (!isUnion(writer)) return plan(-1, writer);
  const nullBranch = writer.types.findIndex((branch) => branch.typeName === 'null');
  if (writer.types.length === 2 && nullBranch !== -1) return plan(nullBranch, writer.types[1 - nullBranch]!);
  const branches = writer.types.map((branch): Write => {
    if (branch.typeName === 'null') return () => {};
    const write = notedWriter(branch, reader, context, node, false);
    return () => {
      writeConstant(key);
      write();
      reserve(1);
      out[pos++] = 0x2c;
    };
  });
  return { key, nullBranch: -1, kind: 'whole', write: unionWriter(branches) };
}

function unionWriter(branches: readonly Write[]): Write {
  return () => {
    const index = readNumber();
    const write = branches[index];
    if (write === undefined) throw badBranch(index, branches.length);
    return write();
  };
}

function badBranch(index: number, branches: number): MalformedAvro {
  return new MalformedAvro(`branch ${index} of a union of ${branches} at byte ${at - base}`);
}

function enumWriter({ symbols }: avro.types.EnumType): Write {
  const texts = symbols.map((symbol) => constant(JSON.stringify(symbol)));
  return () => {
    const index = readNumber();
    const text = texts[index];
    if (text === undefined)
      throw new MalformedAvro(`symbol ${index} of an enum of ${texts.length} at byte ${at - base}`);
    writeConstant(text);
  };
}

function fixedWriter({ size }: avro.types.FixedType): Write {
  return () => writeLatin1(size);
}

function isUnion(type: avro.Type): type is avro.types.WrappedUnionType {
  return type.typeName === 'union:wrapped' || type.typeName === 'union:unwrapped';
}

/** The reader's type, or the branch of its union, that is of this kind. */
function branchOf(reader: avro.Type | undefined, typeName: string): avro.Type | undefined {
  if (reader === undefined) return undefined;
  return (isUnion(reader) ? reader.types : [reader]).find((type) => type.typeName === typeName);
}

/** The record that resolution would choose: of the same name where there are several. */
function readerRecord(writer: avro.Type, reader: avro.Type | undefined): avro.types.RecordType | undefined {
  if (reader === undefined) return undefined;
  const records = (isUnion(reader) ? reader.types : [reader]).filter(
    (type): type is avro.types.RecordType => type.typeName === 'record',
  );
  return records.find((record) => isNamed(record, writer.name)) ?? records[0];
}

/** Avro's rule for named types: the same name without its namespace, or one of the reader's aliases. */
export function isNamed(reader: avro.Type, writerName: string | undefined): boolean {
  return (
    writerName !== undefined &&
    [reader.name ?? '', ...(reader.aliases ?? [])].some(
      (name) => name === writerName || unqualified(name) === unqualified(writerName),
    )
  );
}

function unqualified(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

/**
 * The reader's field for one of the writer's: by name, else by alias where the writer has none of the reader's name.
 */
function fieldOf(
  reader: avro.types.RecordType | undefined,
  writer: avro.types.RecordType,
  field: avro.types.Field,
): avro.types.Field | undefined {
  return (
    reader?.fields.find((f) => f.name === field.name) ??
    reader?.fields.find((f) => f.aliases.includes(field.name) && !writer.fields.some((other) => other.name === f.name))
  );
}

/**
 * The fewest bytes that a value of this type takes; within itself a type counts as none, which only a record behind a
 * union can be.
 */
function minBytes(type: avro.Type, known = new Map<avro.Type, number>()): number {
  const found = known.get(type);
  if (found !== undefined) return found;
  known.set(type, 0);
  const bytes = isUnion(type)
    ? 1 + Math.min(...type.types.map((branch) => minBytes(branch, known)))
    : minPlainBytes(type, known);
  known.set(type, bytes);
  return bytes;
}

function minPlainBytes(type: avro.Type, known: Map<avro.Type, number>): number {
  switch (type.typeName) {
    case 'null':
      return 0;
    case 'float':
      return 4;
    case 'double':
      return 8;
    case 'fixed':
      return (type as avro.types.FixedType).size;
    case 'record':
      return (type as avro.types.RecordType).fields.reduce((sum, field) => sum + minBytes(field.type, known), 0);
    default:
      return 1;
  }
}
