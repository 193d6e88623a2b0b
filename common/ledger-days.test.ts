import { expect, test } from 'vitest';
import { loadMigrations } from './clickhouse/migrations.ts';
import { LEDGER_DAYS } from './ledger-days.ts';

test.each(['batches', 'dead_letters', 'dead_letter_replays'])('%s has a TTL of that many days', (table) => {
  const sql = loadMigrations()
    .flatMap((m) => m.statements)
    .find((statement) => statement.includes(`CREATE TABLE ${table}\n`));
  expect(/^TTL .* INTERVAL (\d+) DAY$/m.exec(sql!)?.[1]).toBe(String(LEDGER_DAYS));
});
