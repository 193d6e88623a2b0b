import { freePiece, recycle } from './row-binary.ts';

// Rows as one block of ClickHouse's Native format: the numbers of columns and rows, then each column with its name, its
// type and its values. https://clickhouse.com/docs/interfaces/formats/Native
// The engine reads it for two thirds of the CPU that RowBinary costs it, and need not sort what is sorted already
// (bench/README.md).

/** A column of a block. The engine converts its type to that of the table. */
export interface Column {
  readonly name: string;
  readonly type: Type;
}

/** Bytes of each type whose values all have the same size. */
const FIXED = {
  Bool: 1,
  UInt8: 1,
  UInt16: 2,
  UInt32: 4,
  UInt64: 8,
  Float64: 8,
  "DateTime('UTC')": 4,
  "DateTime64(3, 'UTC')": 8,
  "DateTime64(6, 'UTC')": 8,
} as const;

type Fixed = keyof typeof FIXED;
type Plain = Fixed | 'String';
export type Type = Plain | `Nullable(${Plain})` | 'Array(FixedString(20))';

const REFERENCE_BYTES = 20;
/** of the length of a string */
const MAX_LENGTH_BYTES = 5;

/** Rows of one batch. Each stands in memory in RowBinary, with the columns that are neither constants nor elsewhere. */
export interface WrittenRows {
  /** by row: where it stands */
  readonly pieces: readonly Buffer[];
  readonly starts: readonly number[];
  /** by column name: the RowBinary of a value that all rows have */
  readonly constants: ReadonlyMap<string, Buffer>;
  /** by column name: Strings that stand elsewhere */
  readonly elsewhere: ReadonlyMap<string, Texts>;
  /** every row of the batch once; the block has them in this order */
  readonly order: readonly number[];
}

/** By row: a record whose value is the text, or where the text stands in RowBinary. */
export interface Texts {
  readonly records: readonly ({ readonly value: Buffer | null } | undefined)[];
  readonly pieces: readonly (Buffer | undefined)[];
  readonly starts: readonly (number | undefined)[];
}

/** Rows of which some columns are read: `at` says where the next field of each begins. */
interface Cursors extends WrittenRows {
  readonly at: number[];
}

/** Where the block goes: what is in it up to `at` is yielded when nothing more fits. */
interface Target {
  readonly piece: Buffer;
  /** the piece, or memory for a value that is larger */
  bytes: Buffer;
  at: number;
}

/** A piece ends with a column, unless it has less than this: other work runs between pieces. */
const LEAST_BYTES = 64 * 1024;

/** Writes a part of a column, from the `from`-th row on, as far as there is room. Returns which row is next. */
type Pass = (rows: Cursors, from: number, target: Target) => number;

/** Yields one block of all these rows, in pieces. Each is intact until the next one is requested. */
export function* nativeBlock(
  columns: readonly Column[],
  batches: readonly WrittenRows[],
): Generator<Buffer, void, undefined> {
  const piece = freePiece();
  const target: Target = { piece, bytes: piece, at: 0 };
  const cursors = batches.map((rows): Cursors => ({ ...rows, at: [...rows.starts] }));
  writeLength(target, columns.length);
  writeLength(
    target,
    cursors.reduce((sum, { order }) => sum + order.length, 0),
  );
  for (const { name, type } of columns) {
    writeText(target, name);
    writeText(target, type);
    for (const pass of passesOf(name, type)) {
      for (const rows of cursors) {
        for (let next = 0; next < rows.order.length;) {
          next = pass(rows, next, target);
          if (next < rows.order.length) yield* flush(target);
        }
      }
    }
    // so the next name and type fit
    if (target.at >= LEAST_BYTES) yield* flush(target);
  }
  yield* flush(target);
  recycle([piece]);
}

function* flush(target: Target): Generator<Buffer, void, undefined> {
  if (target.at > 0) yield target.bytes.subarray(0, target.at);
  target.bytes = target.piece;
  target.at = 0;
}

function passesOf(name: string, type: Type): Pass[] {
  const inner = /^Nullable\((.*)\)$/.exec(type)?.[1] as Plain | undefined;
  const passes =
    type === 'Array(FixedString(20))'
      ? [arrayEnds(), arrayItems]
      : inner !== undefined
        ? [nullMap, valuesOf(inner, true)]
        : [valuesOf(type as Plain, false)];
  return passes.map((pass) => (rows, from, target) => {
    const constant = rows.constants.get(name);
    if (constant !== undefined) return repeat(constant, rows, from, target);
    const elsewhere = rows.elsewhere.get(name);
    return elsewhere === undefined ? pass(rows, from, target) : textsFrom(elsewhere, rows.order, from, target);
  });
}

function textsFrom({ records, pieces, starts }: Texts, order: readonly number[], from: number, target: Target): number {
  for (let next = from; next < order.length; next++) {
    const row = order[next]!;
    const record = records[row];
    if (record === undefined) {
      const [piece, start] = [pieces[row]!, starts[row]!];
      const end = endOfString(piece, start);
      if (!hasRoom(target, end - start)) return next;
      copy(piece, start, end, target);
    } else {
      const value = record.value!;
      if (!hasRoom(target, MAX_LENGTH_BYTES + value.length)) return next;
      writeLength(target, value.length);
      copy(value, 0, value.length, target);
    }
  }
  return order.length;
}

