import { form, type Command } from '../../../common/command/command.ts';
import { reconcile, UNFINISHED, type Reconciliation } from '../operate/reconcile.ts';

const HINT = `
A process that was killed leaves such rows of its last batches and replays. The next start of ingest completes them: start it, then repeat.`;

export const reconcileCommand: Command<Record<string, never>, Reconciliation> = {
  name: 'reconcile',
  about: `Per topic and partition, consumed = stored + dead_lettered + skipped. If that does not hold, the exit code is 1 and the first range is named.`,
  forms: {
    '': form({
      help: 'proves that every offset in the ledger is one row, one dead letter, or skipped, once',
      read: () => ({}),
    }),
  },
  run: ({ clickhouse, settings }) => reconcile(clickhouse, settings.RAW_RETENTION_DAYS),
  print: ({ ok, partitions, faults }) => {
    const hint = faults.some((f) => UNFINISHED.some((u) => f.includes(u))) ? HINT : '';
    // the columns are the keys of a row, in the order of reconcile.sql
    const table = [Object.keys(partitions[0] ?? {}), ...partitions.map((row) => Object.values(row).map(String))];
    const widths = table[0]!.map((_, i) => Math.max(...table.map((row) => row[i]!.length)));
    const lines = table.map((row) =>
      row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '),
    );
    return `${lines.join('\n')}\n\n${ok ? 'every offset is accounted for, once' : `NOT accounted for:\n${faults.map((f) => `  ${f}`).join('\n')}${hint}`}\n`.trimStart();
  },
  exitCode: ({ ok }) => (ok ? 0 : 1),
  json: ({ ok, partitions, faults }) => ({ ok, partitions, ...(ok ? {} : { faults }) }),
};
