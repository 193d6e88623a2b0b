import { readFileSync } from 'node:fs';
import type { SourceName } from '../../common/sources.ts';

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');

const envelope = read('../../clickhouse/sources/envelope.sql').trimEnd();

/** The mapping of a source: clickhouse/sources/<source>.sql with what all sources share in the place of its include line. */
export function mappingOf(source: SourceName): string {
  const text = read(`../../clickhouse/sources/${source}.sql`);
  const include = /^[ \t]*-- include envelope\.sql$/m;
  if (!include.test(text)) throw new Error(`clickhouse/sources/${source}.sql lacks its line "-- include envelope.sql"`);
  // a function, because the text holds $' which replace() would expand
  return text.replace(include, () => envelope);
}

export const statements = {
  ledgerEnd: read('sql/ledger_end.sql'),
  strays: read('sql/strays.sql'),
  batchesSince: read('sql/batches_since.sql'),
  recordBatch: read('sql/record_batch.sql'),
  reconcile: read('sql/reconcile.sql'),
  unaccounted: read('sql/unaccounted.sql'),
} as const;
