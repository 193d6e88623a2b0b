import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { statements, type Column, type Rollup, type View } from './catalogue.ts';
import { ceilTo, DAY, HOUR, MINUTE } from './periods.ts';

/**
 * What a rollup's tables are made of, read from the engine itself: the SELECTs of its views are the only definition, and whatever is built, compared
 * or answered from raw is made of them by putting something else in the place of the table that they read.
 */
export interface Tier {
  /** as queries name it */
  readonly table: string;
  /** the table itself: <table>_v<version> */
  readonly stored: string;
  /** the SELECT of its view */
  readonly select: string;
  /** the table that its view reads: the raw table, or the `stored` of the tier before it */
  readonly from: string;
  /** how wide its buckets are, seconds: the suffix of its name */
  readonly width: number;
  /** its column of event time */
  readonly time: 'bucket' | 'timestamp';
  readonly columns: readonly TierColumn[];
}

export interface TierColumn {
  readonly name: string;
  /**
   * key: what rows are merged by; exact: an aggregate that has to be equal; sum: of floating-point numbers, equal but for the order of adding;
   * state: of an approximate function, compared by nothing
   */
  readonly kind: 'key' | 'exact' | 'sum' | 'state';
  /** name of the function that merges it, for exact and sum */
  readonly merge: string | undefined;
  readonly nullable: boolean;
}

export interface Shape {
  readonly source: string;
  /** each made from the raw table or from one before it */
  readonly tiers: readonly Tier[];
}

export const storedName = (table: string, version: number): string => `${table}_v${version}`;
export const viewName = (table: string, version: number): string => `${storedName(table, version)}_mv`;

/** Throws where a table or view of the rollup is missing, or a view reads something else than it may. */
export async function readShape(clickhouse: ClickHouse, rollup: Pick<Rollup, 'name' | 'version' | 'source' | 'tables'>): Promise<Shape> {
  const stored = rollup.tables.map((table) => storedName(table, rollup.version));
  const views = await select<View>(clickhouse, statements.views, { names: rollup.tables.map((table) => viewName(table, rollup.version)) });
  const columns = await select<Column>(clickhouse, statements.columns, { tables: stored });
  return shapeOf(rollup, views, columns);
}

/** readShape without the engine: from what system.tables and system.columns say. */
export function shapeOf(rollup: Pick<Rollup, 'name' | 'version' | 'source' | 'tables'>, views: readonly View[], columns: readonly Column[]): Shape {
  const tiers: Tier[] = [];
  for (const table of rollup.tables) {
    const stored = storedName(table, rollup.version);
    const view = views.find((v) => v.name === viewName(table, rollup.version));
    const own = columns.filter((c) => c.table === stored).map(columnOf);
    const time = (['bucket', 'timestamp'] as const).find((name) => own.some((c) => c.name === name));
    const from = view === undefined ? undefined : [rollup.source, ...tiers.map((t) => t.stored)].find((name) => reads(view.select, name) === 1);
    if (view === undefined || from === undefined || time === undefined || !own.some((c) => c.name === 'period')) {
      throw new Error(`rollup ${rollup.name} version ${rollup.version}: ${table} needs a table ${stored} with the columns period and bucket or timestamp, and a view ${stored}_mv that reads ${rollup.source} or a table before it, once`);
    }
    tiers.push({ table, stored, select: view.select, from, width: widthOf(table), time, columns: own });
  }
  return { source: rollup.source, tiers };
}

/** `_1m`, `_1h`, `_1d`; tables of single events have none and are looked at by minutes. */
function widthOf(table: string): number {
  const [, count, unit] = /_(\d+)([mhd])$/.exec(table) ?? [];
  return Number(count ?? 1) * (unit === 'd' ? DAY : unit === 'h' ? HOUR : MINUTE);
}

