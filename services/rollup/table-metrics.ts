import { select, shardsOf } from '../../common/clickhouse/clickhouse.ts';
import { statements } from './catalogue.ts';
import type { Context } from './context.ts';

/** Reads the sizes of all tables for the metrics, once for the whole installation. */
export async function updateTableMetrics({ clickhouse, metrics }: Context): Promise<void> {
  type Size = { table: string; parts: number; fullest: number; bytes: number; rows: number };
  const sizes = await Promise.all(shardsOf(clickhouse).map((shard) => select<Size>(shard, statements.tableSizes)));
  const shares = await select<{ source: string; stored: number; dead_lettered: number }>(
    clickhouse,
    statements.ledgerShares,
  );
  for (const gauge of [
    metrics.tableParts,
    metrics.tableFullestPartition,
    metrics.tableBytes,
    metrics.tableRows,
    metrics.deadLetterShare,
  ])
    gauge.reset();
  for (const [table, of] of Map.groupBy(sizes.flat(), (size) => size.table)) {
    const sum = (what: 'parts' | 'bytes' | 'rows'): number => of.reduce((all, size) => all + size[what], 0);
    metrics.tableParts.set({ table }, sum('parts'));
    metrics.tableFullestPartition.set({ table }, Math.max(...of.map((size) => size.fullest)));
    metrics.tableBytes.set({ table }, sum('bytes'));
    metrics.tableRows.set({ table }, sum('rows'));
  }
  for (const { source, stored, dead_lettered: dead } of shares)
    metrics.deadLetterShare.set({ source }, stored + dead === 0 ? 0 : dead / (stored + dead));
}
