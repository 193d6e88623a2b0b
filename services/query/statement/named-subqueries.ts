import { codeOf, nameOf, type Token } from '../../../common/clickhouse/sql.ts';

interface Subqueries {
  readonly names: readonly string[];
  /** from WITH to before the last SELECT */
  readonly with: string;
}

/**
 * Returns the named subqueries of a statement, by its tokens: a and c of `WITH a AS (...), 1 AS b, c AS (...) SELECT`.
 */
export function namedSubqueries(sql: string): Subqueries {
  const { code, subqueries, select } = read(sql);
  return {
    names: subqueries.map(({ name }) => name),
    with: select === undefined ? '' : sql.slice(code[0]!.start, select.start),
  };
}

/**
 * Returns the statement without the named subqueries that nothing reads. They cost time even so (the eight of logs.all
 * 5 of 20 ms), and ClickHouse does not check them. A name that occurs anywhere else counts as read.
 */
export function withoutUnread(sql: string): string {
  const { code, subqueries } = read(sql);
  for (const { name, first, last } of subqueries) {
    const isRead = code.some((token, i) => (i < first || i > last) && nameOf(token) === name);
    if (isRead) continue;
    // with the comma after it; the last one with what precedes it: a comma, or WITH
    const behind = code[last + 1];
    const comma = behind?.text === ',';
    return withoutUnread(
      `${sql.slice(0, code[comma ? first : first - 1]!.start)} ${sql.slice(code[comma ? last + 1 : last]!.end)}`,
    );
  }
  return sql;
}

interface Reading {
  /** without spaces and comments */
  readonly code: readonly Token[];
  /** indexes in `code`, of the name and of the closing bracket */
  readonly subqueries: readonly { readonly name: string; readonly first: number; readonly last: number }[];
  /** of the statement itself; undefined if it does not begin with WITH */
  readonly select?: Token;
}

function read(sql: string): Reading {
  const code = codeOf(sql);
  const [start] = code;
  if (start?.text.toUpperCase() !== 'WITH') return { code, subqueries: [] };
  const subqueries: { name: string; first: number; last: number }[] = [];
  let depth = 0;
  for (const [i, token] of code.entries()) {
    if (token.text === '(') {
      const [name, as, before] = [code[i - 2], code[i - 1], code[i - 3]];
      const opens =
        depth === 0 &&
        as?.text.toUpperCase() === 'AS' &&
        name?.kind === 'word' &&
        (before?.text === ',' || before === start) &&
        code[i + 1]?.text.toUpperCase() === 'SELECT';
      if (opens) subqueries.push({ name: name.text, first: i - 2, last: i });
      depth++;
    } else if (token.text === ')') {
      depth--;
      const open = subqueries.at(-1);
      if (depth === 0 && open !== undefined && code[open.last]?.text === '(') open.last = i;
    } else if (depth === 0 && token.text.toUpperCase() === 'SELECT') return { code, subqueries, select: token };
  }
  return { code, subqueries: [] };
}
