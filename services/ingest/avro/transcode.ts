import avro from 'avsc';
import {
  ABSENT,
  ESCAPED,
  NULL,
  NUMBER,
  OBJECT,
  OTHER,
  put,
  STRING,
  type Scanner,
} from '../../../common/evaluate/scanner.ts';
import {
  MalformedAvro,
  begin,
  close,
  closeRecord,
  constant,
  enter,
  finish,
  open,
  out,
  place,
  pos,
  primitives,
  readNumber,
  writeBlocks,
  writeByte,
  writeBytes,
  writeBytesAsText,
  writeConstant,
  writeLatin1,
  writeString,
  type Write,
} from './datum-text.ts';
import { branchOf, fieldOf, isRecord, isUnion, minBytes, readerRecord, type RecordType } from './resolution.ts';

/**
 * Avro datum → JSON text, straight from bytes to bytes: no object is built, a string is copied as it is where it needs
 * no escape.
 * A schema becomes a tree of closures, one per type; nothing of a schema is ever turned into code.
 * Typical edge event (1,206 bytes, 2,218 as text) on one busy core: 5 us; decoding by avsc and JSON.stringify 15 us.
 *
 * What is written, and why it loses nothing:
 * - Everything that the WRITER's schema has, under the writer's names: fields that the reader (the schema of this
 *   folder) does not know are kept, which Avro's resolution would drop. What resolution would do to the fields that are
 *   read is done here or by evaluation:
 *   names      a writer's field that the reader knows by an alias is written under the reader's name
 *   promotion  int, long, float and double are digits, whatever of them the reader names; bytes that are
 *              UTF-8 are text where the reader has a string
 *   defaults   every default of a reader's field is null, and null is an absent key (schemas/README.md)
 *   others     a type that Avro would not resolve is written as it is: in JSON events too, types vary between producers
 *              and reject nothing
 * - null, as the value of a record's field, is an absent key: that is the same event, and a third of the bytes where a
 *   schema has many fields.
 * - int and long: all digits, also beyond 2^53. float (as the double it is) and double: the shortest text that reads
 *   back as the same, null where it is not finite. bytes and fixed: one character U+0000 to U+00FF for each byte, as in
 *   Avro's own JSON encoding. enum: its symbol. map: an object. union: the value of its branch, without the branch's
 *   name.
 *
 * What the columns are read from is noted on the way, as the scanner would note it of the text: a scan of the text
 * would cost half as much again.
 *
 * Hostile datums: every read is within the datum, every count is checked against the bytes that are left, so time and
 * memory are linear in the datum; what takes no bytes (lists of nulls or of empty records) is bounded by
 * MAX_EMPTY_ITEMS, nesting by MAX_DEPTH, the text by the caller.
 */

/** The reader's type. Undefined if the reader has none there. */
type Reader = avro.Type | undefined;

/**
 * JSON text of the datum that fills `bytes` from `start` to its end; at most maxBytes long. Throws MalformedAvro,
 * TextTooLarge. The next text takes the memory of this one.
 */
export type Transcode = (bytes: Buffer, start: number, maxBytes: number) => Buffer;

/**
 * Prepares the way from datums of `writer` to JSON text that `reader` would understand.
 * Both are types of avsc made with wrapUnions, so that every union is allowed. The places of its values in the text are
 * left in `scanner.found`.
 */
export function compile(writer: avro.Type, reader: Reader, scanner: Scanner): Transcode {
  const write = notedWriter(writer, reader, { made: new Map(), scanner }, EVENT, false);
  return (bytes, start, maxBytes) => {
    begin(bytes, start, maxBytes);
    scanner.found.fill(0);
    write();
    return finish();
  };
}

interface Context {
  /** Writers by writer's type and reader's type: a type that holds itself finds its own. */
  readonly made: Map<avro.Type, Map<Reader, { write: Write }>>;
  readonly scanner: Scanner;
}

/** The scanner's node of the event itself. */
const EVENT = 1;
/** The scanner's node of what nobody asks for. */
const NOBODY = 0;

/** Stands for a writer while that is being made. */
const unmade: Write = () => {};

function valueWriter(writer: avro.Type, reader: Reader, context: Context): Write {
  const { made } = context;
  const ofWriter = made.get(writer) ?? new Map<Reader, { write: Write }>();
  made.set(writer, ofWriter);
  const known = ofWriter.get(reader);
  if (known !== undefined) return known.write === unmade ? () => known.write() : known.write;
  const entry: { write: Write } = { write: unmade };
  ofWriter.set(reader, entry);
  entry.write = makeWriter(writer, reader, context, NOBODY);
  return entry.write;
}

/** node: where parts of a list, a map or a record are noted. */
function makeWriter(writer: avro.Type, reader: Reader, context: Context, node: number): Write {
  if (isUnion(writer)) return unionWriter(writer.types.map((branch) => valueWriter(branch, reader, context)));
  if (isRecord(writer)) return recordWriter(writer, readerRecord(writer, reader), context, node);
  const primitive = primitives[writer.typeName];
  if (primitive !== undefined) return primitive;
  switch (writer.typeName) {
    case 'bytes':
      return branchOf(reader, 'bytes') === undefined && branchOf(reader, 'string') !== undefined
        ? writeBytesAsText
        : writeBytes;
    case 'fixed':
      return fixedWriter(writer as avro.types.FixedType);
    case 'enum':
      return enumWriter(writer as avro.types.EnumType);
    case 'array':
      return arrayWriter(writer as avro.types.ArrayType, reader, context, node);
    case 'map':
      return mapWriter(writer as avro.types.MapType, reader, context, node);
    default:
      throw new Error(`a type ${writer.typeName}`);
  }
}

