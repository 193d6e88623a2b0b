import { select } from '../../common/clickhouse/clickhouse.ts';
import { statements } from './catalogue.ts';
import type { Context } from './context.ts';

/** Reads the sizes of all tables for the metrics, once for the whole installation. */
export async function updateTableMetrics({ clickhouse, metrics }: Context): Promise<void> {
  const tables = await select<{ table: string; parts: number; fullest: number; bytes: number; rows: number }>(
    clickhouse,
    statements.tableSizes,
  );
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
  for (const { table, parts, fullest, bytes, rows } of tables) {
    metrics.tableParts.set({ table }, parts);
    metrics.tableFullestPartition.set({ table }, fullest);
    metrics.tableBytes.set({ table }, bytes);
    metrics.tableRows.set({ table }, rows);
  }
  for (const { source, stored, dead_lettered: dead } of shares)
    metrics.deadLetterShare.set({ source }, stored + dead === 0 ? 0 : dead / (stored + dead));
}
