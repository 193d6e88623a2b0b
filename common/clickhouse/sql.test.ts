import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  checkParameters,
  checkOnlyReads,
  identifier,
  oneStatement,
  parameterNames,
  quote,
  splitStatements,
  tokenize,
  writeLongValues,
} from './sql.ts';

const code = (n: number): unknown => expect.objectContaining({ code: n });

describe('tokens', () => {
  test.each([
    [`'it''s; \\' -- no'`, 'string'],
    [`"a;""b\\""`, 'quoted'],
    ['`a;\\`b`', 'quoted'],
    ['‘a;b’', 'string'],
    ['“a;b”', 'quoted'],
    ['/* a; /* nested; */ still; */', 'comment'],
    ['-- a;', 'comment'],
    ['# a;', 'comment'],
    ['#!a;', 'comment'],
    ['// a;', 'comment'],
    ['$x$ a; $y$ b; $x$', 'string'],
    ['$$ a; $$', 'string'],
    ['\u00a0\u3000 \n', 'space'],
    ['a$b_1', 'word'],
  ] as const)('%s is one %s', (text, kind) => {
    expect(tokenize(text)).toEqual([{ kind, start: 0, end: text.length, text }]);
  });

  test('cover the text without gaps, or refuse it', () => {
    const piece = fc.constantFrom(
      "'",
      '"',
      '`',
      '\\',
      ';',
      '--',
      '/*',
      '*/',
      '\n',
      '$',
      '$a$',
      '{',
      '}',
      'a',
      ' ',
      '‘',
      '’',
      '#',
      '//',
      '1',
    );
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 30, size: 'max' }).map((p) => p.join('')),
        (text) => {
          try {
            const tokens = tokenize(text);
            expect(tokens.map((t) => text.slice(t.start, t.end)).join('')).toBe(text);
          } catch (error) {
            expect(error).toMatchObject({ code: 62 });
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test.each(["'open", '"open', '`open', '‘open', '/* open /* */', 'SELECT 1\0'])('%j is refused', (text) => {
    expect(() => tokenize(text)).toThrow(code(62));
  });
});

describe('statements', () => {
  test('are split where a semicolon is code', () => {
    expect(
      splitStatements(
        `-- first; one\nCREATE TABLE a (b String DEFAULT ';');\n/* nothing; */;\nINSERT INTO a SELECT 'x;y' # end;\n; `,
      ),
    ).toEqual([`-- first; one\nCREATE TABLE a (b String DEFAULT ';')`, `INSERT INTO a SELECT 'x;y' # end;`]);
  });

  test('one is one', () => {
    expect(oneStatement('SELECT 1 ; -- done\n;')).toBe('SELECT 1');
    expect(() => oneStatement('SELECT 1; SELECT 2')).toThrow(code(62));
    expect(() => oneStatement('SELECT 1 /*;*/; SET readonly = 0')).toThrow(code(62));
    expect(() => oneStatement('-- nothing')).toThrow(code(62));
  });

  test('a text read again gets the same verdict, also after many others', () => {
    for (let round = 0; round < 2; round++) {
      expect(() => oneStatement('SELECT 1; SELECT 2')).toThrow(code(62));
      expect(() => checkOnlyReads('DROP TABLE t')).toThrow(code(164));
      for (let i = 0; i < 500; i++) {
        expect(oneStatement(`SELECT ${i};`)).toBe(`SELECT ${i}`);
        expect([...parameterNames(`SELECT {p${i}:String}`)]).toEqual([`p${i}`]);
      }
    }
  });
});

describe('reads', () => {
  test.each([
    'SELECT 1',
    '(SELECT 1) UNION ALL (SELECT 2)',
    'with 1 AS x select x',
    '/* x */ EXPLAIN AST SELECT 1',
    "SELECT 'file', profile, files FROM t",
    'DESCRIBE TABLE t',
    'FROM t SELECT a',
  ])('%s is one', (sql) => {
    expect(() => checkOnlyReads(sql)).not.toThrow();
  });

  test.each([
    'INSERT INTO t SELECT 1',
    'SET readonly = 0',
    'USE system',
    '1 + 1',
    'KILL QUERY WHERE 1',
    'SYSTEM SHUTDOWN',
    '(INSERT INTO t VALUES (1))',
    "SELECT 1 INTO OUTFILE 'x'",
    "SELECT 1 into /* */ outfile 'x'",
    "SELECT file('/etc/passwd')",
    "SELECT `file`('/etc/passwd')",
    'SELECT "file"(1)',
    'SELECT “file”(1)',
    `SELECT "fi\\x6ce"('/etc/passwd')`,
    'SELECT * APPLY file FROM (SELECT 1)',
    'SELECT FILE(1)',
    "SELECT * FROM sqlite('x', 'a')",
    "DESCRIBE SQLite('x', 'a')",
    "EXPLAIN SELECT * FROM `sqlite`('x', 'a')",
  ])('%s is none', (sql) => {
    expect(() => checkOnlyReads(sql)).toThrow(code(164));
  });
});

describe('parameters', () => {
  test('are found where they are code', () => {
    expect(parameterNames(`SELECT {a:String}, '{b:String}', {'c':1}, { d : Array(UInt8) } -- {e:String}`)).toEqual(
      new Set(['a', 'd']),
    );
  });

  test('have to be given', () => {
    expect(() => checkParameters('SELECT {a:String}', {})).toThrow(code(456));
    expect(() => checkParameters('SELECT {toString:String}', {})).toThrow(code(456));
    expect(() => checkParameters('SELECT {a:String}', { a: '', more: 1 })).not.toThrow();
  });
});

describe('long values', () => {
  test('are written where their parameters stand, and nowhere else', () => {
    const sql =
      "SELECT {a:String}, '{a:String}' /* {a:String} */, {b:String}, { a : String }, {e:Array(String)}, {c:String}, {d:Int64}";
    const short = { b: 'b', c: null, d: 1_234_567_890_123 };
    expect(writeLongValues(sql, { a: "it's {b:String}", ...short }, 5)).toEqual({
      sql: "SELECT 'it\\'s {b:String}', '{a:String}' /* {a:String} */, {b:String}, 'it\\'s {b:String}', {e:Array(String)}, {c:String}, {d:Int64}",
      params: short,
    });
  });

  test('short ones stay parameters', () => {
    const params = { a: 'short' };
    expect(writeLongValues('SELECT {a:String}', params, 5)).toEqual({ sql: 'SELECT {a:String}', params });
  });
});

test.each([
  ['text', quote, 'string'],
  ['name', identifier, 'quoted'],
] as const)('a quoted %s is one token, whatever it holds', (_, quoting, kind) => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const quoted = quoting(text);
      expect(tokenize(quoted)).toEqual([{ kind, start: 0, end: quoted.length, text: quoted }]);
    }),
  );
});
