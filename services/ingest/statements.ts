import { readFileSync } from 'node:fs';
import type { SourceName } from '../../common/sources.ts';
import type { Reason } from './record.ts';

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');

const SOURCES = '../../clickhouse/sources/';
const INCLUDE = /^[ \t]*-- include (\w+)$/gm;

/** The two ways to read a message: envelope/usual.sql and envelope/exact.sql say what they are. */
export type Way = 'usual' | 'exact';

/**
 * The mapping of a source: clickhouse/sources/<source>.sql with what all sources share in the place of its include lines, without comments:
 * the engine reads this text for every batch.
 */
export function mappingOf(source: SourceName, way: Way): string {
  const whole = read(`${SOURCES}${source}.sql`).replace(INCLUDE, (_line, name: string) => read(`${SOURCES}envelope/${name === 'reading' ? way : name}.sql`));
  return whole.replace(/^\s*--.*\n/gm, '').replace(/^\s+/gm, '');
}

/** What the mapping SQL itself finds wrong with a message. */
const JUDGED = ['malformed_json', 'missing_project', 'bad_timestamp', 'timestamp_out_of_range'] as const satisfies readonly Reason[];

/** The same mapping by the exact way, writing nothing: throws what the insert would throw. */
export function dryRunOf(source: SourceName): string {
  return mappingOf(source, 'exact').replace(/^INSERT INTO \w+_landing$/m, () => "INSERT INTO FUNCTION null('auto')");
}

/** The same mapping, writing nothing: throws `verdict <reason>` where a message of the frames is not a row; see verdictIn. */
export function judgementOf(source: SourceName): string {
  const throws = JUDGED.map((reason) => `throwIf(reason = '${reason}', 'verdict ${reason}')`).join(' + ');
  const select = mappingOf(source, 'exact').replace(/^INSERT INTO \w+_landing$/m, '');
  return `INSERT INTO FUNCTION null('verdict UInt8') SELECT ${throws} AS verdict FROM (${select})`;
}

/** The verdict that a judgement has thrown, by the engine's words; undefined where it threw something else. */
export function verdictIn(message: string): Reason | undefined {
  return JUDGED.find((reason) => message.includes(`verdict ${reason}`));
}

export const statements = {
  ledgerEnd: read('sql/ledger_end.sql'),
  strays: read('sql/strays.sql'),
  batchesSince: read('sql/batches_since.sql'),
  recordBatch: read('sql/record_batch.sql'),
  reconcile: read('sql/reconcile.sql'),
  unaccounted: read('sql/unaccounted.sql'),
  deadLetters: read('sql/dead_letters.sql'),
  deadLetter: read('sql/dead_letter.sql'),
  rowsAt: read('sql/rows_at.sql'),
  markReplayed: read('sql/mark_replayed.sql'),
  badShare: read('sql/bad_share.sql'),
  pausedPartitions: read('sql/paused_partitions.sql'),
  pausePartition: read('sql/pause_partition.sql'),
  resumePartition: read('sql/resume_partition.sql'),
  ledgerSize: read('sql/ledger_size.sql'),
  backupState: read('sql/backup_state.sql'),
  tablesToMove: read('sql/tables_to_move.sql'),
  partsToMove: read('sql/parts_to_move.sql'),
  columnsToMove: read('sql/columns_to_move.sql'),
} as const;
