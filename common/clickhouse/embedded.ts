import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
} from 'node:fs';
import { open as openFile, unlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ChdbResult, Session as ChdbSession } from 'chdb';
import { THREAD_POOL_SIZE } from '../config/thread-pool.ts';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { ClickHouse, Param, ReadResult, StatementSettings } from './clickhouse.ts';
import { fromEngine, fromSystem, refusal, type ClickHouseError } from './errors.ts';
import { createIsolated } from './isolated.ts';
import { formatParam } from './params.ts';
import { fewRowsSettings, insertSettings, knownSettings } from './pinned-settings.ts';
import { cancelled, createPool, type Pool } from './pool.ts';
import { checkIsolated, checkParameters, checkReads, insertInto, oneStatement, quote } from './sql.ts';
import { withinTimeLimit } from './time-limit.ts';

/**
 * ClickHouse in this process, through chdb. How its sessions behave, and what follows (engine 26.7.2.1, each checked on
 * the engine):
 * - A session runs one statement at a time; several sessions on one folder run side by side. Hence pools, with readers
 * apart from writers.
 * - A statement that fails after producing rows leaves them in its session, and the next result there begins with them.
 * So after any error the session is drained until a known answer comes back exactly, or else replaced, before it is
 * used again.
 * - SET and parameters last as long as the session. A reader session is opened with its settings, readonly=1 as the
 * last one, so no text can change them; it serves only reads with the same settings. A writer session resets every
 * setting that it ever had with each statement, to its value or to DEFAULT. Parameters must be given with the statement
 * that names them.
 * - chdb's own binding of parameters runs one statement at a time in the whole process (runExclusiveParam); SET param_x
 * does not.
 * - On abort, chdb settles a call early while the engine continues. Here the call is awaited, and KILL QUERY ends it
 * (2-7 ms if the query checks for it between blocks; max_execution_time is the backstop if the caller sets it). The
 * log_comment identifies the session.
 */
export interface EmbeddedOptions {
  /** the engine's files go into its folder clickhouse, rows in flight into rows */
  readonly dataDir: string;
  readonly logger: Logger;
  /** concurrent statements; as many reads as leave threads of the pool for the writers */
  readonly readers?: number;
  readonly writers?: number;
  /** reads that may wait for a reader; more are refused with 202 */
  readonly readQueue?: number;
  /** true in the process of isolated.ts: isolated reads run in this engine, which has no tables */
  readonly isolatedHere?: boolean;
}

interface Session {
  readonly chdb: ChdbSession;
  /** log_comment of its statements */
  readonly id: string;
  /** settings that a SET of this session has named */
  readonly named: Set<string>;
}

/** of users.xml; NONE has no right at all */
type Role = 'reader' | 'writer' | 'NONE';

const DATABASE = 'sluice';
const CONFIG = fileURLToPath(new URL('engine/config.xml', import.meta.url));
const ISOLATED_CONFIG = fileURLToPath(new URL('engine/isolated-config.xml', import.meta.url));
/**
 * chdb's own defaults turn implicit_select on and map files into memory: a mapped file that shrinks ends the process.
 * max_query_size also applies to the SET of parameters; a server accepts an address of 1 MiB.
 */
const BASE_SETTINGS = {
  implicit_select: 0,
  allow_introspection_functions: 0,
  storage_file_read_method: 'pread',
  max_query_size: 1_048_576,
} as const;
/**
 * Gives answers priority over writes on a busy machine; merges come last too (engine/config.xml). The p99 of cached
 * answers beside full ingest was 149 ms instead of 235. Without CAP_SYS_NICE the engine ignores it.
 */
const WRITE_SETTINGS = { os_threads_nice_value_query: 10, os_threads_nice_value_materialized_view: 10 } as const;
const READ_SETTINGS = { output_format_json_quote_64bit_integers: 0 } as const;
/** How long close() lets writes finish, milliseconds. */
const CLOSE_GRACE_MS = 4_000;
/** threads for KILL QUERY and for file access */
const SPARE_THREADS = 2;

const openFolders = new Set<string>();

/**
 * Opens the engine in this process, and creates its folder and database the first time. Throws StartError (one line):
 * not installed, not for this platform, folder in use or not writable.
 */
