import type { SettingName } from '../../config/settings.ts';
import type { Logger } from '../../logger.ts';
import type { ClickHouse, ReadResult, Rights } from '../clickhouse.ts';
import { databaseOfAll } from '../database.ts';
import { pinnedSettings } from '../pinned-settings.ts';
import { CLOSE_GRACE_MS, createLimit, READ_QUEUE } from '../pool.ts';
import { createConnection, type Connection } from './connection.ts';
import { onceAnswered, readVersion } from './version.ts';
import { killWrites, write, type Writes } from './writes.ts';
import { identifier, insertInto, statementToRead, statementToRun, writeLongValues } from '../sql.ts';
import { withinTimeLimit } from '../time-limit.ts';

export interface ServerOptions {
  /** `http://user:password@host:8123/database` */
  readonly url: string;
  /** the setting that has the url, for errors; default CLICKHOUSE_URL */
  readonly setting?: SettingName | undefined;
  readonly logger: Logger;
  /**
   * waits for a server that is not up yet, and logs that every 10 s, until `signal` fires; false: StartError at once.
   * Default true.
   */
  readonly wait?: boolean;
  readonly signal?: AbortSignal | undefined;
  /** concurrent statements */
  readonly readers?: number;
  readonly writers?: number;
  /**
   * Without a byte of its answer and without progress on the server for this long, a read ends; it is longer than the
   * longest max_execution_time. A write that the server does not know for twice as long is abandoned, and so is one
   * without progress for ten times as long.
   */
  readonly requestTimeoutMs?: number;
  /** the same server as a user without any right, for reads that are `isolated` */
  readonly sandboxUrl?: string | undefined;
  /** how long a server that cannot be reached is asked to end a write; 0 for a node of a cluster */
  readonly unreachablePatienceMs?: number;
  /** how long its first answer may take */
  readonly firstAnswerMs?: number;
  /** PEM: the authorities of the server's certificate, if the url is https; Node's own list by default */
  readonly authorities?: Buffer | undefined;
}

/**
 * Parameters go into the address, of which a server accepts 1 MiB (http_max_uri_size); longer ones go into the text.
 * Counted in characters, each of which becomes at most nine bytes.
 */
const LONGEST_PARAMETER = 12_000;
/** How long a server that cannot be reached is asked to end a write, milliseconds: it may be starting. */
const UNREACHABLE_PATIENCE_MS = 3_000;

/**
 * A ClickHouse server over HTTP. Every statement waits for its end before the server answers (wait_end_of_query), so
 * the status tells the truth. An exception after a 200 is noticed too, by the tag that the server announces in its
 * header, or because the body breaks off.
 * Resolves when the server has answered. Throws StartError (one line) if waiting cannot help: wrong user, no such
 * database, too old, TLS on one side only.
 */
export async function openServer(options: ServerOptions): Promise<ClickHouse> {
  const { url, logger, readers = 16, writers = 64, requestTimeoutMs = 60_000, sandboxUrl, authorities } = options;
  const { unreachablePatienceMs = UNREACHABLE_PATIENCE_MS } = options;
  const connection = createConnection({ url, logger, readers, writers, requestTimeoutMs, sandboxUrl, authorities });
  const { where } = connection;
  const server = await readVersion(connection, options).catch(async (error: unknown) => {
    await connection.close();
    throw error;
  });
  const reading = createLimit(readers, READ_QUEUE);
  const writing = createLimit(writers);
  const closing = new AbortController();
  const endWrites = new AbortController();
  const writes: Writes = { connection, server, logger, unreachablePatienceMs, ended: endWrites.signal };
  logger.info({ version: server.version, where }, 'clickhouse_server_connected');

  return {
    where,
    writers,
    get version() {
      return server.version;
    },
    async read({ sql, params = {}, settings = {}, format, signal: ofCaller, isolated, fewRows }) {
      const signal = ofCaller === undefined ? closing.signal : AbortSignal.any([ofCaller, closing.signal]);
      const statement = statementToRead(sql, params, isolated);
      const channel = isolated === true ? 'sandbox' : 'read';
      const written = writeLongValues(statement, params, LONGEST_PARAMETER);
      const ask = async (): Promise<ReadResult> => {
        // after a broken connection the server may have another version
        if (connection.lastAnswerAt === 0) await server.learn();
        const pinned = pinnedSettings(fewRows === true ? 'read of few rows' : 'read', server.settings);
        return await connection.request(channel, {
          ...written,
          settings: { ...pinned, cancel_http_readonly_queries_on_client_close: 1, ...settings, readonly: 1 },
          format,
          signal,
        });
      };
      return await reading.use('', () => withinTimeLimit(settings, ask), signal);
    },
    async execute({ sql, params = {}, settings = {} }) {
      const statement = statementToRun(sql, params);
      await writing.use('', () => write(writes, 'write', { sql: statement, params, settings }));
    },
    async insertRows({ table, columns, format = 'RowBinary', pieces, settings = {}, queryIds }) {
      const sql = `${insertInto(table, columns)} FORMAT ${format}`;
      await writing.use('', () => write(writes, 'insert', { sql, settings, pieces }, queryIds));
    },
    killInsert: (queryId) => killWrites(writes, queryId),
    rights: (wanted) => onceAnswered(connection, options, () => rightsOf(connection, wanted)),
    async ping() {
      await connection.ask('SELECT 1');
    },
    async close() {
      closing.abort();
      await reading.close();
      const grace = setTimeout(() => endWrites.abort(), CLOSE_GRACE_MS);
      await writing.close();
      clearTimeout(grace);
      await connection.close();
    },
  };
}

async function rightsOf(connection: Connection, wanted: readonly string[]): Promise<Rights> {
  const rights = wanted.map((right) =>
    right
      .replace('{database}', identifier(connection.database))
      .replace('{all}', identifier(databaseOfAll(connection.database))),
  );
  // past the pools: a read-only statement has no right to write
  const granted = await Promise.all(
    rights.map(async (right) => (await connection.ask(`CHECK GRANT ${right}`)) === '1'),
  );
  const [user = '', readonly] = (
    await connection.ask("SELECT currentUser(), (SELECT value FROM system.settings WHERE name = 'readonly')")
  ).split('\t');
  return { user, isReadOnly: readonly !== '0', missing: rights.filter((_, i) => granted[i] !== true) };
}
