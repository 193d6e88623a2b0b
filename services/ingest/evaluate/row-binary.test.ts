import { expect, test, vi } from 'vitest';
import { freePiece, recycle, RowBinary } from './row-binary.ts';

const MEGABYTE = 1024 * 1024;

function rowsOf(out: RowBinary, text: string, count: number): Buffer[] {
  for (let i = 0; i < count; i++) {
    out.begin();
    out.text(text);
  }
  return out.take();
}

/** The texts that the pieces hold; every text is shorter than 128 bytes. */
function textsOf(pieces: readonly Uint8Array[]): string[] {
  const bytes = Buffer.concat(pieces);
  const texts: string[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 1 + bytes[at]!;
    texts.push(bytes.toString('utf8', at + 1, end));
    at = end;
  }
  return texts;
}

test('pieces keep their rows while later ones are written, and give their memory back only after their use', () => {
  const out = new RowBinary();
  const count = Math.ceil((2.5 * MEGABYTE) / 101);
  const first = rowsOf(out, 'a'.repeat(100), count);
  const second = rowsOf(out, 'b'.repeat(100), count);
  expect([first.length, second.length]).toEqual([3, 3]);
  expect(new Set([...first, ...second].map(({ buffer }) => buffer)).size).toBe(6);
  expect(textsOf(first)).toEqual(Array(count).fill('a'.repeat(100)));

  const memory = new Set(first.map(({ buffer }) => buffer));
  recycle(first);
  const third = rowsOf(out, 'c'.repeat(100), count);
  expect(third.map(({ buffer }) => memory.has(buffer))).toEqual([true, true, true]);
  expect(textsOf(second)).toEqual(Array(count).fill('b'.repeat(100)));
  expect(textsOf(third)).toEqual(Array(count).fill('c'.repeat(100)));
});

test("memory of a piece that is taken is nobody else's", () => {
  const out = new RowBinary();
  recycle(rowsOf(out, 'a', 1));
  const piece = freePiece();
  piece.fill(1);
  rowsOf(out, 'b'.repeat(100), 1);
  expect(piece.every((byte) => byte === 1)).toBe(true);
});

test('what is recycled takes at most 64 MB, and a row larger than a piece is not kept', () => {
  const out = new RowBinary();
  const large = rowsOf(out, 'x'.repeat(3 * MEGABYTE), 1);
  const pieces = Array.from({ length: 70 }, () => rowsOf(out, 'y', 1)).flat();
  recycle([...large, ...pieces]);
  const memory = new Set([...large, ...pieces].map(({ buffer }) => buffer));
  const reused = Array.from({ length: 70 }, () => rowsOf(out, 'z', 1)).flat();
  expect(reused.filter(({ buffer }) => memory.has(buffer))).toHaveLength(64);
});

test('a row of many parts is copied as often as it doubles, not at every part beyond a megabyte', () => {
  const part = 'x'.repeat(120);
  const partsOf = (pieces: readonly Uint8Array[]): number => pieces.reduce((sum, { length }) => sum + length, 0) / 121;
  const allocated = vi.spyOn(Buffer, 'allocUnsafeSlow');
  const out = new RowBinary();
  out.begin();
  for (let i = 0; i < 13_000; i++) out.text(part);
  const sizes = allocated.mock.calls.map(([size]) => size);
  allocated.mockRestore();
  expect(sizes.length).toBeLessThan(5);
  expect(Math.max(...sizes)).toBeLessThan(2 * 13_000 * 121);
  expect(partsOf(out.take())).toBe(13_000);
});