export async function openEmbedded({
  dataDir,
  logger,
  readers: wantedReaders = 4,
  writers = 4,
  readQueue = 64,
  isolatedHere = false,
}: EmbeddedOptions): Promise<ClickHouse> {
  const folder = resolve(dataDir, 'clickhouse');
  const rowsFolder = resolve(dataDir, 'rows');
  const Session = await loadChdb();
  makeWritable(folder, dataDir);
  const holder = lockHolder(folder);
  if (holder !== undefined || openFolders.has(folder))
    throw new StartError(
      `the data folder ${dataDir} is in use by ${holder === undefined ? 'this process already' : `process ${holder}`}; stop that first, or set DATA_DIR to another folder`,
    );
  const readers = Math.min(wantedReaders, Math.max(1, THREAD_POOL_SIZE - writers - SPARE_THREADS));
  if (readers < wantedReaders)
    logger.warn({ readers, wanted: wantedReaders, UV_THREADPOOL_SIZE: THREAD_POOL_SIZE }, 'thread_pool_small');

  let sessions = 0;
  const control: Pool<Session> = createPool({
    size: 1,
    queueLimit: Number.POSITIVE_INFINITY,
    idleLimit: 1,
    open: openWriter,
    recover,
    close,
  });
  let version: string;
  let known: Set<string>;
  openFolders.add(folder);
  try {
    const lines = await control.use('', async ({ chdb }) => {
      await chdb.queryAsync(`CREATE DATABASE IF NOT EXISTS ${DATABASE}`);
      return (
        await chdb.queryAsync(`SELECT name FROM system.settings UNION ALL SELECT version()`, { format: 'TabSeparated' })
      )
        .text()
        .trimEnd()
        .split('\n');
    });
    version = lines.find((l) => /^\d+\.\d+/.test(l)) ?? 'unknown';
    known = new Set(lines);
    rmSync(rowsFolder, { recursive: true, force: true });
    mkdirSync(rowsFolder, { recursive: true });
  } catch (error) {
    await control.close();
    openFolders.delete(folder);
    if (error instanceof StartError) throw error;
    throw new StartError(`cannot open the embedded ClickHouse in ${dataDir}: ${(error as Error).message}`, {
      cause: error,
    });
  }

  const reading: Pool<Session> = createPool({
    size: readers,
    queueLimit: readQueue,
    idleLimit: readers * 4,
    open: openReader,
    recover,
    close,
  });
  const writing: Pool<Session> = createPool({
    size: writers,
    queueLimit: Number.POSITIVE_INFINITY,
    idleLimit: writers,
    open: openWriter,
    recover,
    close,
  });
  const isolatedReads = createIsolated({ queueLimit: readQueue });
  const closing = new AbortController();
  const killWrites = new AbortController();
  let rowFiles = 0;
  /** inserts that can be ended by their id */
  const inserting = new Set<{
    readonly queryId: string | undefined;
    readonly ending: AbortController;
    readonly ended: Promise<void>;
  }>();
  logger.info({ version, dataDir }, 'clickhouse_embedded_opened');

  return {
    where: 'embedded',
    writers,
    version,

    async read({ sql, params = {}, settings = {}, format, signal, isolated, fewRows }) {
      const statement = oneStatement(sql);
      checkReads(statement);
      if (isolated === true) checkIsolated(statement);
      checkParameters(statement, params);
      if (!/^[A-Za-z0-9]+$/.test(format)) throw refusal(62, `Syntax error: ${JSON.stringify(format)} is no format`);
      if (isolated === true && !isolatedHere) {
        checkSettings(settings);
        return await isolatedReads.read({
          sql: statement,
          params,
          settings,
          format,
          signal: signal === undefined ? closing.signal : AbortSignal.any([signal, closing.signal]),
        });
      }
      const key = readerKey(
        isolated === true ? 'NONE' : 'reader',
        fewRows === true ? { ...knownSettings(fewRowsSettings, known), ...settings } : settings,
      );
      const text = setParams(params) + statement;
      const ended = signal === undefined ? closing.signal : AbortSignal.any([signal, closing.signal]);
      const run = reading.use(
        key,
        (session) => withinTimeLimit(settings, () => run1(session, text, format, false, ended)),
        ended,
      );
      return toReadResult(await orAborted(run, ended), format);
    },

    async execute({ sql, params = {}, settings = {} }) {
      const statement = oneStatement(sql);
      checkParameters(statement, params);
      await write(statement, params, settings);
    },

    async insertRows({ table, columns, pieces, settings = {}, queryId }) {
      const path = join(rowsFolder, `${++rowFiles}.rowbinary`);
      try {
        await writePieces(path, pieces).catch((error: unknown) => {
          throw fromSystem(error, true, false);
        });
        await write(
          `${insertInto(table, columns)} FROM INFILE ${quote(path)} FORMAT RowBinary`,
          {},
          { ...knownSettings(insertSettings, known), ...settings },
          queryId,
        );
      } finally {
        await unlink(path).catch(() => {});
      }
    },

    async killInsert(queryId) {
      await Promise.all(
        [...inserting]
          .filter((insert) => insert.queryId === queryId)
          .map(async ({ ending, ended }) => {
            ending.abort();
            await ended;
          }),
      );
    },

    rights: () => Promise.resolve(undefined),

    async ping() {
      await control.use('', (session) => run1(session, 'SELECT 1', 'Null', false, killWrites.signal));
    },

    async close() {
      closing.abort();
      await Promise.all([reading.close(), isolatedReads.close()]);
      const grace = setTimeout(() => killWrites.abort(), CLOSE_GRACE_MS);
      await writing.close();
      clearTimeout(grace);
      await control.close();
      openFolders.delete(folder);
      logger.info('clickhouse_embedded_closed');
    },
  };

  async function write(
    statement: string,
    params: Readonly<Record<string, Param>>,
    settings: StatementSettings,
    queryId?: string,
  ): Promise<void> {
    checkSettings(settings);
    const ending = new AbortController();
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const insert = { queryId, ending, ended };
    if (queryId !== undefined) inserting.add(insert);
    const signal = queryId === undefined ? killWrites.signal : AbortSignal.any([killWrites.signal, ending.signal]);
    try {
      await writeNow(statement, params, settings, signal);
    } finally {
      inserting.delete(insert);
      end();
    }
  }

  async function writeNow(
    statement: string,
    params: Readonly<Record<string, Param>>,
    settings: StatementSettings,
    ended: AbortSignal,
  ): Promise<void> {
    await writing.use(
      '',
      async (session) => {
        const all: Record<string, string | number> = { ...BASE_SETTINGS, ...WRITE_SETTINGS, ...settings };
        for (const name of Object.keys(all)) session.named.add(name);
        const set = [...session.named]
          .map((name) => `${name} = ${Object.hasOwn(all, name) ? literal(all[name]!) : 'DEFAULT'}`)
          .join(', ');
        await run1(session, `SET ${set}; ${setParams(params)}${statement}`, 'Null', true, ended);
      },
      ended,
    );
  }

  /** Runs one statement, alone on its session. Settles when the engine has really ended it. */
  async function run1(
    session: Session,
    text: string,
    format: string,
    writes: boolean,
    ended: AbortSignal,
  ): Promise<ChdbResult> {
    let running = true;
    let killed: Promise<void> | undefined;
    const onAbort = (): void => {
      killed = kill(session, () => running);
    };
    if (ended.aborted) throw cancelled();
    ended.addEventListener('abort', onAbort, { once: true });
    try {
      return await session.chdb.queryAsync(text, { format });
    } catch (error) {
      throw toError(error, writes);
    } finally {
      running = false;
      ended.removeEventListener('abort', onAbort);
      await killed;
    }
  }

  /** Retries, because the statement may not have begun yet. */
  async function kill(session: Session, running: () => boolean): Promise<void> {
    for (let wait = 20; running(); wait = Math.min(wait * 2, 1_000)) {
      await control
        .use('', ({ chdb }) =>
          chdb.queryAsync(`KILL QUERY WHERE Settings['log_comment'] = ${quote(session.id)} ASYNC`, { format: 'Null' }),
        )
        .catch((error: unknown) => logger.warn({ err: error }, 'clickhouse_kill_failed'));
      if (running()) await sleep(wait);
    }
  }

  /** Drains what a failed statement left; at the latest, the second answer is exactly the requested one. */
  async function recover(session: Session): Promise<boolean> {
    const token = `drained ${session.id} ${performance.now()}`;
    try {
      for (let attempt = 0; attempt < 2; attempt++) {
        if (
          (await session.chdb.queryAsync(`SELECT ${quote(token)}`, { format: 'TabSeparated' })).text() === `${token}\n`
        )
          return true;
      }
    } catch (error) {
      logger.warn({ err: error }, 'clickhouse_session_replaced');
    }
    return false;
  }

  function close(session: Session): void {
    session.chdb.close();
  }

  async function openSession(role: Role, settings: readonly (readonly [string, string | number])[]): Promise<Session> {
    const id = `sluice-${role}-${++sessions}`;
    let chdb: ChdbSession;
    try {
      chdb = new Session(folder, {
        connectionArgs: [
          `--config-file=${isolatedHere ? ISOLATED_CONFIG : CONFIG}`,
          ...settings.map(([name, value]) => `--${name}=${value}`),
          `--log_comment=${id}`,
        ],
      });
    } catch (error) {
      throw new StartError(`cannot open the embedded ClickHouse in ${dataDir}: ${(error as Error).message}`, {
        cause: error,
      });
    }
    try {
      // the database does not exist yet when the first session opens
      await chdb.queryAsync(`SET ROLE ${role}${sessions === 1 || role === 'NONE' ? '' : `; USE ${DATABASE}`}`);
    } catch (error) {
      chdb.close();
      throw toError(error, false);
    }
    return { chdb, id, named: new Set() };
  }

  function openWriter(): Promise<Session> {
    return openSession('writer', Object.entries(BASE_SETTINGS));
  }

  function openReader(key: string): Promise<Session> {
    const [role, settings] = JSON.parse(key) as [Role, [string, string | number][]];
    return openSession(role, settings);
  }

  /** Returns the role and the full set of settings of a reader session, in canonical form. */
  function readerKey(role: Role, settings: StatementSettings): string {
    checkSettings(settings);
    const all: Record<string, string | number> = { ...BASE_SETTINGS, ...READ_SETTINGS, ...settings, readonly: 1 };
    return JSON.stringify([role, Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1))]);
  }

  /** The engine ignores unknown settings when a session is opened with them. */
  function checkSettings(settings: StatementSettings): void {
    for (const name of Object.keys(settings)) {
      if (!known.has(name)) throw refusal(115, `Unknown setting ${JSON.stringify(name)}`);
    }
  }
}

