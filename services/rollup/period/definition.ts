import { select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { statements, type Rollup } from './catalogue.ts';

/**
 * The definition of a rollup, read from the engine itself: the SELECT of its view is the only one. What is built,
 * compared or answered from raw is this SELECT with another input instead of the raw table.
 */
export interface RollupDefinition extends Pick<Rollup, 'name' | 'source' | 'widest' | 'from_raw'> {
  /** the table itself: <name>_v<version> */
  readonly table: string;
  /** the SELECT of its view */
  readonly select: string;
  /** in the order in which the view makes them */
  readonly columns: readonly RollupColumn[];
}

export interface RollupColumn {
  readonly name: string;
  readonly type: string;
  /**
   * key: rows are merged by it; count: a sum of integers; exact: another aggregate that must be equal; sum: of
   * floating-point numbers, equal except for the order of adding; state: of an approximate function, not compared
   */
  readonly kind: 'key' | 'count' | 'exact' | 'sum' | 'state';
  /** name of the function that merges it, for count, exact and sum */
  readonly merge: string | undefined;
  /** type of its values; for an aggregate, the type of its argument */
  readonly valueType: string;
}

export const tableName = ({ name, version }: Pick<Rollup, 'name' | 'version'>): string => `${name}_v${version}`;
export const viewName = (rollup: Pick<Rollup, 'name' | 'version'>): string => `${tableName(rollup)}_mv`;

/**
 * Throws if the table or the view of the rollup is missing, the view does not read its raw table exactly once, or it
 * makes a column that the table lacks.
 */
export async function readRollupDefinition(clickhouse: Reader, rollup: Rollup): Promise<RollupDefinition> {
  const { name, version, source, widest, from_raw } = rollup;
  const [table, view] = [tableName(rollup), viewName(rollup)];
  const [found] = await select<{ select: string }>(clickhouse, statements.tables, { names: [view] });
  const stored = await columnsOf(clickhouse, table);
  const made = await columnsOf(clickhouse, view);
  const columns = made.flatMap((column) => stored.find((c) => c.name === column.name) ?? []);
  const isComplete = ['period', 'width', 'at'].every((column) => columns.some((c) => c.name === column));
  if (found?.select.match(readsOf(source))?.length !== 1 || !isComplete || columns.length < made.length)
    throw new Error(
      `rollup ${name} version ${version} needs a table ${table} with the columns period, width and at, and a view ${view} that reads ${source} once and makes columns of that table`,
    );
  return { name, source, widest, from_raw, table, select: found.select, columns: columns.map(columnOf) };
}

/** Returns the columns of a table or view, in its order. */
async function columnsOf(clickhouse: Reader, table: string): Promise<Pick<RollupColumn, 'name' | 'type'>[]> {
  return await select(clickhouse, statements.columns, { table });
}

function columnOf({ name, type }: { name: string; type: string }): RollupColumn {
  const [, merge, argument] = /^SimpleAggregateFunction\((\w+), (.+)\)$/.exec(type) ?? [];
  const valueType = argument ?? type;
  const kind = type.startsWith('AggregateFunction(')
    ? 'state'
    : merge === undefined
      ? 'key'
      : /^sum(WithOverflow)?$/.test(merge) && isFloat(valueType)
        ? 'sum'
        : merge === 'sum' && /^U?Int64$/.test(valueType)
          ? 'count'
          : 'exact';
  return { name, type, kind, merge, valueType };
}

export const isFloat = (type: string): boolean => /^(Nullable\()?(Float|BFloat)/.test(type);
/** Matches where a SELECT reads the raw table. The engine quotes the name of a database such as my-logs. */
export const readsOf = (source: string): RegExp =>
  new RegExp(`\\bFROM (?:(?:\\w+|\`(?:[^\`\\\\]|\\\\.)+\`)\\.)?${source}\\b(?: AS \\w+)?`, 'g');
