import { refusal } from '../../../common/clickhouse/errors.ts';
import { tokenize } from '../../../common/clickhouse/sql.ts';
import type { Parameter } from '../definition/definition.ts';
import { matches, refusedPattern } from '../definition/pattern.ts';

/**
 * Branches of a UNION ALL that only some values of the parameters need. A comment at the beginning of a branch says
 * which, for instance `-- only interval: 15min, 1hr` or `-- only project ~ ^[a-z]{20}$ and interval: daily`.
 *
 * ClickHouse plans a branch even when its WHERE is always false, and planning is most of what an answer from rollups
 * costs (functions.invocation-stats, 7day, when it had three branches: 20 ms with all, 12 ms with the needed one). So
 * the statement is sent without branches that are not needed. A comment only removes a branch whose WHERE would be
 * false: the statement means the same with and without it.
 */
interface Branch {
  readonly text: string;
  /** all must hold; a branch without conditions is always needed */
  readonly conditions: readonly Condition[];
}

interface Condition {
  readonly parameter: string;
  /** `value` is undefined if the parameter is absent */
  readonly holds: (value: string | null | undefined) => boolean;
}

/** A parameter that conditions may use, with its enum if it has one. */
type Named = Pick<Parameter, 'name' | 'values'>;

/** Text, or the branches of a UNION ALL with comments. */
export type Fragment = string | readonly Branch[];

const COMMENT = /^--\s*only\s+(.*)$/s;

/**
 * Splits a statement into fragments, by ClickHouse's own token rules. `parameters` are those that conditions may use.
 * Throws ClickHouseError 62 `... at position N` for a comment that is no condition, or that does not begin a branch.
 */
export function fragmentsOf(sql: string, parameters: readonly Named[]): Fragment[] {
  const tokens = tokenize(sql);
  const fragments: Fragment[] = [];
  let from = 0;
  for (let i = 0; i < tokens.length; i++) {
    if (tokens[i]!.kind !== 'comment' || !COMMENT.test(tokens[i]!.text)) continue;
    const start = openingOf(i);
    const { branches, end } = branchesFrom(start);
    fragments.push(sql.slice(from, tokens[start]!.end), branches);
    from = tokens[end]!.start;
    i = end;
  }
  return [...fragments, sql.slice(from)];

  /** Returns the bracket around the comment's UNION ALL; the comment is in its first branch with one. */
  function openingOf(comment: number): number {
    let depth = 0;
    for (let i = comment - 1; i >= 0; i--) {
      if (tokens[i]!.text === ')') depth++;
      else if (tokens[i]!.text === '(' && depth-- === 0) return i;
    }
    throw misplaced(comment);
  }

  function branchesFrom(opening: number): { branches: Branch[]; end: number } {
    const branches: Branch[] = [];
    let depth = 0;
    let begin = tokens[opening]!.end;
    let conditions: Condition[] = [];
    let begun = false;
    for (let i = opening + 1; i < tokens.length; i++) {
      const token = tokens[i]!;
      if (token.kind === 'comment') {
        const said = COMMENT.exec(token.text)?.[1];
        if (said === undefined) continue;
        if (begun || conditions.length > 0) throw misplaced(i);
        conditions = said
          .trim()
          .split(/\s+and\s+/)
          .map((one) => conditionOf(one, parameters, token.start));
        continue;
      }
      if (token.kind === 'space') continue;
      if (token.text === '(') depth++;
      else if (token.text === ')' && depth-- === 0)
        return { branches: [...branches, { text: sql.slice(begin, token.start), conditions }], end: i };
      else if (depth === 0 && token.kind === 'word' && token.text.toUpperCase() === 'UNION') {
        const all = tokens.findIndex((t, at) => at > i && t.kind === 'word');
        if (tokens[all]?.text.toUpperCase() !== 'ALL') throw wrong('"-- only" is only for UNION ALL', token.start);
        branches.push({ text: sql.slice(begin, token.start), conditions });
        [begin, conditions, begun, i] = [tokens[all].end, [], false, all];
        continue;
      }
      begun = true;
    }
    throw misplaced(opening);
  }

  function misplaced(at: number): Error {
    return wrong('"-- only" must begin a branch of a UNION ALL in brackets', tokens[at]!.start);
  }
}

/** Says what is wrong as ClickHouse does, with a position from 1. */
function wrong(message: string, position: number): Error {
  return refusal(62, `Syntax error: ${message}, at position ${position + 1}`);
}

function conditionOf(said: string, parameters: readonly Named[], position: number): Condition {
  const [, parameter, operator, operand] = /^([A-Za-z_]\w*)\s*(:|!~|~)\s*(.+)$/.exec(said) ?? [];
  if (parameter === undefined || operand === undefined)
    throw wrong(`"-- only ${said}" is none of "name: value, value", "name ~ pattern", "name !~ pattern"`, position);
  const named = parameters.find((p) => p.name === parameter);
  if (named === undefined) throw wrong(`"-- only ${said}": ${parameter} is no parameter`, position);
  if (operator === ':') {
    const values = operand.split(',').map((v) => v.trim());
    // an alias is refused too: the statement gets the value that it stands for
    const unknown = values.find((v) => named.values?.includes(v) === false);
    if (unknown !== undefined)
      throw wrong(`"-- only ${said}": ${unknown} is not in the enum of ${parameter}`, position);
    return { parameter, holds: (value) => value !== null && value !== undefined && values.includes(value) };
  }
  const refused = refusedPattern(operand);
  if (refused !== undefined) throw wrong(`"-- only ${said}": ${operand} ${refused}`, position);
  return { parameter, holds: (value) => matches(operand, value ?? '') === (operator === '~') };
}

/**
 * Returns the statement for these values. A UNION ALL without a needed branch stays whole: its own conditions make it
 * empty.
 */
export function statementFor(fragments: readonly Fragment[], params: Readonly<Record<string, string | null>>): string {
  return fragments
    .map((fragment) => {
      if (typeof fragment === 'string') return fragment;
      const needed = fragment.filter(({ conditions }) =>
        conditions.every(({ parameter, holds }) => holds(params[parameter])),
      );
      return (needed.length === 0 ? fragment : needed).map(({ text }) => text).join('UNION ALL');
    })
    .join('');
}
