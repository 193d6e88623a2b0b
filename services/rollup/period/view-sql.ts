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

interface RollupColumn {
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

/**
 * A span of event time, unix seconds, `to` exclusive. Its ends are on the edges of the widest buckets made from raw.
 */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** The range of a DateTime. */
export const ALL_TIME: Span = { from: 0, to: 4_294_967_295 };
export const NO_TIME: Span = { from: 0, to: 0 };

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

const isFloat = (type: string): boolean => /^(Nullable\()?(Float|BFloat)/.test(type);
/** The engine quotes the name of a database such as my-logs. */
const readsOf = (source: string): RegExp =>
  new RegExp(`\\bFROM (?:(?:\\w+|\`(?:[^\`\\\\]|\\\\.)+\`)\\.)?${source}\\b(?: AS \\w+)?`, 'g');
const names = (columns: readonly RollupColumn[]): string => columns.map((c) => c.name).join(', ');

/** Returns the SELECT of the view over the rows of the raw table for which `condition` is true. */
function madeFromRaw({ select: text, source }: RollupDefinition, condition: string): string {
  return text.replace(readsOf(source), (from) => `${from} PREWHERE ${condition}`);
}

export const isIn = (period: number): string => `period = toDateTime(${period}, 'UTC')`;
export const isSince = (period: number): string => `period >= toDateTime(${period}, 'UTC')`;

/**
 * Returns a condition that an event time is within the span. The column stands alone, so the engine skips parts by it.
 * It compares with DateTime64 only: against a DateTime, the index of a DateTime64 column takes `< 00:00:01` as
 * `<= 00:00:00` and loses rows (26.7).
 */
export function during(column: 'timestamp' | 'at', { from, to }: Span): string {
  return `${column} >= toDateTime64(${from}, 6, 'UTC') AND ${column} < toDateTime64(${to}, 6, 'UTC')`;
}

/**
 * Returns what queries read under the rollup's name: its table, and for pending periods the raw table. It includes
 * `period`, so that a condition on it skips whole partitions.
 */
export function publicView(definition: RollupDefinition, pending: readonly number[], comment: string): string {
  const { name, table, columns } = definition;
  const periods = pending.map((p) => `toDateTime(${p}, 'UTC')`).join(', ');
  const stored = `SELECT ${names(columns)} FROM ${table}`;
  const all =
    pending.length === 0
      ? stored
      : `${stored} WHERE period NOT IN (${periods}) UNION ALL ${madeFromRaw(definition, `period IN (${periods})`)}`;
  return `CREATE OR REPLACE VIEW ${name} AS (${all}) COMMENT '${comment}'`;
}

/**
 * Returns the statement that fills a side table with what the view makes of the period's raw rows within the span, in
 * buckets of at least `narrowest` seconds, without those that are summed.
 */
export function fill(
  definition: RollupDefinition,
  side: string,
  period: number,
  span: Span,
  narrowest: number,
): string {
  return `INSERT INTO ${side} (${names(definition.columns)}) SELECT * FROM (${madeFromRaw(definition, `${isIn(period)} AND ${during('timestamp', span)}`)}) WHERE width BETWEEN ${narrowest} AND ${definition.from_raw}`;
}

/**
 * Returns the statement that copies the period's rows outside of the span into a side table, from the rollup itself or
 * from another version. It copies the columns that both have; the others get their defaults.
 */
export function carryOver(
  definition: RollupDefinition,
  side: string,
  other: RollupDefinition,
  period: number,
  span: Span,
  narrowest: number,
): string {
  const common = names(definition.columns.filter((c) => other.columns.some((o) => o.name === c.name)));
  return `INSERT INTO ${side} (${common}) SELECT ${common} FROM ${other.table} WHERE ${isIn(period)} AND width BETWEEN ${narrowest} AND ${definition.from_raw} AND NOT (${during('at', span)})`;
}

/** Returns the statement that sums the widest buckets of a side table from those that were made from raw or copied. */
export function sumUp({ columns, widest, from_raw }: RollupDefinition, side: string): string {
  const start = `toDateTime(intDiv(toUnixTimestamp(at), ${widest}) * ${widest}, 'UTC')`;
  const values = columns.map(({ name }) => (name === 'width' ? `${widest}` : name === 'at' ? start : name));
  return `INSERT INTO ${side} (${names(columns)}) SELECT ${values.join(', ')} FROM ${side} WHERE width = ${from_raw}`;
}

/** A comparison finds at most so many minutes that differ: a week of them, in 1 MB. */
export const MOST_DIFFERENCES = 10_000;

/** How much sums of floating-point numbers may differ by the order of adding, relative. */
const tolerance = (type: string): number => (type.includes('Float64') ? 1e-9 : type.includes('BFloat') ? 0.1 : 1e-4);

/**
 * Returns a statement for the minutes (and periods) in which a rollup differs from what its view makes of raw: one row
 * (period, minute) each, ascending, at most MOST_DIFFERENCES. Both sides give one fingerprint per minute: the sum over
 * its rows of a hash of the keys times what the row counts. Rows that are still to be merged give the same sum, so a
 * rollup of counts only is compared without merging (1.1 instead of 4.0 us of CPU an event); others are merged first.
 * `raw` selects rows of the raw table, `held` rows of the rollup. -0 equals 0, NaN equals NaN, and a value counts as
 * what the column can hold of it. Buckets wider than `widest` are skipped: if a span ends within a bucket, raw has a
 * part of it and the rollup all of it. So are buckets narrower than `narrowest`, which have expired.
 */
export function differences(
  definition: RollupDefinition,
  raw: string,
  held: string,
  widest: number,
  narrowest = 0,
): string {
  const compared = definition.columns.filter((c) => c.kind !== 'state');
  const by = (kind: RollupColumn['kind']): RollupColumn[] => compared.filter((c) => c.kind === kind);
  const [keys, counts, sums] = [by('key'), by('count'), by('sum')];
  const isMerged = counts.length === 0 || compared.some((c) => c.kind === 'exact' || c.kind === 'sum');
  const made = `SELECT ${compared.map((c) => `CAST(r.${c.name}, '${c.valueType.replaceAll("'", "\\'")}') AS ${c.name}`).join(', ')} FROM (${madeFromRaw(definition, raw)}) AS r WHERE r.width BETWEEN ${narrowest} AND ${widest}`;
  const stored = `SELECT ${names(compared)} FROM ${definition.table} WHERE ${held} AND width BETWEEN ${narrowest} AND ${widest}`;
  const merge = (rows: string): string =>
    `SELECT ${compared.map((c) => (c.merge === undefined ? c.name : `${c.merge}(t.${c.name}) AS ${c.name}`)).join(', ')} FROM (${rows}) AS t GROUP BY ${names(keys)}`;
  const hashed = [...keys, ...by('exact')].map(({ name, valueType }) => {
    const value = isFloat(valueType) ? `if(isNaN(${name}), toFloat64(nan), toFloat64(${name}) + 0)` : name;
    return valueType.includes('Nullable(') ? `ifNull(toString(${value}), '')` : value;
  });
  // of merged rows the number counts too: all of their counts may be 0
  const weights = [
    ...(isMerged ? ['1'] : []),
    ...counts.map(({ name }) => `toUInt64(${name}) * cityHash64('${name}')`),
  ];
  const values =
    sums.length === 0 ? 'emptyArrayFloat64()' : `[${sums.map((c) => `ifNull(toFloat64(${c.name}), 0)`).join(', ')}]`;
  const side = (rows: string, isHeld: 0 | 1): string =>
    `SELECT period, toStartOfMinute(at, 'UTC') AS minute, ${isHeld} AS is_held, cityHash64(${hashed.join(', ')}) * (${weights.join(' + ')}) AS fingerprint, ${values} AS sums FROM (${isMerged ? merge(rows) : rows})`;
  const near =
    '(a = b OR (isNaN(a) AND isNaN(b)) OR (isFinite(a) AND isFinite(b) AND abs(a - b) <= t * greatest(abs(a), abs(b))))';
  return `SELECT toUnixTimestamp(period) AS period, toUnixTimestamp(minute) AS minute
FROM (${side(made, 0)} UNION ALL ${side(stored, 1)})
GROUP BY period, minute
HAVING sumIf(fingerprint, is_held = 0) != sumIf(fingerprint, is_held = 1)${
    sums.length === 0
      ? ''
      : `
    OR arrayExists((a, b, t) -> NOT ${near}, sumForEachIf(sums, is_held = 0), sumForEachIf(sums, is_held = 1), [${sums.map((c) => tolerance(c.valueType)).join(', ')}])`
  }
ORDER BY period, minute
LIMIT ${MOST_DIFFERENCES}`;
}
