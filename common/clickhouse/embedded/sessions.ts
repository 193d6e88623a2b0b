import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { ChdbResult, Session as ChdbSession } from 'chdb';
import { StartError } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import type { Param, StatementSettings } from '../clickhouse.ts';
import { fromEngine, fromSystem, refusal, type ClickHouseError } from '../errors.ts';
import { cancelled, createPool, READ_QUEUE, type Pool } from '../pool.ts';
import { quote } from '../sql.ts';

export type Sessions = ReturnType<typeof createSessions>;

export interface Session {
  readonly chdb: ChdbSession;
  /** log_comment of its statements */
  readonly id: string;
  /** every setting that a SET of this session has named, with its value as text; undefined if that may have failed */
  settings: ReadonlyMap<string, string | undefined>;
}

/** of users.xml; NONE has no right at all */
type Role = 'reader' | 'writer' | 'NONE';

export const DATABASE = 'sluice';
const CONFIG = fileURLToPath(new URL('config.xml', import.meta.url));
const ISOLATED_CONFIG = fileURLToPath(new URL('isolated-config.xml', import.meta.url));
/**
 * Settings of every statement. chdb's own defaults turn implicit_select on and map files into memory: a mapped file
 * that shrinks ends the process. max_query_size also applies to the SET of parameters; a server accepts an address of 1
 * MiB.
 */
const BASE_SETTINGS = {
  session_timezone: 'UTC',
  implicit_select: 0,
  allow_introspection_functions: 0,
  storage_file_read_method: 'pread',
  max_query_size: 1_048_576,
} as const;
/**
 * Gives answers priority over writes on a busy machine; merges come last too (config.xml). The p99 of cached
 * answers beside full ingest was 149 ms instead of 235. Without CAP_SYS_NICE the engine ignores it.
 */
const WRITE_SETTINGS = { os_threads_nice_value_query: 10, os_threads_nice_value_materialized_view: 10 } as const;

interface SessionsOptions {
  readonly Session: typeof ChdbSession;
  readonly folder: string;
  /** for errors */
  readonly dataDir: string;
  /** an engine without tables */
  readonly isolated: boolean;
  readonly logger: Logger;
}

/**
 * Sessions of the embedded engine, through chdb. How they behave, and what follows (engine 26.7.2.1, each checked on
 * the engine):
 * - A session runs one statement at a time; several sessions on one folder run side by side. Hence pools, with readers
 * apart from writers.
 * - A statement that fails after producing rows leaves them in its session, and the next result there begins with them.
 * So after any error the session is drained until a known answer comes back exactly, or else replaced, before it is
 * used again.
 * - SET and parameters last as long as the session. A reader session is opened with its settings, readonly=1 as the
 * last one, so no text can change them; it serves only reads with the same settings. A writer session sets what differs
 * from its last statement: all settings of an insert would take 2 ms of CPU each time. Parameters must be
 * given with the statement that names them.
 * - chdb's own binding of parameters runs one statement at a time in the whole process (runExclusiveParam); SET param_x
 * does not.
 * - On abort, chdb settles a call early while the engine continues. Here the call is awaited, and KILL QUERY ends it
 * (2-7 ms if the query checks for it between blocks; max_execution_time is the backstop if the caller sets it). The
 * log_comment identifies the session.
 * No session is opened before the first statement.
 */
