import { tokenize } from '../../../common/clickhouse/sql.ts';

/**
 * `@name` in a statement, everywhere but in strings, quoted identifiers, comments and heredocs, by ClickHouse's own
 * token rules. `@@name` is a server variable, and an @ right after a word or a quoted name belongs to an address.
 * Neither is a parameter.
 */
export interface Placeholder {
  readonly name: string;
  /** of the @, in UTF-16 units */
  readonly start: number;
  /** after the name */
  readonly end: number;
}

/**
 * Returns all placeholders in order. Throws ClickHouseError 62 if a string, quoted identifier or comment is not closed.
 */
export function placeholders(sql: string): Placeholder[] {
  const tokens = tokenize(sql);
  return tokens.flatMap((at, i) => {
    const [before, name] = [tokens[i - 1], tokens[i + 1]];
    if (at.text !== '@' || name?.kind !== 'word') return [];
    if (before?.kind === 'word' || before?.kind === 'quoted' || before?.kind === 'string') return [];
    if (before?.text === '@') return [];
    const { text, end } = name;
    return /^[A-Za-z_][A-Za-z0-9_]*$/.test(text) ? [{ name: text, start: at.start, end }] : [];
  });
}

/**
 * Returns the statement with every `@name` as ClickHouse's `{name:Type}`. A name without a type is a defect of our
 * code.
 */
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

/** Returns the 1-based line of a position. */
export function lineOf(text: string, position: number): number {
  return text.slice(0, position).split('\n').length;
}
