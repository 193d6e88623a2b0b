import avro from 'avsc';
import { unqualified } from './names.ts';

// How a writer's schema fits the reader's: Avro's rules of resolution, as far as transcode.ts needs them.

export type RecordType = avro.types.RecordType;

export function isUnion(type: avro.Type): type is avro.types.WrappedUnionType {
  return type.typeName === 'union:wrapped' || type.typeName === 'union:unwrapped';
}

/** A record of type `error`, as Avro's protocols have them, is written like any other. */
export function isRecord(type: avro.Type): type is RecordType {
  return type instanceof avro.types.RecordType;
}

/** The reader's type, or the branch of its union, that is of this kind. */
export function branchOf(reader: avro.Type | undefined, typeName: string): avro.Type | undefined {
  if (reader === undefined) return undefined;
  return (isUnion(reader) ? reader.types : [reader]).find((type) => type.typeName === typeName);
}

/** The record that resolution would choose: of the same name where there are several. */
export function readerRecord(writer: avro.Type, reader: avro.Type | undefined): RecordType | undefined {
  if (reader === undefined) return undefined;
  const records = (isUnion(reader) ? reader.types : [reader]).filter(isRecord);
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

/**
 * The reader's field for one of the writer's: by name, else by alias where the writer has none of the reader's name.
 */
export function fieldOf(
  reader: RecordType | undefined,
  writer: RecordType,
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
export function minBytes(type: avro.Type, known = new Map<avro.Type, number>()): number {
  const found = known.get(type);
  if (found !== undefined) return found;
  known.set(type, 0);
  let bytes = FIXED_BYTES.get(type.typeName) ?? 1;
  if (isUnion(type)) bytes += Math.min(...type.types.map((branch) => minBytes(branch, known)));
  else if (type instanceof avro.types.FixedType) bytes = type.size;
  else if (isRecord(type)) bytes = type.fields.reduce((sum, field) => sum + minBytes(field.type, known), 0);
  known.set(type, bytes);
  return bytes;
}

/** Types whose values always take as many bytes; of the others 1 is the least. */
const FIXED_BYTES: ReadonlyMap<string, number> = new Map([
  ['null', 0],
  ['float', 4],
  ['double', 8],
]);
