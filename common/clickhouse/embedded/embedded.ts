import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ChdbResult } from 'chdb';
import { THREAD_POOL_SIZE } from '../../config/thread-pool.ts';
import { StartError } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { ClickHouse, ReadResult, StatementSettings } from '../clickhouse.ts';
import { inUse, takeFolder } from './folder.ts';
import {
  ask,
  cannotOpen,
  createSessions,
  DATABASE,
  endSessions,
  readerKey,
  setParams,
  type Sessions,
} from './sessions.ts';
import { fromSystem, refusal } from '../errors.ts';
import { createMergeHold } from './merge-hold.ts';
import { createIsolated } from './isolated.ts';
import { fewRowsSettings, insertSettings, knownSettings } from '../pinned-settings.ts';
import { CLOSE_GRACE_MS } from '../pool.ts';
import { insertInto, quote, statementToRead, statementToRun } from '../sql.ts';
import { withinTimeLimit } from '../time-limit.ts';

interface EmbeddedOptions {
  /** the engine's files go into its folder clickhouse, rows in flight into clickhouse/rows */
  readonly dataDir: string;
  readonly logger: Logger;
  /** concurrent statements; fewer reads if the thread pool is too small for them beside the writers */
  readonly readers?: number;
  readonly writers?: number;
  /** true in the process of isolated.ts: isolated reads run in this engine, which has no tables */
  readonly isolatedHere?: boolean;
}

/** How long after a failed open its reason is looked for, milliseconds. */
const HOLDER_MS = 200;
/** threads for KILL QUERY and for file access */
const SPARE_THREADS = 2;

/**
 * Opens the engine in this process: pools of sessions (sessions.ts), readers apart from writers. Creates its folder and
 * database the first time. Throws StartError (one line): not installed, not for this platform, folder in use or not
 * writable.
 */
export async function openEmbedded(options: EmbeddedOptions): Promise<ClickHouse> {
  const { dataDir, logger, writers = 4, isolatedHere = false } = options;
  const { Session, drainPending } = await loadChdb();
  const folder = takeFolder(dataDir);
  const rowsFolder = join(folder, 'rows');
  const readers = readersWithin(options.readers ?? 4, writers, logger);
  const sessions = createSessions({ Session, folder, dataDir, isolated: isolatedHere, logger });
  const { version, known } = await firstAnswer(sessions, rowsFolder).catch(async (error: unknown) => {
    await endSessions(sessions, drainPending);
    // a process that began at the same instant has the lock, and is just writing its number
    await sleep(HOLDER_MS);
    throw inUse(folder, dataDir) ?? (error instanceof StartError ? error : cannotOpen(dataDir, error));
  });
  const reading = sessions.readers(readers);
  const isolatedReads = createIsolated();
  const closing = new AbortController();
  const writes = createWrites(sessions, writers, known);
  const merges = createMergeHold((sql) => ask(sessions.control, sql), logger);
  let rowFiles = 0;
  logger.info({ version, dataDir }, 'clickhouse_embedded_opened');

  return {
    where: 'embedded',
    writers,
    version,

    async read({ sql, params = {}, settings = {}, format, signal, isolated, fewRows }) {
      const statement = statementToRead(sql, params, isolated);
      if (!/^[A-Za-z0-9]+$/.test(format)) throw refusal(62, `Syntax error: ${JSON.stringify(format)} is no format`);
      checkSettings(settings, known);
      const ended = signal === undefined ? closing.signal : AbortSignal.any([signal, closing.signal]);
      if (isolated === true && !isolatedHere)
        return await isolatedReads.read({ sql: statement, params, settings, format, signal: ended });
      const key = readerKey(
        isolated === true ? 'NONE' : 'reader',
        fewRows === true ? { ...knownSettings(fewRowsSettings, known), ...settings } : settings,
      );
      const text = setParams(params) + statement;
      const result = await reading.use(
        key,
        (session) => withinTimeLimit(settings, () => sessions.read(session, text, format, ended)),
        ended,
      );
      return toReadResult(result, format);
    },

    async execute({ sql, params = {}, settings = {} }) {
      await writes.write(() => setParams(params) + statementToRun(sql, params), settings);
    },

    async insertRows({ table, columns, format = 'RowBinary', pieces, settings = {}, queryIds }) {
      const path = join(rowsFolder, `${++rowFiles}`);
      try {
        let bytes = 0;
        const make = async (): Promise<string> => {
          bytes = await writePieces(path, pieces).catch(throwUnsent);
          return `${insertInto(table, columns)} FROM INFILE ${quote(path)} FORMAT ${format}`;
        };
        await writes.write(make, { ...knownSettings(insertSettings, known), ...settings }, queryIds);
        merges.inserted(table, bytes);
      } finally {
        await unlink(path).catch(() => {});
      }
    },

    killInsert: (queryId) => writes.kill(queryId),

    rights: () => Promise.resolve(undefined),

    async ping() {
      await ask(sessions.control, 'SELECT 1');
    },

    async close() {
      closing.abort();
      await Promise.all([reading.close(), isolatedReads.close()]);
      await writes.close();
      await merges.close();
      await endSessions(sessions, drainPending);
      logger.info('clickhouse_embedded_closed');
    },
  };
}

