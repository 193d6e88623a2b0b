import { expect, test } from 'vitest';
import { familiesOf } from './requests.ts';

const MARKS = ['/rest', '/storage', '/auth', '/realtime'];
const bitsOf = (path: string, from = 0, to = path.length): number => familiesOf(Buffer.from(path), from, to);

test('a mark is found anywhere in a path', () => {
  for (const [family, mark] of MARKS.entries())
    for (const path of [mark, `${mark}/v1`, `/a${mark}`, `//${mark}x`]) expect(bitsOf(path), path).toBe(1 << family);
  expect(bitsOf(MARKS.join(''))).toBe(0b1111);
});

test('a text that differs from a mark in one letter is none', () => {
  for (const mark of MARKS)
    for (let at = 0; at < mark.length; at++) {
      const near = `${mark.slice(0, at)}x${mark.slice(at + 1)}`;
      expect(bitsOf(near), near).toBe(0);
    }
});

test('a mark counts only within the path, whatever stands before and behind it', () => {
  for (const [family, mark] of MARKS.entries()) {
    const path = `${mark}${mark}`;
    expect(bitsOf(path, 1, mark.length * 2 - 1), path).toBe(0);
    expect(bitsOf(path, 1, mark.length * 2), path).toBe(1 << family);
  }
});
