import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bindPlaceholders, lineOf, placeholders } from './placeholders.ts';

const names = (sql: string): string[] => placeholders(sql).map((p) => p.name);

describe('placeholders', () => {
  it.each([
    ['select @a', ['a']],
    ['select @a, @b_2 where x=@a', ['a', 'b_2', 'a']],
    ['(@a)+@b-@c', ['a', 'b', 'c']],
    ['@A@b', ['A']],
    ["select '@a'", []],
    ["select 'it''s @a', @b", ['b']],
    [String.raw`select 'a\'@a', @b`, ['b']],
    [String.raw`select 'a\\', @b`, ['b']],
    ['select "@a" , `@b`, @c', ['c']],
    ['select "a""@a", @b', ['b']],
    [String.raw`select "a\"@a", @b`, ['b']],
    ['select `a``@a`, @b', ['b']],
    ['-- @a\n@b', ['b']],
    ['// @a\n@b', ['b']],
    ['# @a\n@b', ['b']],
    ['#! @a\n@b', ['b']],
    ['#@a', ['a']],
    ['/* @a */ @b', ['b']],
    ['/* /* @a */ @b */ @c', ['c']],
    ["/* it's */ @a", ['a']],
    ["'/*' @a '*/'", ['a']],
    ["'--' @a", ['a']],
    ['1 - @a', ['a']],
    ['1 / @a', ['a']],
    ['$$ @a $$ @b', ['b']],
    ['$x$ @a $$ $x$ @b', ['b']],
    ['$ @a', ['a']],
    ['a$$b @a $$', ['a']],
    ['‘@a’ @b', ['b']],
    ['“@a” @b', ['b']],
    ['@@max_allowed_packet + @a', ['a']],
    ['select someone@example.com', []],
    ['select some.one@example.com, @a', ['a']],
    ['grant x to `some one`@host, \'some.one\'@host, "some"@host, @a', ['a']],
    ['@1, @, @é, @a', ['a']],
    ["x'41' @a b'01' @b", ['a', 'b']],
    ['$x$ unclosed @a', ['a']],
    ['@', []],
    ['@@', []],
  ])('%s', (sql, expected) => {
    expect(names(sql)).toEqual(expected);
  });

  const name = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,8}$/);
  const inner = fc.string({ unit: fc.constantFrom('@', 'a', ' ', '\\', "'", '"', '`', '*', '/', '-', '\n', '$', '’') });
  const opaque = fc.oneof(
    inner.map((t) => `'${t.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`),
    inner.map((t) => `"${t.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`),
    inner.map((t) => `\`${t.replaceAll('\\', '\\\\').replaceAll('`', '``')}\``),
    inner.map((t) => `-- ${t.replaceAll('\n', ' ')}\n`),
    inner.map((t) => `/*${t.replaceAll('/', ' ')}*/`),
    inner.map((t) => `$tag$${t.replaceAll('$', ' ')}$tag$`),
    inner.map((t) => `‘${t.replaceAll('’', ' ')}’`),
    fc.constantFrom('x', '1.5', '=', '<=', '(', ')', ',', '@@session', 'me@example', '[', ']', '{x:String}'),
  );
  const piece = fc.oneof(
    opaque.map((text) => ({ text, parameter: undefined as string | undefined })),
    name.map((n) => ({ text: `@${n}`, parameter: n as string | undefined })),
  );

  it('finds exactly the parameters between opaque pieces', () => {
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const sql = pieces.map((p) => p.text).join(' ');
        expect(names(sql)).toEqual(pieces.flatMap((p) => p.parameter ?? []));
      }),
    );
  });

  it('leaves everything else as it is, and a bound statement has none left', () => {
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const sql = pieces.map((p) => p.text).join(' ');
        const types = new Map(
          pieces.flatMap((p) => (p.parameter === undefined ? [] : [[p.parameter, 'String'] as const])),
        );
        const bound = bindPlaceholders(sql, types);
        expect(bound).toBe(
          pieces.map((p) => (p.parameter === undefined ? p.text : `{${p.parameter}:String}`)).join(' '),
        );
        expect(placeholders(bound)).toEqual([]);
      }),
    );
  });

  it('refuses what is not closed', () => {
    for (const sql of ["'unclosed @a", '"unclosed @a', '/* unclosed @a', '“unclosed @a'])
      expect(() => placeholders(sql)).toThrow('not closed');
  });
});

describe('bindPlaceholders', () => {
  it('keeps the types as they are written', () => {
    expect(
      bindPlaceholders(
        '@now > @a',
        new Map([
          ['now', "DateTime64(6, 'UTC')"],
          ['a', 'Nullable(Int64)'],
        ]),
      ),
    ).toBe("{now:DateTime64(6, 'UTC')} > {a:Nullable(Int64)}");
  });
  it('refuses a name without a type', () => {
    expect(() => bindPlaceholders('@a', new Map())).toThrow('@a is not declared');
  });
});

it('lineOf counts from 1', () => {
  expect([0, 1, 2, 3, 4].map((at) => lineOf('a\nb\nc', at))).toEqual([1, 1, 2, 2, 3]);
});
