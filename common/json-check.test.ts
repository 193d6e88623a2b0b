import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MAX_JSON_DEPTH, checkJson } from './json-check.ts';

const check = (text: string): ReturnType<typeof checkJson> => checkJson(Buffer.from(text));

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const right = ['{}', '[]', '""', '0', '-0', '-1.50e+10', '1E9', '1e-05', 'true', 'false', 'null', ' \t\r\n{ "a" : [ 1 , { } , "\\u00e9\\"\\\\\\/\\b" ] } ', '"\\ud800"', '"\u007f\u2028日本"', '[[[]],{"":{"":[]}}]'];
const wrong = [
  '', ' ', '{', '}', '[', ']', '[,]', '[1,]', '[1 2]', '{"a"}', '{"a":}', '{"a":1,}', '{,}', '{a:1}', "{'a':1}", '{"a":1 "b":2}', '{"a" 1}', '[1}', '{"a":1]', '{1:2}', '"', '"\\"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\n"', '"\t"', '"\u0000"',
  '01', '-', '-a', '1.', '.5', '1e', '1e+', '+1', '0x1', 'NaN', 'Infinity', 'tru', 'truee', 'nul', 'True', '1 1', '{} {}', '\u00a01', '\ufeff{}', '//x', '[1]/**/',
];

test('the check accepts what JSON.parse accepts, and nothing else', () => {
  for (const text of right) expect(check(text), text).toBe('json');
  for (const text of wrong) expect(check(text), text).toBe('not_json');
  for (const text of [...right, ...wrong]) expect(check(text) === 'json', text).toBe(isJson(text));
});

test('texts that are nearly JSON are judged as JSON.parse judges them', () => {
  const pieces = fc.array(fc.constantFrom('{', '}', '[', ']', ',', ':', '"', '\\', 'u', '00e9', '"a"', '1', '-', '0', '.5', 'e+', 'E', 'true', 'null', ' ', '\n', 'é', '日', '\u0001'), { maxLength: 14 });
  fc.assert(fc.property(pieces, (some) => {
    const text = some.join('');
    expect(check(text) === 'json', text).toBe(isJson(text));
  }), { numRuns: 5_000 });
  fc.assert(fc.property(fc.json(), fc.nat(), fc.string({ maxLength: 2 }), (json, at, put) => {
    expect(check(json)).toBe('json');
    const broken = json.slice(0, at % (json.length + 1)) + put + json.slice((at % (json.length + 1)) + 1);
    expect(check(broken) === 'json', broken).toBe(isJson(broken));
  }), { numRuns: 500 });
});

test('512 levels are accepted, 513 are not', () => {
  const nested = (depth: number): string => `${'['.repeat(depth - 1)}{}${']'.repeat(depth - 1)}`;
  expect(check(nested(MAX_JSON_DEPTH))).toBe('json');
  expect(check(nested(MAX_JSON_DEPTH + 1))).toBe('too_deep');
  expect(check('{"a":'.repeat(100_000))).toBe('too_deep');
});
