import { randomUUID } from 'node:crypto';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { assertEmpty, databaseOf } from '../../common/clickhouse/database.ts';
import { identifier, quote } from '../../common/clickhouse/sql.ts';
import { StartError } from '../../common/errors.ts';
import { assertNothingUnderWay, assertStoodStill } from './standstill.ts';
import { statements } from './statements.ts';

/** `place`: a path, or a destination in ClickHouse's own words (`Disk('backups', 'monday')`, `S3('https://...', 'key', 'secret')`). */
export interface BackupOptions {
  readonly place: string;
  /** the backup that this one adds to */
  readonly base?: string;
}

export interface BackupResult {
  readonly files: number;
  readonly bytes: number;
  /** unix milliseconds: what was evaluated later is not in it, and comes again from Kafka after a restore; 0 = nothing was ever ingested */
  readonly last_evaluated_at: number;
}

const POLL_MS = 200;
const DESTINATION = /^(?:File|Disk|S3|AzureBlobStorage)\(\s*'(?:[^'\\]|\\.)*'(?:\s*,\s*'(?:[^'\\]|\\.)*')*\s*\)$/;

/** A destination as BACKUP and RESTORE take it. Throws StartError where it is in ClickHouse's words, but not one destination of literals. */
export function destinationOf(place: string, isEmbedded: boolean): string {
  if (!/^[A-Za-z0-9]+\(/.test(place)) return `File(${quote(isEmbedded ? resolve(place) : place)})`;
  if (!DESTINATION.test(place)) throw new StartError(`${JSON.stringify(place)} is no destination; use a path, File('...'), Disk('...', '...'), S3('...', ...) or AzureBlobStorage('...', ...)`);
  return place;
}

/**
 * The whole database into one backup: raw tables, dead letters, ledger, rollups, keys. Ingest has to stand still from its beginning to its end, which is
 * checked: the tables are read one after the other. Throws StartError.
 */
export async function createBackup(clickhouse: ClickHouse, { place, base }: BackupOptions): Promise<BackupResult> {
  const isEmbedded = clickhouse.where === 'embedded';
  const before = await assertNothingUnderWay(clickhouse, 'a backup');
  const settings = base === undefined ? [] : [`base_backup = ${destinationOf(base, isEmbedded)}`];
  const state = await run(clickhouse, `BACKUP DATABASE ${identifier(await databaseOf(clickhouse))} TO ${destinationOf(place, isEmbedded)}`, settings);
  await assertStoodStill(clickhouse, before, `the backup ${place}`);
  return { ...state, last_evaluated_at: before.last_evaluated_at };
}

/** A backup into an empty database. `database`: its name where it was taken, if it is another one. Throws StartError. */
export async function restoreBackup(clickhouse: ClickHouse, { place, database }: { readonly place: string; readonly database?: string }): Promise<BackupResult> {
  await assertEmpty(clickhouse, 'a backup that is restored');
  const name = identifier(await databaseOf(clickhouse));
  const state = await run(clickhouse, `RESTORE DATABASE ${database === undefined ? name : `${identifier(database)} AS ${name}`} FROM ${destinationOf(place, clickhouse.where === 'embedded')}`, []);
  const { last_evaluated_at } = await assertNothingUnderWay(clickhouse, 'what was restored');
  return { ...state, last_evaluated_at };
}

/** In the background of the engine and polled: a connection does not stay silent for as long as a large backup takes. */
async function run(clickhouse: ClickHouse, statement: string, settings: readonly string[]): Promise<{ files: number; bytes: number }> {
  const id = randomUUID();
  await clickhouse.execute({ sql: `${statement} SETTINGS ${[`id = ${quote(id)}`, ...settings].join(', ')} ASYNC` });
  for (;;) {
    const [state] = await select<{ status: string; error: string; files: number; bytes: number }>(clickhouse, statements.backupState, { id });
    if (state === undefined) throw new StartError('the engine no longer knows of it: it was started anew meanwhile; repeat with another place');
    if (state.status === 'BACKUP_CREATED' || state.status === 'RESTORED') return { files: state.files, bytes: state.bytes };
    if (state.error !== '') throw new StartError(`${clickhouse.where} says ${state.status}: ${state.error.split('\n')[0]}`);
    await sleep(POLL_MS);
  }
}
