import { describe, expect, test } from 'vitest';
import { fragmentsOf, statementFor } from './branches.ts';

const sql = `WITH 1 AS x SELECT * FROM (
  -- only interval: 5min
  SELECT 1 FROM (SELECT 1 UNION ALL SELECT 2)
  UNION ALL
  -- only interval: 15min, 1hr and project ~ ^[a-z]{3}$
  SELECT ') UNION ALL'
  union all
  /* kept */ SELECT 3
) ORDER BY x`;
const named = [{ name: 'interval' }, { name: 'project' }];
const compact = (text: string): string => text.replace(/--.*\n|\/\*.*?\*\//g, '').replaceAll(/\s+/g, ' ');
const of = (params: Record<string, string | null>, statement = sql): string =>
  compact(statementFor(fragmentsOf(statement, named), params));

describe('branches', () => {
  test.each([
    [{ interval: '5min', project: 'abc' }, 'SELECT 1 FROM (SELECT 1 UNION ALL SELECT 2) UNION ALL SELECT 3'],
    [{ interval: '1hr', project: 'abc' }, "SELECT ') UNION ALL' UNION ALL SELECT 3"],
    [{ interval: '1hr', project: 'abcd' }, 'SELECT 3'],
    [{ interval: null, project: null }, 'SELECT 3'],
  ])('that %o does not need are left out', (params, inner) => {
    expect(of(params)).toBe(`WITH 1 AS x SELECT * FROM ( ${inner} ) ORDER BY x`);
  });

  test('with !~ the values that do not match need it', () => {
    const one = 'SELECT * FROM (-- only project ~ ^a\nSELECT 1 UNION ALL -- only project !~ ^a\nSELECT 2)';
    expect([of({ project: 'a' }, one), of({ project: 'b' }, one)]).toEqual([
      'SELECT * FROM (SELECT 1 )',
      'SELECT * FROM ( SELECT 2)',
    ]);
  });

  test('of which none is needed stay all', () => {
    const one = 'SELECT * FROM (-- only interval: a\nSELECT 1)';
    expect(of({ interval: 'b' }, one)).toBe('SELECT * FROM (SELECT 1)');
  });

  test('a statement without any is sent as it stands', () => {
    const plain = "SELECT (1), '-- only interval: a' -- as always\nFROM (SELECT 1 UNION ALL SELECT 2)";
    expect(fragmentsOf(plain, [])).toEqual([plain]);
  });

  test.each([
    ['SELECT * FROM (-- only intervall: a\nSELECT 1)', /intervall is no parameter, at position 16/],
    ['SELECT * FROM (-- only interval\nSELECT 1)', /is none of .* at position 16/],
    ['SELECT * FROM (SELECT 1 -- only interval: a\n)', /must begin a branch .* at position 25/],
    ['-- only interval: a\nSELECT 1', /must begin a branch/],
    ['SELECT * FROM (-- only interval: a\n-- only interval: b\nSELECT 1)', /must begin a branch .* at position 36/],
    ['SELECT * FROM (-- only interval: a\nSELECT 1 UNION DISTINCT SELECT 2)', /is only for UNION ALL/],
  ])('%s is refused', (statement, message) => {
    expect(() => fragmentsOf(statement, named)).toThrow(message);
  });
});
