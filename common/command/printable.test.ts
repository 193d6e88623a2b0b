import { expect, test } from 'vitest';
import { printable } from './printable.ts';

test('control characters are shown, so a terminal does not obey them', () => {
  expect(printable('\u001b[2Jx\r\u0007\u0000\u007f\u009b31m\u202eyes')).toBe(
    String.raw`\u001b[2Jx\u000d\u0007\u0000\u007f\u009b31m\u202eyes`,
  );
});

test('text of any language keeps its characters, lines and tabs', () => {
  for (const text of ['a\tb\n', '日本語 — é', '👩‍👩‍👧', '{"a":"\\u001b"}']) expect(printable(text)).toBe(text);
});

test('JSON stays the same JSON', () => {
  const value = { a: '\u001b\u007f\u009b\u2028' };
  expect(JSON.parse(printable(JSON.stringify(value)))).toEqual(value);
});
