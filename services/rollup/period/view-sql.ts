import { isFloat, readsOf, type RollupColumn, type RollupDefinition } from './definition.ts';

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