export function createSessions({ Session, folder, dataDir, isolated, logger }: SessionsOptions) {
  let sessions = 0;
  const openWriter = (): Promise<Session> => openSession('writer', Object.entries(BASE_SETTINGS));
  const control = poolOf({ size: 1, idleLimit: 1 }, openWriter);

  return {
    /** for statements that never wait behind reads and writes */
    control,
    // of several settings, each of which needs its own
    readers: (size: number) => poolOf({ size, queueLimit: READ_QUEUE, idleLimit: size * 4 }, openReader),
    writers: (size: number) => poolOf({ size, idleLimit: size }, openWriter),
    /** Runs a statement that changes nothing, alone on a session. Settles when the engine has really ended it. */
    read: (session: Session, text: string, format: string, ended: AbortSignal): Promise<ChdbResult> =>
      run(session, text, format, false, ended),
    /** The same of any other statement, under these settings. */
    async write(session: Session, text: string, settings: StatementSettings, ended: AbortSignal): Promise<void> {
      const wanted = settingsAfter(session, settings);
      const changed = [...wanted].filter(([name, value]) => session.settings.get(name) !== value);
      const set =
        changed.length === 0 ? '' : `SET ${changed.map(([name, value]) => `${name} = ${value}`).join(', ')}; `;
      // known again once the statement has succeeded
      session.settings = new Map([...wanted.keys()].map((name) => [name, undefined]));
      await run(session, set + text, 'Null', true, ended);
      session.settings = wanted;
    },
  };

  function poolOf(
    of: { readonly size: number; readonly idleLimit: number; readonly queueLimit?: number },
    open: (key: string) => Promise<Session>,
  ): Pool<Session> {
    const recovered = (session: Session): Promise<boolean> => recover(session, logger);
    const close = ({ chdb }: Session): void => chdb.close();
    return createPool({ queueLimit: Number.POSITIVE_INFINITY, ...of, open, recover: recovered, close });
  }

  async function run(
    session: Session,
    text: string,
    format: string,
    writes: boolean,
    ended: AbortSignal,
  ): Promise<ChdbResult> {
    let running = true;
    let killed: Promise<void> | undefined;
    const onAbort = (): void => {
      killed = kill(control, session, () => running, logger);
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

  async function openSession(role: Role, settings: readonly (readonly [string, string | number])[]): Promise<Session> {
    const id = `sluice-${role}-${++sessions}`;
    let chdb: ChdbSession;
    try {
      chdb = new Session(folder, {
        connectionArgs: [
          `--config-file=${isolated ? ISOLATED_CONFIG : CONFIG}`,
          ...settings.map(([name, value]) => `--${name}=${value}`),
          `--log_comment=${id}`,
        ],
      });
    } catch (error) {
      throw cannotOpen(dataDir, error);
    }
    try {
      // the database does not exist yet when the first session opens
      await chdb.queryAsync(`SET ROLE ${role}${sessions === 1 || role === 'NONE' ? '' : `; USE ${DATABASE}`}`);
    } catch (error) {
      chdb.close();
      throw toError(error, false);
    }
    return { chdb, id, settings: new Map() };
  }

  function openReader(key: string): Promise<Session> {
    const [role, settings] = JSON.parse(key) as [Role, [string, string | number][]];
    return openSession(role, settings);
  }
}

/**
 * Closes the last session; the engine has ended then. chdb puts off the end of a session while any other works, and in a
 * process that exits meanwhile the engine's exit handlers crash beside its threads (one of 35 ends of ingest).
 */
export async function endSessions({ control }: Sessions, drainPending: () => Promise<void>): Promise<void> {
  await control.close();
  await drainPending();
}

/** Returns the answer of a small statement as text. */
export async function ask(control: Pool<Session>, sql: string): Promise<string> {
  return await control.use('', async ({ chdb }) => {
    try {
      return (await chdb.queryAsync(sql, { format: 'TabSeparated' })).text();
    } catch (error) {
      throw toError(error, false);
    }
  });
}

/** Retries, because the statement may not have begun yet. */
async function kill(control: Pool<Session>, { id }: Session, running: () => boolean, logger: Logger): Promise<void> {
  const sql = `KILL QUERY WHERE Settings['log_comment'] = ${quote(id)} ASYNC`;
  for (let wait = 20; running(); wait = Math.min(wait * 2, 1_000)) {
    await ask(control, sql).catch((error: unknown) => logger.warn({ err: error }, 'clickhouse_kill_failed'));
    if (running()) await sleep(wait);
  }
}

/** Drains what a failed statement left; at the latest, the second answer is exactly the requested one. */
async function recover({ chdb, id }: Session, logger: Logger): Promise<boolean> {
  const token = `drained ${id} ${performance.now()}`;
  try {
    for (let attempt = 0; attempt < 2; attempt++) {
      if ((await chdb.queryAsync(`SELECT ${quote(token)}`, { format: 'TabSeparated' })).text() === `${token}\n`)
        return true;
    }
  } catch (error) {
    logger.warn({ err: error }, 'clickhouse_session_replaced');
  }
  return false;
}

/** Returns the role and the full set of settings of a reader session, in canonical form. */
export function readerKey(role: Role, settings: StatementSettings): string {
  const all: Record<string, string | number> = { ...BASE_SETTINGS, ...settings, readonly: 1 };
  return JSON.stringify([role, Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1))]);
}

function toError(error: unknown, writes: boolean): ClickHouseError {
  return (
    (error instanceof Error ? fromEngine(error.message, writes, undefined, error) : undefined) ??
    fromSystem(error, writes, true)
  );
}

export function cannotOpen(dataDir: string, cause: unknown): StartError {
  return new StartError(`cannot open the embedded ClickHouse in ${dataDir}: ${(cause as Error).message}`, { cause });
}

/** Returns the settings that a statement needs, and DEFAULT for every other one that the session has. */
function settingsAfter(session: Session, settings: StatementSettings): Map<string, string> {
  const all: Record<string, string | number> = { ...BASE_SETTINGS, ...WRITE_SETTINGS, ...settings };
  const values = new Map([...session.settings.keys()].map((name) => [name, 'DEFAULT']));
  for (const [name, value] of Object.entries(all))
    values.set(name, typeof value === 'number' ? String(value) : quote(value));
  return values;
}

export function setParams(params: Readonly<Record<string, Param>>): string {
  const entries = Object.entries(params).map(([name, value]) => {
    if (!/^\w+$/.test(name)) throw refusal(456, `${JSON.stringify(name)} is no name of a parameter`);
    return `param_${name} = ${quote(formatParam(value))}`;
  });
  return entries.length === 0 ? '' : `SET ${entries.join(', ')}; `;
}

/**
 * Returns a parameter's value as the text that ClickHouse parses by the type in its placeholder: TabSeparated rules on
 * the outside, SQL literals within arrays (as @clickhouse/client puts them into param_<name>).
 */
function formatParam(value: Param): string {
  if (value === null) return '\\N';
  if (typeof value === 'object') return `[${value.map((v) => (typeof v === 'string' ? quote(v) : v)).join(',')}]`;
  if (typeof value === 'boolean') return value ? '1' : '0';
  if (typeof value === 'string') return quote(value).slice(1, -1);
  return String(value);
}
