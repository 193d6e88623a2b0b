import type { Param } from './clickhouse.ts';
import { quote } from './sql.ts';

/**
 * Returns a parameter's value as the text that ClickHouse parses by the type in its placeholder: TabSeparated rules on
 * the outside, SQL literals within arrays (the same text that @clickhouse/client puts into param_<name>).
 */
export function formatParam(value: Param): string {
  if (value === null) return '\\N';
  if (typeof value === 'object')
    return `[${value.map((v) => (typeof v === 'string' ? quote(v) : formatNumber(v))).join(',')}]`;
  if (typeof value === 'boolean') return value ? '1' : '0';
  if (typeof value === 'string') return quote(value).slice(1, -1);
  return formatNumber(value);
}

function formatNumber(value: number | bigint): string {
  if (Number.isNaN(value)) return 'nan';
  if (value === Number.POSITIVE_INFINITY) return '+inf';
  if (value === Number.NEGATIVE_INFINITY) return '-inf';
  return String(value);
}