function toError(error: unknown, writes: boolean): ClickHouseError {
  return (
    (error instanceof Error ? fromEngine(error.message, writes, undefined, error) : undefined) ??
    fromSystem(error, writes, true)
  );
}

/** Resolves as the promise, or rejects with 394 as soon as the signal fires. */
async function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(cancelled());
  signal.addEventListener('abort', onAbort, { once: true });
  promise.catch(() => {});
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function literal(value: string | number): string {
  return typeof value === 'number' ? String(value) : quote(value);
}

function setParams(params: Readonly<Record<string, Param>>): string {
  const entries = Object.entries(params).map(([name, value]) => {
    if (!/^\w+$/.test(name)) throw refusal(456, `${JSON.stringify(name)} is no name of a parameter`);
    return `param_${name} = ${quote(formatParam(value))}`;
  });
  return entries.length === 0 ? '' : `SET ${entries.join(', ')}; `;
}

const STATISTICS =
  /"statistics":\s*\{\s*"elapsed":[^,]*,\s*"rows_read":\s*(\d+),\s*"bytes_read":\s*(\d+)\s*\}\s*\}\s*$/;

function toReadResult(result: ChdbResult, format: string): ReadResult {
  const bytes = result.bytes();
  const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const statistics = /^JSON(?:Compact)?(?:Strings)?$/.test(format)
    ? STATISTICS.exec(body.toString('latin1', Math.max(0, body.length - 400)))
    : null;
  return {
    body,
    readRows: statistics === null ? undefined : Number(statistics[1]),
    readBytes: statistics === null ? undefined : Number(statistics[2]),
  };
}