/**
 * A writer that notes at the node what it has written, unless something is noted there already: of duplicate keys the
 * first counts. isItem: it is the first of a list, which stands for the list where it is an object. Nodes are a tree,
 * so this ends also where a type holds itself.
 */
function notedWriter(writer: avro.Type, reader: Reader, context: Context, node: number, isItem: boolean): Write {
  const plain = valueWriter(writer, reader, context);
  if (node === NOBODY) return plain;
  if (isUnion(writer))
    return unionWriter(writer.types.map((branch) => notedWriter(branch, reader, context, node, isItem)));
  const { found } = context.scanner;
  const note = (kind: number, from?: number, to?: number): void => put(found, node, kind, from, to);
  const noted = ((): Write => {
    if (isRecord(writer) || writer.typeName === 'map') {
      const write = makeWriter(writer, reader, context, node);
      return () => {
        note(OBJECT);
        write();
      };
    }
    if (isItem)
      return () => {
        note(OTHER);
        plain();
      };
    switch (writer.typeName) {
      case 'array': {
        const write = makeWriter(writer, reader, context, node);
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
          const from = pos + 1;
          const isEscaped = plain() === true;
          note(isEscaped ? ESCAPED : STRING, from, pos - 1);
        };
      case 'int':
      case 'long':
      case 'float':
      case 'double':
        return () => {
          const from = pos;
          plain();
          // a number that is not finite is written as null
          if (out[from] === 0x6e) note(NULL);
          else note(NUMBER, from, pos);
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

function arrayWriter({ itemsType }: avro.types.ArrayType, reader: Reader, context: Context, node: number): Write {
  const readerItems = (branchOf(reader, 'array') as avro.types.ArrayType | undefined)?.itemsType;
  const writeItem = valueWriter(itemsType, readerItems, context);
  const writeFirst = notedWriter(itemsType, readerItems, context, node, true);
  const minItemBytes = minBytes(itemsType);
  return () => {
    open(0x5b);
    writeBlocks(writeItem, minItemBytes, writeFirst);
    close(0x5d);
  };
}

function mapWriter({ valuesType }: avro.types.MapType, reader: Reader, context: Context, node: number): Write {
  const readerValues = (branchOf(reader, 'map') as avro.types.MapType | undefined)?.valuesType;
  const { scanner } = context;
  const writeValue = valueWriter(valuesType, readerValues, context);
  const noted = Array.from({ length: scanner.paths.size }, (_, child) =>
    node !== NOBODY && scanner.paths.parentOf(child) === node
      ? notedWriter(valuesType, readerValues, context, child, false)
      : writeValue,
  );
  const writeEntry = (): void => {
    const from = pos + 1;
    const isEscaped = writeString();
    const child = node === NOBODY ? NOBODY : scanner.memberOf(node, out, from, pos - 1, isEscaped);
    writeByte(0x3a);
    noted[child]!();
  };
  return () => {
    open(0x7b);
    writeBlocks(writeEntry, 1);
    close(0x7d);
  };
}

function recordWriter(writer: RecordType, reader: RecordType | undefined, context: Context, node: number): Write {
  const fields = writer.fields
    .filter((field) => field.type.typeName !== 'null')
    .map((field) => {
      const known = fieldOf(reader, writer, field);
      const name = Buffer.from(known?.name ?? field.name);
      const child = node === NOBODY ? NOBODY : context.scanner.paths.childOf(node, name, 0, name.length);
      const types = isUnion(field.type) ? field.type.types : [field.type];
      return {
        key: constant(`,${JSON.stringify(name.toString())}:`),
        isOfMany: isUnion(field.type),
        branches: types.map((type) =>
          type.typeName === 'null' ? absent : notedWriter(type, known?.type, context, child, false),
        ),
      };
    });
  return () => {
    enter();
    const start = pos;
    for (const { key, isOfMany, branches } of fields) {
      const write = isOfMany ? chosen(branches) : branches[0]!;
      if (write === absent) continue;
      writeConstant(key);
      // most values are texts; a call of what is known here costs less than any of many
      if (write === writeString) writeString();
      else write();
    }
    closeRecord(start);
  };
}

/** Stands for the writer of a field that is null. */
const absent: Write = () => {};

function unionWriter(branches: readonly Write[]): Write {
  return () => chosen(branches)();
}

/** The branch whose number comes next. */
function chosen(branches: readonly Write[]): Write {
  const index = readNumber();
  const write = branches[index];
  if (write === undefined)
    throw new MalformedAvro(`branch ${index} of a union of ${branches.length} at byte ${place()}`);
  return write;
}

function enumWriter({ symbols }: avro.types.EnumType): Write {
  const texts = symbols.map((symbol) => constant(JSON.stringify(symbol)));
  return () => {
    const index = readNumber();
    const text = texts[index];
    if (text === undefined) throw new MalformedAvro(`symbol ${index} of an enum of ${texts.length} at byte ${place()}`);
    writeConstant(text);
  };
}

function fixedWriter({ size }: avro.types.FixedType): Write {
  return () => writeLatin1(size);
}
