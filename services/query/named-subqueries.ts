import { tokenize, type Token } from '../../common/clickhouse/sql.ts';

export interface Subqueries {
  readonly names: readonly string[];
  /** from WITH to before the last SELECT */
  readonly with: string;
}

/** The named subqueries of a statement, by its tokens: `WITH a AS (...), 1 AS b, c AS (...) SELECT`: a and c. */
export function namedSubqueries(sql: string): Subqueries {
  const code = tokenize(sql).filter((t) => t.kind !== 'space' && t.kind !== 'comment');
  const text = (t: Token | undefined): string => (t === undefined ? '' : sql.slice(t.start, t.end));
  const [first] = code;
  if (first === undefined || text(first).toUpperCase() !== 'WITH') return { names: [], with: '' };
  const names: string[] = [];
  let depth = 0;
  for (const [i, token] of code.entries()) {
    if (text(token) === '(' && token.kind === 'symbol') {
      const [name, as, before] = [code[i - 2], code[i - 1], code[i - 3]];
      const opens = depth === 0 && text(as).toUpperCase() === 'AS' && name?.kind === 'word' && (text(before) === ',' || before === first) && text(code[i + 1]).toUpperCase() === 'SELECT';
      if (opens) names.push(text(name));
      depth++;
    } else if (text(token) === ')' && token.kind === 'symbol') depth--;
    else if (depth === 0 && token.kind === 'word' && text(token).toUpperCase() === 'SELECT') return { names, with: sql.slice(first.start, token.start) };
  }
  return { names: [], with: '' };
}
