import fc from 'fast-check';
import { expect, test } from 'vitest';
import { probeOf } from './probe.ts';

const probe = (text: string): string => probeOf(Buffer.from(text));

test.each([
  ['{}', '{}'],
  ['{"id":12345678901234567890123}', '{"id":"n12345678901234567890123"}'],
  ['{"a":1e400, "b": -0 ,"c":1.50}', '{"a":"n1e400","b":"n-0","c":"n1.50"}'],
  ['{"a":"x","b":"","c":true,"d":null,"e":false}', '{"a":"sx","b":"s","c":true,"d":null,"e":false}'],
  ['{"1e5":"1e5","n":1E+5}', '{"1e5":"s1e5","n":"n1E+5"}'],
  [String.raw`{"a":"\ud800"}`, String.raw`{"a":"s\ufffd"}`],
  [String.raw`{"a":"\\ud800","b":"\udc00x\ud83d\ude00\"}","\"{":1}`, String.raw`{"a":"s\\ud800","b":"s\ufffdx\ud83d\ude00\"}","\"{":"n1"}`],
  ['{"a":1,"b":2,"a":3}', '{"a":"n1","b":"n2"}'],
  [String.raw`{"a":{"x":1},"\u0061":{"y":2},"b":[{"c":1,"c":2}]}`, '{"a":{"x":"n1"},"b":{"c":"n1"}}'],
  ['{"a":[{"b":[{"c":1},{"c":2}]},5]}', '{"a":{"b":{"c":"n1"}}}'],
  ['{"a":[],"b":[1,{"c":1}],"d":[null,{"e":1}],"f":[[{"g":1}]],"h":["x"]}', '{"a":[],"b":[],"d":[],"f":[],"h":[]}'],
  [' \t\r\n{ "a" : [ { } , 1 ] }\n', '{"a":{}}'],
])('%s is read from %s', (message, expected) => {
  expect(probe(message)).toBe(expected);
});

test.each(['', ' ', '{', '{"a":1e400', '{"a":01}', '{"a":1}{}', '{"a":1,}', '{"a":"\n"}', '{a:1}', '\ufeff{}'])('%j is not JSON', (message) => {
  expect(probe(message)).toBe('');
});

test('bytes that are not UTF-8 are not JSON', () => {
  expect(probeOf(Buffer.from([...Buffer.from('{"a":1e400,"b":"'), 0xff, ...Buffer.from('"}')]))).toBe('');
});

test('nesting: what holds something may stand at depth 1023, nothing at 1024', () => {
  const objects = (n: number): string => `${'{"a":'.repeat(n)}1${'}'.repeat(n)}`;
  const lists = (n: number): string => `{"a":${'['.repeat(n)}${']'.repeat(n)}}`;
  expect([objects(1023), lists(1023)].map((text) => probe(text) === '')).toEqual([false, false]);
  expect([objects(1024), lists(1024), objects(100_000), lists(100_000)].map((text) => probe(text) === '')).toEqual([true, true, true, true]);
});

test('a probe says the same as the document, by a reader of its own', () => {
  type Value = { readonly [key: string]: Value } | string | boolean | null;
  /** What a probe has to say of a value: strings and numbers by their prefix, lists by their first element. */
  const meaning = (value: unknown): Value => {
    if (typeof value === 'string') return `s${value}`;
    if (typeof value === 'number') return `n${JSON.stringify(value)}`;
    if (typeof value === 'boolean' || value === null) return value;
    if (Array.isArray(value)) return typeof value[0] === 'object' && value[0] !== null && !Array.isArray(value[0]) ? meaning(value[0]) : ([] as unknown as Value);
    return Object.fromEntries(Object.entries(value as object).map(([k, v]) => [k, meaning(v)]));
  };
  fc.assert(fc.property(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue({ maxDepth: 4 })), fc.constantFrom(undefined, 1, '\t'), (event, indent) => {
    const text = JSON.stringify(event, undefined, indent);
    expect(JSON.parse(probe(text))).toEqual(meaning(JSON.parse(text.replaceAll(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/gi, '$1\\ufffd'))));
  }), { numRuns: 500 });
});