function repeat(value: Buffer, { order }: Cursors, from: number, target: Target): number {
  const count = Math.min(order.length - from, Math.floor((target.bytes.length - target.at) / value.length));
  target.bytes.fill(value, target.at, target.at + count * value.length);
  target.at += count * value.length;
  return from + count;
}

/** Whether so many bytes can be written. A value that is larger than the target gets one of its size. */
function hasRoom(target: Target, bytes: number): boolean {
  if (target.at + bytes <= target.bytes.length) return true;
  if (target.at > 0) return false;
  target.bytes = Buffer.allocUnsafeSlow(bytes);
  return true;
}

function valuesOf(type: Plain, isNullable: boolean): Pass {
  return type === 'String' ? strings(isNullable) : fixedValues(FIXED[type], isNullable);
}

/** Null values have the size of others, and any content. */
function fixedValues(size: number, isNullable: boolean): Pass {
  return ({ order, pieces, at }, from, target) => {
    let next = from;
    for (; next < order.length && target.at + size <= target.bytes.length; next++) {
      const row = order[next]!;
      const piece = pieces[row]!;
      let start = at[row]!;
      if (isNullable && piece[start++] === 1) {
        target.bytes.fill(0, target.at, target.at + size);
        at[row] = start;
      } else {
        for (let k = 0; k < size; k++) target.bytes[target.at + k] = piece[start + k]!;
        at[row] = start + size;
      }
      target.at += size;
    }
    return next;
  };
}

/** A string has the same form in both formats. */
function strings(isNullable: boolean): Pass {
  return ({ order, pieces, at }, from, target) => {
    for (let next = from; next < order.length; next++) {
      const row = order[next]!;
      const piece = pieces[row]!;
      let start = at[row]!;
      if (isNullable && piece[start++] === 1) {
        if (!hasRoom(target, 1)) return next;
        target.bytes[target.at++] = 0;
        at[row] = start;
        continue;
      }
      const end = endOfString(piece, start);
      if (!hasRoom(target, end - start)) return next;
      copy(piece, start, end, target);
      at[row] = end;
    }
    return order.length;
  };
}

const nullMap: Pass = ({ order, pieces, at }, from, target) => {
  const end = Math.min(order.length, from + target.bytes.length - target.at);
  for (let next = from; next < end; next++) {
    const row = order[next]!;
    target.bytes[target.at++] = pieces[row]![at[row]!]!;
  }
  return end;
};

/**
 * For each list, how many items there are in the block up to its end. Lists have fewer than 128 items, so a byte says
 * how many.
 */
function arrayEnds(): Pass {
  let items = 0;
  return ({ order, pieces, at }, from, target) => {
    let next = from;
    for (; next < order.length && target.at + 8 <= target.bytes.length; next++) {
      const row = order[next]!;
      items += pieces[row]![at[row]!]!;
      target.bytes.writeUInt32LE(items, target.at);
      target.bytes.writeUInt32LE(0, target.at + 4);
      target.at += 8;
    }
    return next;
  };
}

const arrayItems: Pass = ({ order, pieces, at }, from, target) => {
  for (let next = from; next < order.length; next++) {
    const row = order[next]!;
    const piece = pieces[row]!;
    const start = at[row]!;
    const bytes = piece[start]! * REFERENCE_BYTES;
    if (!hasRoom(target, bytes)) return next;
    copy(piece, start + 1, start + 1 + bytes, target);
    at[row] = start + 1 + bytes;
  }
  return order.length;
};

function copy(piece: Buffer, start: number, end: number, target: Target): void {
  const { bytes } = target;
  // a short loop costs less than a call into the engine of JavaScript
  if (end - start > 64) piece.copy(bytes, target.at, start, end);
  else for (let from = start, at = target.at; from < end; from++, at++) bytes[at] = piece[from]!;
  target.at += end - start;
}

/** Returns where the text of a string begins whose length begins at `start`. */
export function startOfText(piece: Uint8Array, start: number): number {
  let at = start;
  while (piece[at++]! >= 0x80);
  return at;
}

/** Returns where a string ends whose length begins at `start`. */
export function endOfString(piece: Uint8Array, start: number): number {
  let at = start;
  let length = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = piece[at++];
    if (byte === undefined) throw new Error('a row ends within a text');
    length += (byte & 0x7f) << shift;
    if (byte < 0x80) return at + length;
  }
}

function writeText(target: Target, text: string): void {
  writeLength(target, text.length);
  target.at += target.bytes.write(text, target.at, 'latin1');
}

function writeLength(target: Target, value: number): void {
  let rest = value;
  for (; rest >= 0x80; rest >>>= 7) target.bytes[target.at++] = (rest & 0x7f) | 0x80;
  target.bytes[target.at++] = rest;
}
