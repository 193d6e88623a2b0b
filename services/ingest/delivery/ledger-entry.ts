import { markOf } from './comparison.ts';
import type { Batch, LedgerEntry, RecordMark, Stored } from './ports.ts';

/**
 * Accounts for every offset of a batch. `low`: first offset of Kafka's log. What is missing before it is the gap.
 * `before`: the last record before the batch.
 */
export function ledgerEntry(
  { records, incarnation, first, last, rules }: Batch,
  stored: Stored,
  low: number,
  before: RecordMark | undefined,
): LedgerEntry {
  const nullValues = records.filter((r) => r.value === null).length;
  const rest = last - first + 1 - stored.rows - stored.deadLetters - nullValues;
  const [begin, end] = [records[0], records.at(-1)];
  const gap = Math.min(rest, Math.max(0, Math.min(low, begin?.offset ?? last + 1, last + 1) - first));
  return {
    incarnation,
    first,
    last,
    rules,
    stored,
    nullValues,
    gap,
    noRecords: rest - gap,
    closes: false,
    begin: begin === undefined ? undefined : markOf(begin),
    end: end === undefined ? before : markOf(end),
  };
}
