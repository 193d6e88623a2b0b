import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { assertEmpty, databaseOf } from '../../../common/clickhouse/database.ts';
import { identifier, quote } from '../../../common/clickhouse/sql.ts';
import { folderIn, type BackupPlaces } from '../../../common/config/backup-places.ts';
import { StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { assertQuiescent, assertQuiescentSince } from './quiescence.ts';
import { statements } from '../statements.ts';

/**
 * Where backups stand, and who hears what the engine says of them: its words may name hosts, paths and accounts, so
 * callers do not.
 */
interface BackupContext {
  readonly clickhouse: ClickHouse;
  readonly places: BackupPlaces;
  readonly logger: Logger;
}

/** A backup as `place/name`: a place of BACKUP_PLACES, and a folder in it. */
export const BACKUP_NAME = /^([A-Za-z0-9_-]{1,64})\/([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/;

interface BackupOptions {
  readonly place: string;
  /** the backup that this one adds to */
  readonly base?: string;
}

export interface BackupResult {
  readonly files: number;
  readonly bytes: number;
  /**
   * unix milliseconds: what was evaluated later is not in it, and comes again from Kafka after a restore; 0 = nothing
   * was ever ingested
   */
  readonly last_evaluated_at: number;
}

const POLL_MS = 200;

/** A destination as BACKUP and RESTORE take it. Throws StartError where there is no such place. */
export function destinationOf(places: BackupPlaces, backup: string): string {
  const { engine, args } = placeOf(places, backup);
  return `${engine}(${args.map((arg) => quote(arg)).join(', ')})`;
}

function placeOf(places: BackupPlaces, backup: string): ReturnType<typeof folderIn> {
  const [, name = '', folder = ''] = BACKUP_NAME.exec(backup) ?? [];
  if (name === '')
    throw new StartError('a backup is named PLACE/NAME, for instance local/monday, with a place of BACKUP_PLACES');
  const place = Object.hasOwn(places, name) ? places[name] : undefined;
  if (place === undefined) {
    const known = Object.keys(places);
    throw new StartError(
      `there is no place ${name}; ${known.length === 0 ? `set BACKUP_PLACES where the service or the command runs, for instance BACKUP_PLACES=${name}=/var/backups/sluice` : `BACKUP_PLACES has ${known.join(', ')}`}`,
    );
  }
  return folderIn(place, folder);
}

/**
 * The whole database into one backup: raw tables, dead letters, ledger, rollups, keys. Ingest has to stand still from
 * its beginning to its end, which is checked: the tables are read one after the other. Throws StartError.
 */
export async function createBackup(context: BackupContext, { place, base }: BackupOptions): Promise<BackupResult> {
  const { clickhouse, places } = context;
  refuseShards(clickhouse);
  const destination = destinationOf(places, place);
  const settings = base === undefined ? [] : [`base_backup = ${destinationOf(places, base)}`];
  const before = await assertQuiescent(clickhouse, 'a backup');
  makeFolder(clickhouse, places, place);
  const state = await run(
    context,
    place,
    `BACKUP DATABASE ${identifier(await databaseOf(clickhouse))} TO ${destination}`,
    settings,
  );
  await assertQuiescentSince(clickhouse, before, `the backup ${place}`);
  return { ...state, last_evaluated_at: before.last_evaluated_at };
}

/**
 * A backup into an empty database. `database`: its name where it was taken, if it is another one. Throws StartError.
 */
export async function restoreBackup(
  context: BackupContext,
  { place, database }: { readonly place: string; readonly database?: string },
): Promise<BackupResult> {
  const { clickhouse, places } = context;
  refuseShards(clickhouse);
  const destination = destinationOf(places, place);
  await assertEmpty(clickhouse, 'a backup that is restored');
  const name = identifier(await databaseOf(clickhouse));
  const state = await run(
    context,
    place,
    `RESTORE DATABASE ${database === undefined ? name : `${identifier(database)} AS ${name}`} FROM ${destination}`,
    [],
  );
  const { last_evaluated_at } = await assertQuiescent(clickhouse, 'what was restored');
  return { ...state, last_evaluated_at };
}

function refuseShards({ shards, where }: ClickHouse): void {
  if (shards !== undefined)
    throw new StartError(
      `${where} has ${shards.length} shards, which one backup does not hold together: stop ingest, and run BACKUP DATABASE on one node of each (docs/scale.md)`,
    );
}

/**
 * The folder of a place, for its owner only. What the embedded engine writes into it has the modes that the process's
 * umask leaves.
 */
function makeFolder(clickhouse: ClickHouse, places: BackupPlaces, backup: string): void {
  const place = places[backup.split('/')[0]!]!;
  if (clickhouse.where !== 'embedded' || place.engine !== 'File') return;
  try {
    mkdirSync(place.args[0]!, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new StartError(
      `the folder of the place ${backup.split('/')[0]} cannot be made (${(error as NodeJS.ErrnoException).code})`,
      { cause: error },
    );
  }
}

/**
 * In the background of the engine and polled: a connection does not stay silent for as long as a large backup takes.
 */
async function run(
  { clickhouse, logger }: BackupContext,
  backup: string,
  statement: string,
  settings: readonly string[],
): Promise<{ files: number; bytes: number }> {
  const id = randomUUID();
  await clickhouse.execute({ sql: `${statement} SETTINGS ${[`id = ${quote(id)}`, ...settings].join(', ')} ASYNC` });
  for (;;) {
    const [state] = await select<{ status: string; error: string; files: number; bytes: number }>(
      clickhouse,
      statements.backupState,
      { id },
    );
    if (state === undefined)
      throw new StartError('the engine no longer knows of it: it was restarted meanwhile; repeat with another name');
    if (state.status === 'BACKUP_CREATED' || state.status === 'RESTORED')
      return { files: state.files, bytes: state.bytes };
    if (state.error !== '') {
      logger.error({ backup, status: state.status, reason: state.error.split('\n')[0] }, 'backup_failed');
      throw new StartError(
        `${backup}: ${reasonOf(state.error) ?? 'the engine refused'} (${state.status}); the log line backup_failed has the reason`,
      );
    }
    await sleep(POLL_MS);
  }
}

/** ClickHouse's names of its errors, in our words. */
const REASONS: Readonly<Record<string, string>> = {
  BACKUP_ALREADY_EXISTS: 'there is a backup of this name already',
  BACKUP_NOT_FOUND: 'there is no backup of this name',
  ACCESS_DENIED: 'ClickHouse refuses its user this',
  CANNOT_RESTORE_DATABASE: 'the backup does not fit this database',
  CANNOT_RESTORE_TABLE: 'the backup does not fit this database',
  S3_ERROR: 'the place does not answer as it should',
};

/** Undefined for an error that has no words of ours. */
function reasonOf(error: string): string | undefined {
  const named = [...error.slice(0, 10_000).matchAll(/\(([A-Z][A-Z0-9_]+)\)/g)].map(([, name]) => name!);
  return named
    .map((name) => (Object.hasOwn(REASONS, name) ? REASONS[name] : undefined))
    .find((words) => words !== undefined);
}
