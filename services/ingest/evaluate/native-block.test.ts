import { expect, test } from 'vitest';
import { readNative } from '../../../test/harness/native-reader.ts';
import { nativeBlock, type Column, type WrittenRows } from './native-block.ts';
import { RowBinary } from './row-binary.ts';

const MEGABYTE = 1024 * 1024;

interface Row {
  readonly id: string;
  readonly note?: string | undefined;
  readonly status?: number | undefined;
  readonly refs?: readonly string[];
  /** not that of its record */
  readonly ownText?: string;
}

const COLUMNS: readonly Column[] = [
  { name: 'id', type: 'String' },
  { name: 'note', type: 'Nullable(String)' },
  { name: 'status', type: 'Nullable(UInt16)' },
  { name: 'refs', type: 'Array(FixedString(20))' },
  { name: 'is_set', type: 'Bool' },
  { name: 'topic', type: 'String' },
  { name: 'message', type: 'String' },
];

function written(rows: readonly Row[], topic: string, order = rows.map((_, i) => i)): WrittenRows {
  const out = new RowBinary();
  const texts = new RowBinary();
  const places = rows.map(({ id, note, status, refs = [], ownText }) => {
    out.begin();
    out.text(id);
    out.uint8(note === undefined ? 1 : 0);
    if (note !== undefined) out.text(note);
    out.uint8(status === undefined ? 1 : 0);
    if (status !== undefined) out.uint16(status);
    out.length(refs.length);
    for (const ref of refs) out.copy(Buffer.from(ref), 0, 20);
    out.uint8(1);
    texts.begin();
    texts.text(ownText ?? 'not read');
    return { piece: out.piece, start: out.rowStart, textPiece: texts.piece, textStart: texts.rowStart };
  });
  const topicText = new RowBinary(0);
  topicText.text(topic);
  return {
    pieces: places.map(({ piece }) => piece),
    starts: places.map(({ start }) => start),
    order,
    constants: new Map([['topic', topicText.take()[0]!]]),
    elsewhere: new Map([
      [
        'message',
        {
          records: rows.map(({ id, ownText }) =>
            ownText === undefined ? { value: Buffer.from(`of ${id}`) } : undefined,
          ),
          pieces: places.map(({ textPiece }) => textPiece),
          starts: places.map(({ textStart }) => textStart),
        },
      ],
    ]),
  };
}

/** What the block must say of these rows. */
function expected(rows: readonly Row[], topic: string): object[] {
  return rows.map(({ id, note = null, status = null, refs = [], ownText = `of ${id}` }) => ({
    id,
    note,
    status,
    refs,
    is_set: true,
    topic,
    message: ownText,
  }));
}

function read(pieces: Iterable<Uint8Array>): object[] {
  const readable = (value: unknown): unknown =>
    value instanceof Uint8Array ? String(value) : Array.isArray(value) ? value.map(readable) : value;
  return readNative(pieces).map((row) => Object.fromEntries(Object.entries(row).map(([k, v]) => [k, readable(v)])));
}

const REF = 'abcdefghijklmnopqrst';

test('a block has its rows in the given order, with nulls, lists, constants and texts from elsewhere', () => {
  const rows: Row[] = [
    { id: 'a' },
    { id: 'b', note: '', status: 0, refs: [REF, REF.toUpperCase()] },
    { id: '', note: 'ü'.repeat(100), status: 65_535, refs: [REF], ownText: 'own' },
    { id: 'x'.repeat(127), note: 'x'.repeat(128), status: 404, ownText: '' },
    { id: 'y'.repeat(16_384), refs: Array.from({ length: 64 }, () => REF) },
  ];
  const order = [3, 0, 4, 2, 1];
  expect(read(nativeBlock(COLUMNS, [written(rows, 't', order)]))).toEqual(
    expected(
      order.map((row) => rows[row]!),
      't',
    ),
  );
});