async function writePieces(path: string, pieces: Iterable<Uint8Array>): Promise<void> {
  const file = await openFile(path, 'wx', 0o600);
  try {
    for (const piece of pieces) {
      for (let at = 0; at < piece.length;) at += (await file.write(piece, at)).bytesWritten;
    }
  } finally {
    await file.close();
  }
}

async function loadChdb(): Promise<typeof ChdbSession> {
  // the engine's allocator reads it when it is loaded: unused memory returns to the system after 1 s, not 5 (130 MB
  // less under full ingest)
  process.env['JE_MALLOC_CONF'] ??= 'dirty_decay_ms:1000';
  try {
    return (await import('chdb')).Session;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const instead = 'set CLICKHOUSE_URL to use a ClickHouse server instead';
    if (code === 'ERR_MODULE_NOT_FOUND')
      throw new StartError(`the embedded ClickHouse is not installed (npm install chdb); ${instead}`, { cause: error });
    if (code === 'CHDB_PLATFORM')
      throw new StartError(
        `there is no embedded ClickHouse for ${process.platform}-${process.arch} (Linux with glibc and macOS, x64 and arm64); ${instead}`,
        { cause: error },
      );
    throw new StartError(
      `the embedded ClickHouse cannot be loaded: ${(error as Error).message.split('\n')[0]}; ${instead}`,
      { cause: error },
    );
  }
}

function makeWritable(folder: string, dataDir: string): void {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new StartError(
      `cannot write to the data folder ${dataDir}: ${(error as Error).message}; set DATA_DIR to a folder of your own`,
      { cause: error },
    );
  }
}

/**
 * Returns the process that has the folder open, as far as known: the engine's status file names the last one, and its
 * open files show whether it still holds the folder. The engine's own lock decides; this only gives the reason in one
 * line, where the engine would print its own.
 */
function lockHolder(folder: string): number | undefined {
  try {
    const status = realpathSync(join(folder, 'status'));
    const pid = Number(/^PID: (\d+)/m.exec(readFileSync(status, 'utf8'))?.[1]);
    const files = `/proc/${pid}/fd`;
    const holds =
      pid !== process.pid &&
      readdirSync(files).some((fd) => {
        try {
          return readlinkSync(join(files, fd)) === status;
        } catch {
          return false;
        }
      });
    return holds ? pid : undefined;
  } catch {
    return undefined;
  }
}