/** Returns how many reads may run at once. */
function readersWithin(wanted: number, writers: number, logger: Logger): number {
  const readers = Math.min(wanted, Math.max(1, THREAD_POOL_SIZE - writers - SPARE_THREADS));
  if (readers < wanted) logger.warn({ readers, wanted, UV_THREADPOOL_SIZE: THREAD_POOL_SIZE }, 'thread_pool_small');
  return readers;
}

/** Creates the database the first time, and removes what a killed process left of its inserts. */
async function firstAnswer(
  { control }: Sessions,
  rowsFolder: string,
): Promise<{ readonly version: string; readonly known: ReadonlySet<string> }> {
  await ask(control, `CREATE DATABASE IF NOT EXISTS ${DATABASE}`);
  const lines = (await ask(control, 'SELECT name FROM system.settings UNION ALL SELECT version()')).split('\n');
  mkdirSync(rowsFolder, { recursive: true });
  // by the names of insertRows: nothing else is removed, wherever DATA_DIR points
  for (const name of readdirSync(rowsFolder)) if (/^\d+$/.test(name)) rmSync(join(rowsFolder, name));
  return { version: lines.find((l) => /^\d+\.\d+/.test(l)) ?? 'unknown', known: new Set(lines) };
}

function createWrites(sessions: Sessions, writers: number, known: ReadonlySet<string>) {
  const writing = sessions.writers(writers);
  /** what runs or waits */
  const current = new Set<{
    readonly queryIds: readonly string[];
    readonly ending: AbortController;
    readonly ended: Promise<void>;
  }>();
  return {
    /** `make` returns the statement; while it works, an insert can be ended already. */
    async write(
      make: () => string | Promise<string>,
      settings: StatementSettings,
      queryIds: readonly string[] = [],
    ): Promise<void> {
      checkSettings(settings, known);
      const ending = new AbortController();
      const run = async (): Promise<void> => {
        const text = await make();
        await writing.use('', (session) => sessions.write(session, text, settings, ending.signal), ending.signal);
      };
      const write = { queryIds, ending, ended: run() };
      current.add(write);
      await write.ended.finally(() => current.delete(write));
    },

    /** Ends the inserts with that id. Resolves when they have ended. */
    async kill(queryId: string): Promise<void> {
      const inserts = [...current].filter(({ queryIds }) => queryIds.includes(queryId));
      for (const { ending } of inserts) ending.abort();
      await Promise.allSettled(inserts.map(({ ended }) => ended));
    },

    /** Lets writes finish for CLOSE_GRACE_MS. */
    async close(): Promise<void> {
      const grace = setTimeout(() => {
        for (const { ending } of current) ending.abort();
      }, CLOSE_GRACE_MS);
      await writing.close();
      clearTimeout(grace);
    },
  };
}

/** The engine ignores unknown settings when a session is opened with them. */
function checkSettings(settings: StatementSettings, known: ReadonlySet<string>): void {
  for (const name of Object.keys(settings)) {
    if (!known.has(name)) throw refusal(115, `Unknown setting ${JSON.stringify(name)}`);
  }
}

const STATISTICS =
  /"statistics":\s*\{\s*"elapsed":[^,]*,\s*"rows_read":\s*(\d+),\s*"bytes_read":\s*(\d+)\s*\}\s*\}\s*$/;

function toReadResult(result: ChdbResult, format: string): ReadResult {
  const bytes = result.bytes();
  const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const hasStatistics = /^JSON(?:Compact)?(?:Strings)?$/.test(format);
  const tail = hasStatistics ? body.toString('latin1', Math.max(0, body.length - 400)) : '';
  const [, readRows, readBytes] = STATISTICS.exec(tail)?.map(Number) ?? [];
  return { body, readRows, readBytes };
}

/** Returns how many bytes were written. */
async function writePieces(path: string, pieces: Iterable<Uint8Array>): Promise<number> {
  let bytes = 0;
  function* counted(): Generator<Uint8Array> {
    for (const piece of pieces) {
      bytes += piece.length;
      yield piece;
    }
  }
  await writeFile(path, counted(), { flag: 'wx', mode: 0o600 });
  return bytes;
}

function throwUnsent(error: unknown): never {
  throw fromSystem(error, true, false);
}

async function loadChdb(): Promise<typeof import('chdb')> {
  // The engine's allocator reads it when it is loaded. Unused memory returns to the system after 1 s, not 5 (130 MB
  // less under full ingest); pieces of 2 MiB and more return at once. On a fast machine a large answer is made in less
  // than 1 s: answers of 118 MB took 1,210 to 1,430 MB resident without it, and 916 to 973 with it.
  process.env['JE_MALLOC_CONF'] ??= 'dirty_decay_ms:1000,oversize_threshold:2097152';
  try {
    return await import('chdb');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    let reason = `the embedded ClickHouse cannot be loaded: ${(error as Error).message.split('\n')[0]}`;
    if (code === 'ERR_MODULE_NOT_FOUND') reason = 'the embedded ClickHouse is not installed (npm install chdb)';
    if (code === 'CHDB_PLATFORM')
      reason = `there is no embedded ClickHouse for ${process.platform}-${process.arch} (Linux with glibc and macOS, x64 and arm64)`;
    throw new StartError(`${reason}; set CLICKHOUSE_URL to use a ClickHouse server instead`, { cause: error });
  }
}
