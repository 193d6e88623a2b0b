import { expect, test } from 'vitest';
import { wrongReads } from './reads.ts';

const readOf = (table: string): string[] =>
  wrongReads({
    printed: `SelectWithUnionQuery (children 1)
 ExpressionList (children 1)
  SelectQuery (children 2)
   ExpressionList (children 1)
    Literal UInt64_1
   TablesInSelectQuery (children 1)
    TablesInSelectQueryElement (children 1)
     TableExpression (children 1)
      TableIdentifier ${table}`,
    database: 'logs_all',
    tables: new Set(['edge_logs', 'batches']),
    subqueries: [],
    sandboxed: false,
  });

test('in a cluster of several shards an endpoint reads the tables over all of them, not those of one', () => {
  expect(readOf('edge_logs')).toEqual([]);
  expect(readOf('logs_all.edge_logs')).toEqual([]);
  expect(readOf('logs.edge_logs')).toEqual(["'logs.edge_logs' is internal: read a log or a rollup"]);
  expect(readOf('batches')).toEqual(["'batches' is internal: read a log or a rollup"]);
});