test('rows of several batches are one block', () => {
  const batches = [
    [{ id: 'a', refs: [REF] }, { id: 'b' }],
    [{ id: 'c', refs: [REF, REF], note: 'of c' }],
    [{ id: 'd', refs: [REF], ownText: 'own' }],
  ];
  expect(
    read(
      nativeBlock(
        COLUMNS,
        batches.map((rows, i) => written(rows, `topic ${i}`)),
      ),
    ),
  ).toEqual(batches.flatMap((rows, i) => expected(rows, `topic ${i}`)));
});

test('values end and begin anywhere in pieces of a megabyte; a larger value has one of its own', () => {
  const rows = Array.from({ length: 30_000 }, (_, i): Row => ({
    id: `${i}-${'x'.repeat(i % 300)}`,
    note: i % 3 === 0 ? undefined : 'n'.repeat(i % 100),
    status: i % 2 === 0 ? undefined : i % 600,
    refs: Array.from({ length: i % 4 }, () => REF),
    ...(i % 5 === 0 && { ownText: 'o'.repeat(i % 200) }),
    ...(i === 20_000 && { note: 'N'.repeat(3 * MEGABYTE), ownText: 'O'.repeat(2 * MEGABYTE) }),
  }));
  const large = { id: 'L'.repeat(2 * MEGABYTE) };
  const block = [...rows, large];
  const sizes: number[] = [];
  function* counted(pieces: Iterable<Uint8Array>): Generator<Uint8Array> {
    for (const piece of pieces) {
      sizes.push(piece.length);
      yield piece;
    }
  }
  expect(read(counted(nativeBlock(COLUMNS, [written(block, 'topic')])))).toEqual(expected(block, 'topic'));
  expect(Math.min(...sizes.slice(0, -1))).toBeGreaterThan(0);
  expect(sizes.filter((size) => size > 2 * MEGABYTE)).not.toEqual([]);
  expect(Math.max(...sizes)).toBeLessThan(3 * MEGABYTE + 10);
});

test('a piece ends with its column, unless it has little: others run between pieces', () => {
  const rows = Array.from({ length: 10_000 }, (_, i): Row => ({ id: `${i}`.padEnd(9, 'x'), status: i, refs: [REF] }));
  const sizes = Array.from(nativeBlock(COLUMNS, [written(rows, 't')]), ({ length }) => Math.round(length / 1_000));
  // ids; notes with statuses and lists; flags with topics and messages
  expect(sizes).toEqual([100, 20 + 30 + 280, 10 + 20 + 130]);
});

test('a message that is gone by then fails the insert', () => {
  const gone = { records: [{ value: null }], pieces: [], starts: [] };
  const rows = { ...written([{ id: 'a' }], 't'), elsewhere: new Map([['message', gone]]) };
  expect(() => read(nativeBlock(COLUMNS, [rows]))).toThrow(TypeError);
  const cut = written([{ id: 'a'.repeat(200) }], 't');
  const pieces = cut.pieces.map((piece) => piece.subarray(0, cut.starts[0]! + 1));
  expect(() => read(nativeBlock(COLUMNS, [{ ...cut, pieces }]))).toThrow('a row ends within a text');
});

test('the same rows can be written again', () => {
  const rows = written(
    [
      { id: 'a', refs: [REF] },
      { id: 'b', ownText: 'own' },
    ],
    't',
  );
  expect(read(nativeBlock(COLUMNS, [rows]))).toEqual(read(nativeBlock(COLUMNS, [rows])));
});

test('a piece is intact until the next one is requested, while other blocks are written', () => {
  const rows = Array.from({ length: 5_000 }, (_, i): Row => ({ id: `${i}`.padEnd(500, 'x') }));
  const pieces = nativeBlock(COLUMNS, [written(rows, 't')]);
  const copies: Buffer[] = [];
  for (const piece of pieces) {
    const before = Buffer.from(piece);
    for (const _ of nativeBlock(COLUMNS, [written([{ id: 'z'.repeat(10_000) }], 'other')]));
    expect(before.equals(piece)).toBe(true);
    copies.push(before);
  }
  expect(read(copies)).toEqual(expected(rows, 't'));
});
