import { randomUUID } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  everywhere,
  fresh,
  freshly,
  select,
  shardsOf,
  type ClickHouse,
} from '../../../common/clickhouse/clickhouse.ts';
import { SHARED_TABLES } from '../../../common/clickhouse/cluster/cluster.ts';
import { assertEmpty, databaseOf } from '../../../common/clickhouse/database.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { identifier, quote } from '../../../common/clickhouse/sql.ts';
import { folderIn, type BackupPlaces } from '../../../common/config/backup-places.ts';
import { StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { reconcile } from './reconcile.ts';
import { assertQuiescent, assertQuiescentSince } from './quiescence.ts';
import { CLAIMS, LAST } from './shares.ts';
import { statements } from '../store/statements.ts';

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

export interface BackupResult {
  readonly files: number;
  readonly bytes: number;
  /**
   * unix milliseconds: what was evaluated later is not in it, and comes again from Kafka after a restore; 0 = nothing
   * was ever ingested
   */
  readonly last_evaluated_at: number;
}

type Written = Pick<BackupResult, 'files' | 'bytes'>;
type State = Written & { readonly status: string; readonly error: string; readonly free: number };
/** What the engine says of its work. `free`: the fewest bytes that were seen free on the disk meanwhile */
type Finished = Written & Pick<State, 'free'>;

const POLL_MS = 200;
/** How long the engine may be unable to say how a backup is, because a node restarts, milliseconds. */
const UNKNOWN_MS = 600_000;

/** A disk that has less left may have been full. */
const DISK_LEFT_BYTES = 67_108_864;

/**
 * A destination as BACKUP and RESTORE take it. Each of several shards has a folder of its name in the backup. Throws
 * StartError where there is no such place.
 */
export function destinationOf(places: BackupPlaces, backup: string, shard?: string): string {
  const { engine, args } = placeOf(places, backup, shard);
  return `${engine}(${args.map((arg) => quote(arg)).join(', ')})`;
}

function placeOf(places: BackupPlaces, backup: string, shard?: string): ReturnType<typeof folderIn> {
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
  const whole = folderIn(place, folder);
  return shard === undefined ? whole : folderIn(whole, shard);
}

/**
 * Settings of a RESTORE that say where the base of an increment is, and how to open it. The increment itself names the
 * place and the keys that its base had when it was created, which may have changed. `base`: where the base is now;
 * undefined if it stayed where it was. Its own base, if it is an increment too, can be told new keys only.
 */
function baseSettings(places: BackupPlaces, backup: string, base: string | undefined, shard?: string): string[] {
  const own = placeOf(places, backup, shard);
  const its = placeOf(places, base ?? backup, shard);
  const sharesKeys =
    own.engine === 'S3' && its.engine === 'S3' && String(own.args.slice(1)) === String(its.args.slice(1));
  return [
    ...(base === undefined ? [] : [`base_backup = ${destinationOf(places, base, shard)}`]),
    // ClickHouse refuses it where there are no keys
    ...(sharesKeys && own.args.length === 3 ? ['use_same_s3_credentials_for_base_backup = 1'] : []),
  ];
}

/**
 * The whole database into one backup: raw tables, dead letters, ledger, rollups, keys. Each of several shards writes
 * its own tables, and the first one also those that all share. Ingest has to stand still from its beginning to its end,
 * which is checked: the tables are read one after the other. `base`: the backup that this one adds to. Throws
 * StartError.
 */
export async function createBackup(
  context: BackupContext,
  { place, base }: { readonly place: string; readonly base?: string },
): Promise<BackupResult> {
  const { clickhouse, places } = context;
  for (const name of base === undefined ? [place] : [place, base]) placeOf(places, name);
  const before = await assertQuiescent(clickhouse, 'a backup');
  const [first] = shardsOf(clickhouse);
  const written = await onShards(clickhouse, shardsOf(clickhouse), async (shard, name) => {
    const tables = `DATABASE ${identifier(await databaseOf(shard))}${except(shard === first ? [] : [...SHARED_TABLES])}`;
    const settings = base === undefined ? [] : [`base_backup = ${destinationOf(places, base, name)}`];
    const sql = `BACKUP ${tables} TO ${destinationOf(places, place, name)}`;
    const finished = await run({ ...context, clickhouse: shard }, place, sql, settings);
    await assertWhole(shard, place, placeOf(places, place, name), finished);
    return finished;
  });
  await assertQuiescentSince(clickhouse, before, `the backup ${place}`);
  return { ...sum(written), last_evaluated_at: before.last_evaluated_at };
}

/**
 * Throws StartError if the disk was full: the engine then cuts files short, and says that the backup is created. What
 * the embedded engine wrote is counted here. A server's disk is seen through its free space alone. A server's folder
 * (File) is not checked. Object stores refuse what they do not store.
 */
async function assertWhole(
  { where }: ClickHouse,
  backup: string,
  { engine, args }: ReturnType<typeof folderIn>,
  { bytes, free }: Finished,
): Promise<void> {
  const refused = (reason: string): StartError =>
    new StartError(`the backup ${backup} is unusable: ${reason}. Delete it, free space and repeat.`);
  if (engine === 'File' && where === 'embedded') {
    const found = await bytesIn(args[0]!);
    if (found !== bytes) throw refused(`its folder has ${found} of ${bytes} bytes, as on a full disk`);
  }
  if (engine === 'Disk' && free < DISK_LEFT_BYTES)
    throw refused(`its disk had ${free} bytes left, and ClickHouse does not notice when it cuts files short`);
}

async function bytesIn(folder: string): Promise<number> {
  const whole = await stat(folder);
  // an archive: monday.tar.gz
  if (whole.isFile()) return whole.size;
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

/**
 * A backup into an empty database. `database`: its name where it was taken, if it is another one. `base`: where the
 * base of an increment is now, if it is elsewhere than when the increment was created. Ends with the account
 * of the ledger, because the files of a backup whose creation was refused are there too. Throws StartError.
 */
export async function restoreBackup(
  context: BackupContext,
  { place, database, base }: { readonly place: string; readonly database?: string; readonly base?: string },
  retentionDays: number,
): Promise<BackupResult> {
  const { clickhouse, places } = context;
  for (const name of base === undefined ? [place] : [place, base]) placeOf(places, name);
  await assertEmpty(everywhere(clickhouse), 'a backup that is restored');
  const shards = shardsOf(clickhouse);
  const name = await databaseOf(shards[0]!);
  const [from, to] = [identifier(database ?? name), identifier(name)];
  const restore = (some: typeof shards, tables: string): Promise<Written[]> =>
    onShards(clickhouse, some, (shard, folder) =>
      run(
        { ...context, clickhouse: shard },
        place,
        `RESTORE ${tables} FROM ${destinationOf(places, place, folder)}`,
        baseSettings(places, place, base, folder),
      ),
    );
  const table = (of: string): string => `TABLE ${from}.${identifier(of)} AS ${to}.${identifier(of)}`;
  const others = `DATABASE ${from} AS ${to}${except([CLAIMS, LAST])}`;

  // every node gets the tables at once: the next statement may go to any, and the shards fill the same tables
  const restoreShared = async (tables: string): Promise<Written[]> => {
    const written = await restore(shards.slice(0, 1), tables);
    await clickhouse.cluster?.complete();
    return written;
  };

  await restoreShared(table(CLAIMS));
  await assertShardsOf(clickhouse, place);
  const restored = [...(await restoreShared(others)), ...(await restore(shards.slice(1), others))];
  await restoreShared(table(LAST));
  await clickhouse.cluster?.distribute?.();
  const { ok, faults } = await reconcile(clickhouse, retentionDays, 0);
  if (!ok)
    throw new StartError(
      `${place} is restored, but its account does not hold: ${faults[0]}; if its creation was refused, empty the database and restore another backup; if the fault is older than the backup, start the services and run npm run reconcile`,
    );
  const { last_evaluated_at } = await assertQuiescent(clickhouse, 'what was restored');
  return { ...sum(restored), last_evaluated_at };
}

/** Throws StartError if a partition is on none of these shards: nobody would restore its rows. */
async function assertShardsOf({ shards }: ClickHouse, place: string): Promise<void> {
  if (shards === undefined) return;
  const names = shards.map(({ shard }) => shard);
  const claimed = await select<{ shard: string }>(fresh(shards[0]!, [CLAIMS]), statements.claimedShards);
  const absent = claimed.filter(({ shard }) => !names.includes(shard));
  if (absent.length > 0)
    throw new StartError(
      `${place} has partitions on the shard ${absent.map(({ shard }) => shard).join(', ')}, but this cluster has ${names.join(', ')}: restore it into a cluster whose shards have the same names`,
    );
}

/**
 * Waits for all of these shards. `folder`: the name of a shard's part of a backup; undefined without several shards.
 * Throws the error of the first shard that failed, with its name.
 */
async function onShards<T>(
  { shards }: ClickHouse,
  some: readonly ClickHouse[],
  work: (shard: ClickHouse, folder: string | undefined) => Promise<T>,
): Promise<T[]> {
  const outcomes = await Promise.allSettled(some.map((shard) => work(shard, shards && shard.shard)));
  return outcomes.map((outcome, at) => {
    if (outcome.status === 'fulfilled') return outcome.value;
    const cause: unknown = outcome.reason;
    if (shards === undefined || !(cause instanceof StartError || cause instanceof ClickHouseError)) throw cause;
    const reason = cause instanceof StartError ? cause.message : cause.codeName;
    throw new StartError(`the shard ${some[at]!.shard}: ${reason}`, { cause });
  });
}

function except(tables: readonly string[]): string {
  return tables.length === 0 ? '' : ` EXCEPT TABLES ${tables.map(identifier).join(', ')}`;
}

function sum(written: readonly Written[]): Written {
  return {
    files: written.reduce((all, { files }) => all + files, 0),
    bytes: written.reduce((all, { bytes }) => all + bytes, 0),
  };
}

/**
 * In the background of the engine and polled: a connection does not stay silent for as long as a large backup takes.
 */
async function run(
  { clickhouse, logger, places }: BackupContext,
  backup: string,
  statement: string,
  settings: readonly string[],
): Promise<Finished> {
  const { engine, args } = placeOf(places, backup);
  const disk = engine === 'Disk' ? args[0]! : 'default';
  let free = Number.POSITIVE_INFINITY;
  const id = randomUUID();
  // a node writes the rows that it has itself
  const tables = await select<{ name: string }>(clickhouse, statements.replicatedTables);
  await clickhouse.execute({
    sql: `${statement} SETTINGS ${[`id = ${quote(id)}`, ...settings].join(', ')} ASYNC`,
    ...freshly(tables.map(({ name }) => name)),
  });
  for (let answeredAt = performance.now(); ; await sleep(POLL_MS)) {
    let state: State | undefined;
    try {
      // another node may have taken the place of the one that was asked first
      [state] = await select<State>(everywhere(clickhouse), statements.backupState, { id, disk });
    } catch (error) {
      // the engine goes on with it
      const mayAnswer = error instanceof ClickHouseError && error.kind === 'retry';
      if (!mayAnswer || performance.now() - answeredAt > UNKNOWN_MS) throw error;
      continue;
    }
    answeredAt = performance.now();
    if (state === undefined)
      throw new StartError('ClickHouse restarted and lost track of the operation. Repeat a backup under another name.');
    free = Math.min(free, state.free);
    if (state.status === 'BACKUP_CREATED' || state.status === 'RESTORED')
      return { files: state.files, bytes: state.bytes, free };
    if (state.error !== '') {
      logger.error(
        { backup, shard: clickhouse.shard, status: state.status, reason: state.error.split('\n')[0] },
        'backup_failed',
      );
      throw new StartError(
        `${backup}: ${reasonOf(state.error) ?? 'the engine refused'} (${state.status}); the log line backup_failed has the reason`,
      );
    }
  }
}

/** ClickHouse's names of its errors, in our words. */
const REASONS: ReadonlyMap<string, string> = new Map([
  ['BACKUP_ALREADY_EXISTS', 'there is a backup of this name already'],
  [
    'BACKUP_NOT_FOUND',
    'there is no backup of this name, or its base is not where it was when the increment was created (--base)',
  ],
  ['BAD_ARGUMENTS', 'ClickHouse refuses the arguments; of an increment, name a base in another place by --base'],
  ['WRONG_BASE_BACKUP', 'the increment was created on another base'],
  ['ACCESS_DENIED', 'ClickHouse denies its user this operation'],
  ['CANNOT_RESTORE_DATABASE', 'the backup does not fit this database'],
  ['CANNOT_RESTORE_TABLE', 'the backup does not fit this database'],
  ['S3_ERROR', 'the backup place returned an unexpected response, or the base is in another place (--base)'],
]);

/** Undefined for an error that has no words of ours. */
function reasonOf(error: string): string | undefined {
  const named = [...error.slice(0, 10_000).matchAll(/\(([A-Z][A-Z0-9_]+)\)/g)];
  return named.map(([, name]) => REASONS.get(name!)).find((words) => words !== undefined);
}
