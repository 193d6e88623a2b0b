import { describe, expect, test } from 'vitest';
import { namedSubqueries, withoutUnread } from './named-subqueries.ts';

test('named subqueries are the names of WITH that stand for a SELECT', () => {
  const sql = "WITH 1 AS one, a AS (SELECT ')', (2)), (3 + 4) AS b, c AS (SELECT 5) SELECT * FROM a, c";
  expect(namedSubqueries(sql)).toEqual({ names: ['a', 'c'], with: sql.slice(0, sql.lastIndexOf('SELECT')) });
  expect(namedSubqueries('SELECT 1')).toEqual({ names: [], with: '' });
});

describe('named subqueries that nothing reads', () => {
  const compact = (sql: string): string => sql.replaceAll(/\s+/g, ' ').trim();
  test.each([
    ['the first', 'WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM b', 'WITH b AS (SELECT 2) SELECT * FROM b'],
    ['the last', 'WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM a', 'WITH a AS (SELECT 1) SELECT * FROM a'],
    ['the only one', 'WITH a AS (SELECT 1) SELECT 2', 'SELECT 2'],
    [
      'one between others',
      "WITH 1 AS x, a AS (SELECT ') FROM a'), (x + 1) AS y SELECT x, y",
      'WITH 1 AS x, (x + 1) AS y SELECT x, y',
    ],
    [
      'those that only each other read',
      'WITH a AS (SELECT 1), b AS (SELECT * FROM a), c AS (SELECT * FROM b) SELECT 2',
      'SELECT 2',
    ],
    ['before a FROM that comes first', 'WITH a AS (SELECT 1) FROM t SELECT *', 'FROM t SELECT *'],
    ['without a space behind it', 'WITH 1 AS x,a AS (SELECT 1)SELECT x', 'WITH 1 AS x SELECT x'],
    [
      'one that only a comment or a string names',
      "WITH a AS (SELECT 1) SELECT 'a' /* a */ FROM t",
      "SELECT 'a' /* a */ FROM t",
    ],
  ])('are left out: %s', (_, sql, rest) => {
    expect(compact(withoutUnread(sql))).toBe(rest);
  });

  test.each([
    'WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT (SELECT * FROM b)',
    'WITH a AS (SELECT 1), b AS (SELECT 2) SELECT * FROM `a` UNION ALL SELECT * FROM "b"',
    'WITH a AS (SELECT 1) SELECT * FROM “a”',
    'WITH a AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT 2) SELECT * FROM a)',
    'WITH 1 AS x SELECT 2',
    'SELECT 1',
  ])('stay where they are read, and so does the rest: %s', (sql) => {
    expect(withoutUnread(sql)).toBe(sql);
  });
});
