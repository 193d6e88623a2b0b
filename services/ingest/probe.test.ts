import fc from 'fast-check';
import { expect, test } from 'vitest';
import { probeOf } from './probe.ts';

const probe = (text: string): string => probeOf(Buffer.from(text));

test.each([
  ['{"id":12345678901234567890123}', '{"id":"12345678901234567890123"}'],
  ['{"a":1e400, "b":[-0, 1.50]}', '{"a":"1e400", "b":["-0", "1.50"]}'],
  ['{"timestamp":1700000000.123456789}', '{"timestamp":"1700000000.123456789"}'],
  ['{"1e5":"1e5","n":1E+5}', '{"1e5":"1e5","n":"1E+5"}'],
  [String.raw`{"a":"\ud800"}`, String.raw`{"a":"\ufffd"}`],
  [String.raw`{"a":"\\ud800","b":"\udc00x\ud83d\ude00"}`, String.raw`{"a":"\\ud800","b":"\ufffdx\ud83d\ude00"}`],
])('%s is read from %s', (message, expected) => {
  expect(probe(message)).toBe(expected);
});

test.each(['{}', '{"id":123,"b":true}', '{"a":1e400', '{"a":01e5}', '{"a":"x"}'])('%s is read as it is', (message) => {
  expect(probe(message)).toBe('');
});

test('bytes that are not UTF-8 are read as they are', () => {
  expect(probeOf(Buffer.from([...Buffer.from('{"a":1e400,"b":"'), 0xff, ...Buffer.from('"}')]))).toBe('');
});

test('a probe is the same document with its numbers as text, digit for digit', () => {
  const number = fc.oneof(
    fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }).map(String),
    fc.tuple(fc.integer(), fc.nat(), fc.constantFrom('', 'e5', 'E-3', 'e+300', 'e400')).map(([a, b, e]) => `${a}.${b}${e}`),
  );
  const string = fc.string({ unit: 'binary' }).map((s) => JSON.stringify(s));
  const { value } = fc.letrec<{ value: readonly [string, string] }>((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      number.map((n) => [n, `"${n}"`] as const),
      string.map((s) => [s, s.replace(/(?:\\\\)|\\ud[89a-f]../g, (e) => (e === '\\\\' ? e : '\\ufffd'))] as const),
      fc.constantFrom('true', 'false', 'null').map((l) => [l, l] as const),
      fc.array(fc.tuple(string, tie('value')), { maxLength: 4 }).map((entries) => [0, 1].map((i) => `{${entries.map(([k, v]) => `${(i === 0 ? k : k.replace(/(?:\\\\)|\\ud[89a-f]../g, (e) => (e === '\\\\' ? e : '\\ufffd')))}: ${v[i]}`).join(' ,')}}`) as [string, string]),
      fc.array(tie('value'), { maxLength: 4 }).map((items) => [0, 1].map((i) => `[${items.map((v) => v[i]).join(',\n')}]`) as [string, string]),
    ),
  }));
  fc.assert(fc.property(value, ([message, expected]) => {
    const read = probe(message);
    if (read !== '') expect(read).toBe(expected);
    else expect(message).not.toMatch(/^[^"]*[0-9][eE]/);
  }));
});
