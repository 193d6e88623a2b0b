import { afterEach, expect, test, vi } from 'vitest';
import type { Read, Reader } from '../../../common/clickhouse/clickhouse.ts';
import { refusal } from '../../../common/clickhouse/errors.ts';
import { parseDefinition } from '../definition/parse-definition.ts';
import { runQuery } from './query.ts';

afterEach(() => {
  vi.useRealTimers();
});

const SECONDS = 10;
const parsed = parseDefinition(
  'own.yaml',
  `id: 00000000-0000-4000-8000-00000000aaaa
name: own
description: for a caller's own statement
sandboxed: true
max_seconds: ${SECONDS}
project: { parameter: project, match: exact }
parameters:
  required: [project]
  properties:
    project: { description: the project }
columns:
  - { name: n, render: json, description: a number }
`,
  'own.sql',
  'WITH a AS (SELECT 1 AS n WHERE @project = @project), b AS (SELECT 2 AS n WHERE @project = @project) SELECT n FROM a',
);
if ('mistakes' in parsed) throw new Error(JSON.stringify(parsed.mistakes));
const { definition } = parsed;

/** What EXPLAIN AST prints of a SELECT from a and b. */
const AST = `SelectWithUnionQuery (children 1)
 ExpressionList (children 1)
  SelectQuery (children 2)
   ExpressionList (children 1)
    Asterisk
   TablesInSelectQuery (children 2)
    TablesInSelectQueryElement (children 1)
     TableExpression (children 1)
      TableIdentifier a
    TablesInSelectQueryElement (children 1)
     TableExpression (children 1)
      TableIdentifier b
`;
const ROWS = { body: Buffer.from('{"meta":[{"name":"n","type":"UInt8"}],"data":[]}'), readRows: 0, readBytes: 0 };

/** Runs a caller's own SELECT from a and b, whose parse needs nothing. */
const run = (read: Reader['read']): { run: Promise<unknown>; reserved: () => number } => {
  let reserved = 0;
  return {
    run: runQuery(
      { read: async (one) => (one.sql.startsWith('EXPLAIN') ? { ...ROWS, body: Buffer.from(AST) } : await read(one)) },
      {
        definition,
        params: { project: 'p', sql: 'SELECT * FROM a, b' },
        now: 0,
        limits: { max_execution_time: 60, max_memory_usage: 1e9, max_rows_to_read: 1e9, max_result_bytes: 1e9 },
        signal: new AbortController().signal,
        reserve: async () => (reserved++, () => undefined),
      },
    ),
    reserved: () => reserved,
  };
};

test('a subquery that is too large for the sandbox is named, and is no reason to reserve memory', async () => {
  const sent: string[] = [];
  const tried = run(async ({ sql }) => {
    sent.push(sql.split('\n').at(-1)!);
    if (sql.endsWith('FROM b')) throw refusal(396, 'Limit for result exceeded');
    return ROWS;
  });
  await expect(tried.run).rejects.toMatchObject({
    code: 'timeout',
    message: 'the query exceeded its limit of size of the answer: b has more than 20000 rows or 16 MiB',
  });
  expect([sent, tried.reserved()]).toEqual([['SELECT * FROM b'], 0]);
});

test("an answer of a caller's SELECT that is too large without memory is read again with it", async () => {
  let texts = 0;
  const tried = run(async ({ isolated }) => {
    if (isolated === true && texts++ === 0) throw refusal(396, 'Limit for result exceeded');
    return ROWS;
  });
  await tried.run;
  expect([texts, tried.reserved()]).toEqual([2, 1]);
});

test("the subqueries and the text of a caller's SELECT share one limit of time", async () => {
  vi.useFakeTimers();
  const limits: unknown[] = [];
  const slow = async ({ settings }: Read): Promise<typeof ROWS> => {
    const limit = Number(settings?.['max_execution_time']);
    limits.push(limit);
    await vi.advanceTimersByTimeAsync(Math.min(limit, 0.6 * SECONDS) * 1000);
    if (limit < 0.6 * SECONDS) throw refusal(159, 'Timeout exceeded');
    return ROWS;
  };
  await expect(run(slow).run).rejects.toMatchObject({ message: 'the query exceeded its limit of time' });
  expect(limits).toEqual([SECONDS, 0.4 * SECONDS]);
});
