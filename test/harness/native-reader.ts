import { RowBinaryReader } from './row-binary-reader.ts';

/**
 * Reads one block of the Native format as its definition says; shares nothing with what writes it.
 * https://clickhouse.com/docs/interfaces/formats/Native
 * Returns the rows: by column name a number, bigint, boolean, Buffer (String), list or null.
 */
export function readNative(pieces: Iterable<Uint8Array>): { readonly [column: string]: unknown }[] {
  const copies = Array.from(pieces, (piece) => Buffer.from(piece));
  const reader = new RowBinaryReader(copies);
  const columns = reader.length();
  const count = reader.length();
  const rows = Array.from({ length: count }, (): Record<string, unknown> => ({}));
  for (let column = 0; column < columns; column++) {
    const name = reader.text();
    const type = reader.text();
    for (const [row, value] of readColumn(reader, type, count).entries()) rows[row]![name] = value;
  }
  if (!reader.isAtEnd) throw new Error('bytes are left after the block');
  return rows;
}

function readColumn(reader: RowBinaryReader, type: string, count: number): unknown[] {
  const inner = /^Nullable\((.*)\)$/.exec(type)?.[1];
  if (inner !== undefined) {
    const areNull = Array.from({ length: count }, () => reader.boolean());
    return readColumn(reader, inner, count).map((value, row) => (areNull[row]! ? null : value));
  }
  if (type === 'Array(FixedString(20))') {
    const ends = Array.from({ length: count }, () => Number(reader.int64()));
    return ends.map((end, row) => Array.from({ length: end - (ends[row - 1] ?? 0) }, () => reader.bytes(20)));
  }
  return Array.from({ length: count }, () => readValue(reader, type));
}

function readValue(reader: RowBinaryReader, type: string): unknown {
  switch (type) {
    case 'String':
      return reader.string();
    case 'Bool':
      return reader.boolean();
    case 'UInt8':
      return reader.uint8();
    case 'UInt16':
      return reader.uint16();
    case 'UInt32':
    case "DateTime('UTC')":
      return reader.uint32();
    case 'UInt64':
    case "DateTime64(3, 'UTC')":
    case "DateTime64(6, 'UTC')":
      return reader.int64();
    case 'Float64':
      return reader.float64();
    default:
      throw new Error(`no reader of ${type}`);
  }
}
