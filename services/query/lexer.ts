/**
 * Finds `@name` in a ClickHouse statement: everywhere but in strings, quoted identifiers, comments and heredocs.
 * The token rules are those of ClickHouse's own src/Parsers/Lexer.cpp: '' and \' in strings, the same in "..." and `...`,
 * ‘...’ and “...” without escapes, x'..' and b'..', `--`, `//` and `# `/`#!` to the end of the line, nested block comments,
 * $tag$ ... $tag$. `@@name` is a server variable; an @ behind a word character belongs to an address. Neither is a parameter.
 */
export interface Placeholder {
  readonly name: string;
  /** of the @, in UTF-16 units */
  readonly start: number;
  /** behind the name */
  readonly end: number;
}

const word = /[A-Za-z0-9_$]/;
const nameAt = /[A-Za-z_][A-Za-z0-9_]*/y;

function quotedEnd(sql: string, start: number, quote: string): number {
  for (let i = start + 1; i < sql.length; i++) {
    if (sql[i] === '\\') i++;
    else if (sql[i] === quote) {
      if (sql[i + 1] !== quote) return i + 1;
      i++;
    }
  }
  return sql.length;
}

function endOf(sql: string, closer: string, from: number): number {
  const at = sql.indexOf(closer, from);
  return at < 0 ? sql.length : at + closer.length;
}

function blockCommentEnd(sql: string, start: number): number {
  let depth = 1;
  let i = start + 2;
  while (i < sql.length && depth > 0) {
    if (sql.startsWith('/*', i)) {
      depth++;
      i += 2;
    } else if (sql.startsWith('*/', i)) {
      depth--;
      i += 2;
    } else i++;
  }
  return i;
}

/** Behind the heredoc that begins at `start`, or `start` where none does. */
function heredocEnd(sql: string, start: number): number {
  const tagEnd = sql.indexOf('$', start + 1);
  if (tagEnd < 0) return start;
  const tag = sql.slice(start, tagEnd + 1);
  const closer = sql.indexOf(tag, tagEnd + 1);
  return closer < 0 ? start : closer + tag.length;
}

/** All placeholders, in order. Linear in the length of the statement but for `$` without a partner. */
export function placeholders(sql: string): Placeholder[] {
  const found: Placeholder[] = [];
  let i = 0;
  while (i < sql.length) {
    const c = sql[i];
    const next = sql[i + 1];
    if (c === "'" || c === '"' || c === '`') i = quotedEnd(sql, i, c);
    else if (c === '‘') i = endOf(sql, '’', i + 1);
    else if (c === '“') i = endOf(sql, '”', i + 1);
    else if ((c === '-' && next === '-') || (c === '/' && next === '/') || (c === '#' && (next === ' ' || next === '!'))) i = endOf(sql, '\n', i);
    else if (c === '/' && next === '*') i = blockCommentEnd(sql, i);
    else if (c === '$') i = Math.max(heredocEnd(sql, i), i + 1);
    else if (c === '@') {
      const previous = sql[i - 1];
      if (next === '@') i += 2;
      else i += 1;
      nameAt.lastIndex = i;
      const name = nameAt.exec(sql)?.[0];
      if (name === undefined) continue;
      const end = i + name.length;
      if (next !== '@' && !(previous !== undefined && word.test(previous))) found.push({ name, start: i - 1, end });
      i = end;
    } else if (c !== undefined && word.test(c)) {
      while (i < sql.length && word.test(sql[i] ?? '')) i++;
    } else i++;
  }
  return found;
}

/** The statement with every `@name` as ClickHouse's `{name:Type}`; a name without a type is a mistake of the caller. */
export function bindPlaceholders(sql: string, types: ReadonlyMap<string, string>): string {
  let bound = '';
  let from = 0;
  for (const p of placeholders(sql)) {
    const type = types.get(p.name);
    if (type === undefined) throw new Error(`@${p.name} is not declared`);
    bound += `${sql.slice(from, p.start)}{${p.name}:${type}}`;
    from = p.end;
  }
  return bound + sql.slice(from);
}

/** 1-based line of a position. */
export function lineOf(text: string, position: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < position; at = text.indexOf('\n', at + 1)) line++;
  return line;
}
