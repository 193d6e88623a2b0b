import { select, shardsOf } from '../../common/clickhouse/clickhouse.ts';
import { statements } from './period/catalogue.ts';
import type { Context } from './period/context.ts';

/** Reads the sizes of all tables for the metrics, once for the whole installation. */
export async function updateTableMetrics({ clickhouse, metrics }: Context): Promise<void> {
  type Size = { table: string; fullest: number; bytes: number; rows: number };
  const sizes = await Promise.all(shardsOf(clickhouse).map((shard) => select<Size>(shard, statements.tableSizes)));
  const shares = await select<{ source: string; stored: number; dead_lettered: number }>(
    clickhouse,
    statements.ledgerShares,
  );
  const { tableFullestPartition, tableBytes, tableRows, deadLetterShare } = metrics;
  for (const gauge of [tableFullestPartition, tableBytes, tableRows, deadLetterShare]) gauge.reset();
  for (const [table, of] of Map.groupBy(sizes.flat(), (size) => size.table)) {
    const sum = (what: 'bytes' | 'rows'): number => of.reduce((all, size) => all + size[what], 0);
    tableFullestPartition.set({ table }, Math.max(...of.map((size) => size.fullest)));
    tableBytes.set({ table }, sum('bytes'));
    tableRows.set({ table }, sum('rows'));
  }
  for (const { source, stored, dead_lettered: dead } of shares)
    deadLetterShare.set({ source }, stored + dead === 0 ? 0 : dead / (stored + dead));
}
