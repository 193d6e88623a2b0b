import { databaseOfAll } from '../../../common/clickhouse/database.ts';
import { sources } from '../../../common/sources.ts';
import { nameOf, parseAst, type Node } from './ast.ts';

/**
 * Checks which tables a definition's statement reads, by ClickHouse's own parse of it, because callers see their
 * content.
 */
const TABLE_FUNCTIONS = new Set([
  'numbers',
  'numbers_mt',
  'zeros',
  'zeros_mt',
  'generateseries',
  'generate_series',
  'values',
  'null',
]);
const SYSTEM_TABLES = new Set(['one', 'numbers', 'numbers_mt', 'zeros', 'zeros_mt']);
/**
 * Raw logs and rollups. All other tables of our database are about keys, deliveries and repairs, or hold everybody's
 * events as they came.
 */
const OPEN_TABLES: ReadonlySet<string> = new Set([
  ...sources.map(({ name }) => name),
  'function_invocations',
  'api_requests',
]);

/** The value of the project parameter for EXPLAIN AST. */
export const PROJECT_SENTINEL = 'the project of the call';

export interface Statement {
  /** printed by EXPLAIN AST, with PROJECT_SENTINEL for the project parameter */
  readonly printed: string;
  readonly database: string;
  /** names of the tables in it */
  readonly tables: ReadonlySet<string>;
  /** names of `WITH name AS (...)` */
  readonly subqueries: readonly string[];
  /** callers' own statements read its subqueries, so each may have the rows of one project only */
  readonly sandboxed: boolean;
}

/** Returns what is wrong with a statement's reads, a sentence each. */
export function wrongReads({ printed, database, tables, subqueries, sandboxed }: Statement): string[] {
  const root = parseAst(printed);
  if (root === undefined) return ['ClickHouse cannot parse the statement'];
  const wrong: string[] = [];
  for (const name of subqueries) if (tables.has(name)) wrong.push(`the subquery '${name}' has the name of a table`);
  const isTable = (name: string): boolean => name.includes('.') || tables.has(name);
  const look = (node: Node, select: Node | undefined): void => {
    const name = nameOf(node.rest);
    if (sandboxed && / \(alias `?project`?\)/.test(node.rest))
      wrong.push('sandboxed: only the column may be named project');
    if (node.type === 'TableIdentifier' || (node.type === 'Identifier' && isClosed(name))) {
      if (isClosed(name)) wrong.push(`'${name}' is internal: read a log or a rollup`);
      else if (sandboxed && isTable(name) && (select === undefined || !filtersByProject(select)))
        wrong.push(`sandboxed: each SELECT from '${name}' needs its own WHERE project = @project`);
    }
    for (const child of node.children) {
      const isFunction = node.type === 'TableExpression' && child.type === 'Function';
      const called = nameOf(child.rest);
      if (isFunction && !TABLE_FUNCTIONS.has(called.toLowerCase()))
        wrong.push(`the table function '${called}' is not for endpoints`);
      look(child, node.type === 'SelectQuery' ? node : select);
    }
  };
  look(root, undefined);
  return [...new Set(wrong)];

  function isClosed(name: string): boolean {
    const [table = '', of = ''] = name.replaceAll('`', '').split('.').toReversed();
    if (of === 'system' || of.toLowerCase() === 'information_schema') return !SYSTEM_TABLES.has(table);
    // the rows of one shard
    if (of !== '' && databaseOfAll(of) === database) return true;
    const isOurs = of === database || (of === '' && tables.has(table));
    return isOurs && !OPEN_TABLES.has(table);
  }
}

/**
 * Returns whether a SELECT reads one table, and its WHERE or PREWHERE has a `project = @project` that nothing can
 * widen.
 */
function filtersByProject(select: Node): boolean {
  const from = select.children.findIndex(({ type }) => type === 'TablesInSelectQuery');
  const tablesRead =
    select.children[from]?.children.filter((element) =>
      element.children.some(({ type }) => type === 'TableExpression'),
    ) ?? [];
  if (tablesRead.length !== 1) return false;
  const conditions: Node[] = [];
  // WHERE and PREWHERE stand right after the tables; HAVING stands after a list
  for (const node of select.children.slice(from + 1)) {
    if (node.type === 'ExpressionList') break;
    conditions.push(node);
  }
  const holds = (node: Node): boolean => {
    if (node.type !== 'Function') return false;
    const operands = node.children[0]?.children ?? [];
    const called = nameOf(node.rest);
    if (called === 'and') return operands.some(holds);
    const [left, right] = operands;
    return (
      called === 'equals' &&
      operands.length === 2 &&
      ((isColumn(left) && isProject(right)) || (isColumn(right) && isProject(left)))
    );
  };
  return conditions.some(holds);
}

function isColumn(node: Node | undefined): boolean {
  return node?.type === 'Identifier' && /^(\w+\.)?project$/.test(nameOf(node.rest));
}

function isProject(node: Node | undefined): boolean {
  return node?.type === 'Literal' && node.rest.startsWith(`'${PROJECT_SENTINEL}'`);
}