function columnOf({ name, type }: Column): TierColumn {
  const [, merge, argument] = /^SimpleAggregateFunction\((\w+), (.+)\)$/.exec(type) ?? [];
  const kind = type.startsWith('AggregateFunction(') ? 'state' : merge === undefined ? 'key' : merge === 'sum' && /^(Nullable\()?Float/.test(argument ?? '') ? 'sum' : 'exact';
  return { name, kind, merge, nullable: type.includes('Nullable(') };
}

const tableExpression = (name: string): RegExp => new RegExp(`\\b(?:FROM|JOIN) (?:\\w+\\.)?${name}\\b`, 'g');

/** How often a SELECT reads a table. */
const reads = (text: string, name: string): number => text.match(tableExpression(name))?.length ?? 0;

const names = (tier: Tier): string => tier.columns.map((c) => c.name).join(', ');

/** What the tier's view would make of `input` (a table or a subquery) in the place of what it reads, as the tier's columns in their order. */
export function madeFrom(tier: Tier, input: string): string {
  return `SELECT ${names(tier)} FROM (${tier.select.replace(tableExpression(tier.from), () => `FROM ${input}`)})`;
}

/** What the tier would hold of those rows of the raw table for which `condition` is true. */
export function madeFromRaw(shape: Shape, tier: Tier, condition: string): string {
  const before = shape.tiers.find((t) => t.stored === tier.from);
  return madeFrom(tier, `(${before === undefined ? `SELECT * FROM ${shape.source} WHERE ${condition}` : madeFromRaw(shape, before, condition)})`);
}

/**
 * Conditions on event time, `time` in unix seconds. A DateTime64 column is compared with DateTime64 only: against a DateTime, the engine's index takes
 * `< 00:00:01` as `<= 00:00:00` and loses rows (26.7).
 */
export const isFrom = (column: Tier['time'], time: number): string => `${column} >= ${instant(column, time)}`;
export const isBefore = (column: Tier['time'], time: number): string => `${column} < ${instant(column, time)}`;
const instant = (column: Tier['time'], time: number): string => (column === 'bucket' ? `toDateTime(${time}, 'UTC')` : `toDateTime64(${time}, 6, 'UTC')`);

/**
 * What queries read under the tier's name: the stored table, and for events before `coveredFrom` (unix seconds, 0 = none) the raw table. With `period`, so that a
 * condition on it leaves whole partitions out (docs/rollups.md, Periods).
 */
export function publicView(shape: Shape, tier: Tier, coveredFrom: number, comment: string): string {
  // in parentheses: ClickHouse 25.8 takes a COMMENT only behind a SELECT that has ended
  const begin = `CREATE OR REPLACE VIEW ${tier.table} AS (SELECT ${names(tier)} FROM ${tier.stored}`;
  // a bucket is either all from the table or all from raw
  const border = ceilTo(coveredFrom, tier.width);
  const raw = coveredFrom === 0 ? '' : ` WHERE ${isFrom(tier.time, border)} UNION ALL ${madeFromRaw(shape, tier, isBefore('timestamp', border))}`;
  return `${begin}${raw}) COMMENT '${comment}'`;
}

/** Fills `target`, a table like the tier's own, with what the tier's view makes of `input`. */
export function fill(tier: Tier, target: string, input: string): string {
  return `INSERT INTO ${target} (${names(tier)}) ${madeFrom(tier, input)}`;
}

/** Copies rows of another version of the tier, or of the same, by the columns that both have; the others get their defaults. */
export function carryOver(tier: Tier, target: string, older: Tier, condition: string): string {
  const common = tier.columns.filter((c) => older.columns.some((o) => o.name === c.name)).map((c) => c.name).join(', ');
  return `INSERT INTO ${target} (${common}) SELECT ${common} FROM ${older.stored} WHERE ${condition}`;
}

/**
 * Minutes (and periods) in which a tier is not what its view makes of `input`: one row (period, minute) each, ascending, at most 10,000.
 * Of both sides one fingerprint per minute: the sum of a hash of every merged row. `condition` selects rows of the tier.
 */
export function differences(tier: Tier, input: string, condition: string): string {
  const by = (kind: TierColumn['kind']): TierColumn[] => tier.columns.filter((c) => c.kind === kind);
  const keys = by('key').map((c) => c.name).join(', ');
  const merged = [...by('exact'), ...by('sum')];
  const held = merged.length === 0
    ? `SELECT ${keys} FROM ${tier.stored} WHERE ${condition}`
    : `SELECT ${[keys, ...merged.map((c) => `${c.merge}(t.${c.name}) AS ${c.name}`)].join(', ')} FROM ${tier.stored} AS t WHERE ${condition} GROUP BY ${keys}`;
  const hashed = [...by('key'), ...by('exact')].map((c) => (c.nullable ? `ifNull(toString(${c.name}), '')` : c.name)).join(', ');
  const sums = by('sum').length === 0 ? 'emptyArrayFloat64()' : `[${by('sum').map((c) => (c.nullable ? `ifNull(${c.name}, 0)` : c.name)).join(', ')}]`;
  const side = (rows: string, isHeld: 0 | 1): string => `SELECT period, toStartOfMinute(${tier.time}, 'UTC') AS minute, ${isHeld} AS is_held, cityHash64(${hashed}) AS fingerprint, ${sums} AS sums FROM (${rows})`;
  return `SELECT toUnixTimestamp(period) AS period, toUnixTimestamp(minute) AS minute
FROM (${side(madeFrom(tier, input), 0)} UNION ALL ${side(held, 1)})
GROUP BY period, minute
HAVING sumIf(fingerprint, is_held = 0) != sumIf(fingerprint, is_held = 1)
    OR arrayExists((a, b) -> abs(a - b) > 1e-9 * greatest(abs(a), abs(b)), sumForEachIf(sums, is_held = 0), sumForEachIf(sums, is_held = 1))
ORDER BY period, minute
LIMIT 10000`;
}
