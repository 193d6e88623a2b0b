import { readFileSync } from 'node:fs';

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');

export const statements = {
  ledgerEnd: read('sql/ledger_end.sql'),
  ledgerMarks: read('sql/ledger_marks.sql'),
  orphanRows: read('sql/orphan_rows.sql'),
  register: read('sql/register.sql'),
  shardOfPartition: read('sql/shard_of_partition.sql'),
  claimedShards: read('sql/claimed_shards.sql'),
  requestRepairs: read('sql/request_repairs.sql'),
  storedChecksums: read('sql/stored_checksums.sql'),
  reconcile: read('sql/reconcile.sql'),
  unaccounted: read('sql/unaccounted.sql'),
  deadLetters: read('sql/dead_letters.sql'),
  deadLetter: read('sql/dead_letter.sql'),
  replayState: read('sql/replay_state.sql'),
  openReplays: read('sql/open_replays.sql'),
  rowsAt: read('sql/rows_at.sql'),
  markReplayed: read('sql/mark_replayed.sql'),
  badShare: read('sql/bad_share.sql'),
  pausedPartitions: read('sql/paused_partitions.sql'),
  pausePartition: read('sql/pause_partition.sql'),
  resumePartition: read('sql/resume_partition.sql'),
  progress: read('sql/progress.sql'),
  backupState: read('sql/backup_state.sql'),
  replicatedTables: read('sql/replicated_tables.sql'),
  tablesToMove: read('sql/tables_to_move.sql'),
  partsToMove: read('sql/parts_to_move.sql'),
  rollupsToMove: read('sql/rollups_to_move.sql'),
  columnsToMove: read('sql/columns_to_move.sql'),
} as const;
