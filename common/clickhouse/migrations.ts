import { createHash, randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { fresh, select, shardsOf, type ClickHouse, type Reader } from './clickhouse.ts';
import { ClickHouseError } from './errors.ts';
import { setFsync } from './fsync.ts';
import { splitStatements } from './sql.ts';

/**
 * Migrates the schema by files clickhouse/migrations/NNNN_<verb>_<object>.sql: numbered from 0001 without gaps, never
 * edited once applied, each with one or more statements. The table `migrations` gets a row when a run starts a file and
 * one when it has finished it. If a statement finds its object already created, it is skipped if another run started
 * the file (and was killed, or is still running), else refused, because something else created it. So a migration may
 * be killed between any two statements, and several processes may run it at once. Statements that insert must be
 * repeatable by themselves.
 */
export interface Migration {
  readonly version: number;
  /** file name */
  readonly name: string;
  /** SHA-256 of the text with LF line ends, hex */
  readonly checksum: string;
  readonly statements: readonly string[];
}

const FOLDER = new URL('../../clickhouse/migrations/', import.meta.url);
const FILE_NAME = /^(\d{4})_[a-z]+_[a-z0-9_]+\.sql$/;
const MADE_ALREADY = new Set(['TABLE_ALREADY_EXISTS', 'DUPLICATE_COLUMN']);

const CREATE_TABLE = `
CREATE TABLE IF NOT EXISTS migrations
(
    version  UInt32,
    name     String,
    checksum String,
    run      UUID,
    state    Enum8('started' = 1, 'applied' = 2),
    at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = MergeTree
ORDER BY (version, at)`;

interface Recorded extends Omit<Migration, 'statements'> {
  readonly applied: 0 | 1;
  readonly runs: readonly string[];
}

/** Reads the folder. Throws StartError if a file has a wrong name or number. */
export function loadMigrations(folder: URL = FOLDER): Migration[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .toSorted()
    .map((name, index) => {
      const version = Number(FILE_NAME.exec(name)?.[1]);
      if (version !== index + 1)
        throw new StartError(
          `migration ${name}: expected NNNN_<verb>_<object>.sql with the number ${String(index + 1).padStart(4, '0')}`,
        );
      const text = readFileSync(new URL(name, folder), 'utf8').replaceAll('\r\n', '\n');
      return {
        version,
        name,
        checksum: createHash('sha256').update(text).digest('hex'),
        statements: splitStatements(text),
      };
    });
}

/**
 * Brings the database to the version of the highest file, and sets whether its tables wait for the disk (`fsync`).
 * Several processes may do so at once. Throws StartError if an applied migration was edited or renamed, if the database
 * is newer than the files, or if an object exists that no run created.
 */
export async function migrate(
  whole: ClickHouse,
  logger: Logger,
  migrations: readonly Migration[] = loadMigrations(),
  fsync = false,
): Promise<{ version: number; applied: number }> {
  // of several shards through any: each statement is for all nodes, and what reads all shards is created here
  const clickhouse = shardsOf(whole)[0]!;
  const run = randomUUID();
  // what was recorded through another replica, which this one may not have fetched yet
  const reader = fresh(clickhouse, ['migrations']);
  const before = await readRecorded(reader).catch(async (error: unknown) => {
    if (!(error instanceof ClickHouseError) || error.codeName !== 'UNKNOWN_TABLE') throw error;
    // an empty replica that joins would get a table which is no replica of the others
    await clickhouse.execute({ sql: CREATE_TABLE });
    return await readRecorded(reader);
  });
  checkRecorded(migrations, before);
  let applied = 0;
  for (const migration of migrations.filter((m) => !isApplied(before, m))) {
    if (isApplied(await readRecorded(reader), migration)) continue;
    await record(clickhouse, migration, run, 'started');
    for (const [index, sql] of migration.statements.entries()) {
      try {
        await clickhouse.execute({ sql });
      } catch (error) {
        if (!(error instanceof ClickHouseError) || !MADE_ALREADY.has(error.codeName)) throw error;
        const recorded = (await readRecorded(reader)).filter((r) => r.version === migration.version);
        if (!recorded.some(({ runs }) => runs.some((other) => other !== run))) {
          await forget(clickhouse, run);
          throw new StartError(
            `migration ${migration.name}: statement ${index + 1} creates what already exists, and no migration created it; use an empty database`,
            { cause: error },
          );
        }
        logger.info({ migration: migration.name, statement: index + 1 }, 'migration_statement_applied_before');
      }
    }
    // before another service uses what the migration created
    if (migration === migrations.at(-1)) await clickhouse.cluster?.distribute?.();
    await setFsync(clickhouse, logger, fsync);
    await record(clickhouse, migration, run, 'applied');
    applied++;
    logger.info({ migration: migration.name }, 'migration_applied');
  }
  if (applied === 0) await setFsync(clickhouse, logger, fsync);
  const version = migrations.at(-1)?.version ?? 0;
  logger.info({ version, applied }, 'schema_ready');
  return { version, applied };
}

/**
 * Waits until another process has brought the database to the version of the highest file, or newer, and logs that it
 * waits. Throws StartError if an applied migration differs from its file; rejects when `signal` fires.
 */
export async function waitForSchema(
  clickhouse: Reader,
  logger: Logger,
  {
    signal,
    migrations = loadMigrations(),
    pollMs = 1_000,
  }: { signal?: AbortSignal; migrations?: readonly Migration[]; pollMs?: number } = {},
): Promise<void> {
  const wanted = migrations.at(-1)?.version ?? 0;
  for (let attempt = 0; ; attempt++) {
    const found = await readRecorded(clickhouse).catch((error: unknown) => {
      if (error instanceof ClickHouseError && (error.kind === 'retry' || error.codeName === 'UNKNOWN_TABLE')) return [];
      throw error;
    });
    const appliedRows = found.filter((r) => r.applied === 1);
    checkRecorded(
      migrations,
      appliedRows.filter((r) => r.version <= wanted),
    );
    const version = Math.max(0, ...appliedRows.map((r) => r.version));
    if (migrations.every((m) => isApplied(found, m))) {
      if (version > wanted) logger.warn({ version, wanted }, 'schema_newer_than_this_build');
      else logger.info({ version }, 'schema_ready');
      return;
    }
    if (attempt % 10 === 0) logger.info({ version, wanted, applied_by: 'rollup service' }, 'waiting_for_schema');
    await sleep(pollMs, undefined, { signal });
  }
}

function isApplied(recorded: readonly Recorded[], migration: Migration): boolean {
  return recorded.some((r) => r.version === migration.version && r.applied === 1);
}

async function readRecorded(clickhouse: Reader): Promise<Recorded[]> {
  return await select<Recorded>(
    clickhouse,
    `SELECT version, name, checksum, max(state = 'applied') AS applied, groupUniqArray(run) AS runs FROM migrations GROUP BY version, name, checksum ORDER BY version`,
  );
}

function checkRecorded(migrations: readonly Migration[], recorded: readonly Recorded[]): void {
  const newest = migrations.at(-1)?.version ?? 0;
  for (const r of recorded) {
    // they are numbered without gaps
    const file = migrations[r.version - 1];
    if (file === undefined)
      throw new StartError(
        `the database has schema version ${r.version} (${r.name}), but this build knows versions up to ${newest}; use the build that migrated it, or a newer one`,
      );
    if (file.name !== r.name || file.checksum !== r.checksum)
      throw new StartError(
        `migration ${file.name} differs from the one applied to the database (${r.name}, SHA-256 ${r.checksum.slice(0, 12)}, file ${file.checksum.slice(0, 12)}); restore the file, and put the change into a new migration`,
      );
  }
}

/** Removes what a refused run has started, so that the next run is refused too. */
async function forget(clickhouse: ClickHouse, run: string): Promise<void> {
  await clickhouse.execute({
    sql: `ALTER TABLE migrations DELETE WHERE run = '${run}' AND state = 'started'`,
    settings: { mutations_sync: 1 },
  });
}

async function record(
  clickhouse: ClickHouse,
  { version, name, checksum }: Migration,
  run: string,
  state: 'started' | 'applied',
): Promise<void> {
  await clickhouse.execute({
    sql: 'INSERT INTO migrations (version, name, checksum, run, state) SELECT {version:UInt32}, {name:String}, {checksum:String}, {run:UUID}, {state:String}',
    params: { version, name, checksum, run, state },
  });
}
