import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { eachElement, members, nestedList } from './json-text.ts';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The rule of the contract, on values. */
function nested(value: Json, inList = false): Json {
  if (Array.isArray(value)) return value.map((v) => nested(v, true));
  if (value === null || typeof value !== 'object') return value;
  const fields = Object.fromEntries(Object.entries(value).map(([k, v]) => [k, nested(v)]));
  return inList ? fields : [fields];
}
const expected = (value: Json): Json =>
  value === null ? [] : Array.isArray(value) || typeof value === 'object' ? nested(value) : [value];

/** What walking through the text comes to. */
function walk(text: string): unknown {
  void [...eachElement(text)];
  try {
    nestedList(text);
    return members(text, ['n']);
  } catch (error) {
    return error;
  }
}

describe('nestedList', () => {
  it.each([
    [undefined, '[]'],
    ['null', '[]'],
    ['5', '[5]'],
    ['"a"', '["a"]'],
    ['true', '[true]'],
    ['{}', '[{}]'],
    ['[]', '[]'],
    ['[1,null,"a",[2]]', '[1,null,"a",[2]]'],
    ['{"request":{"headers":{"host":"a"}}}', '[{"request":[{"headers":[{"host":"a"}]}]}]'],
    ['[{"a":{"b":1}}]', '[{"a":[{"b":1}]}]'],
    ['{"a":[{"b":{}},[{"c":{"d":1}}]]}', '[{"a":[{"b":[{}]},[{"c":[{"d":1}]}]]}]'],
    ['{"a":null,"b":[]}', '[{"a":null,"b":[]}]'],
    [
      '{"n":12345678901234567890123,"f":1.10,"e":1E400,"z":-0}',
      '[{"n":12345678901234567890123,"f":1.10,"e":1E400,"z":-0}]',
    ],
    ['{"a":1,"a":2,"b":3}', '[{"a":1,"b":3}]'],
    ['{"a":{"x":1,"x":{"y":[1]}},"a":{"x":3}}', '[{"a":[{"x":1}]}]'],
    [String.raw`{"a":1,"\u0061":2}`, '[{"a":1}]'],
    [String.raw`{"\u0061":1,"a":2}`, String.raw`[{"\u0061":1}]`],
    [' { "a" : [ 1 , { "b" : 2 } ] , "c" : "x y" } ', '[{"a":[1,{"b":2}],"c":"x y"}]'],
    [String.raw`{"q":"\"}{\\","u":"\ud800\u0000"}`, String.raw`[{"q":"\"}{\\","u":"\ud800\u0000"}]`],
    ['{"__proto__":{"a":1},"constructor":2}', '[{"__proto__":[{"a":1}],"constructor":2}]'],
  ])('%s', (text, result) => {
    expect(nestedList(text)).toBe(result);
  });

  it('follows the rule for any value, with any blanks', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(undefined, 1, '\t\r\n '), (value, blanks) => {
        expect(JSON.parse(nestedList(JSON.stringify(value, null, blanks)))).toEqual(
          expected(JSON.parse(JSON.stringify(value)) as Json),
        );
      }),
    );
  });

  it('goes as deep as an event can be', () => {
    const depth = 200_000;
    const lists = nestedList('['.repeat(depth) + ']'.repeat(depth));
    expect(lists).toHaveLength(2 * depth);
    expect(nestedList('{"a":'.repeat(depth) + '1' + '}'.repeat(depth))).toBe(
      '[{"a":'.repeat(depth) + '1' + '}]'.repeat(depth),
    );
  });

  it('ends on any text; a key with a broken escape is the only thing that it refuses', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('{', '}', '[', ']', ',', ':', '"', '\\', '1', 'n', ' ') }),
        (text) => {
          const result = walk(text);
          expect(result instanceof Map || result instanceof SyntaxError).toBe(true);
        },
      ),
    );
  });
});

describe('members', () => {
  it('gives the first of duplicates, as text', () => {
    expect([...members(' {"a" : 1.0 , "b":{"a":2}, "a":3, "c":[ 1 ]}', ['a', 'b', 'c', 'd'])]).toEqual([
      ['a', '1.0'],
      ['b', '{"a":2}'],
      ['c', '[ 1 ]'],
    ]);
  });
  it('reads escaped keys', () => {
    expect(members(String.raw`{"m\u0065tadata":{}}`, ['metadata']).get('metadata')).toBe('{}');
  });
  it('of what is no object there are none', () => {
    for (const text of ['', '[]', '1', 'null', '"a"']) expect(members(text, ['a']).size).toBe(0);
  });
});

it('eachElement gives the text of each', () => {
  expect([...eachElement(String.raw` [1, "a,]\"", {"b":[2]}, [], null ] `)]).toEqual([
    '1',
    String.raw`"a,]\""`,
    '{"b":[2]}',
    '[]',
    'null',
  ]);
  expect([...eachElement('[]')]).toEqual([]);
});
