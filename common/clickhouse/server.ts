import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, ClickHouseLogLevel, type ClickHouseClient, type ClickHouseSettings } from '@clickhouse/client';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { isCertificateError, speaksTls } from '../tls.ts';
import type { ClickHouse, Param, StatementSettings } from './clickhouse.ts';
import { databaseOfAll } from './database.ts';
import { ClickHouseError, fromEngine, fromSystem, refusal } from './errors.ts';
import { pinnedSettings } from './pinned-settings.ts';
import { cancelled, createPool } from './pool.ts';
import {
  checkIsolated,
  checkParameters,
  checkReads,
  identifier,
  insertInto,
  oneStatement,
  quote,
  writeLongValues,
} from './sql.ts';
import { withinTimeLimit } from './time-limit.ts';

/**
 * A ClickHouse server over HTTP. Every statement waits for its end before the server answers (wait_end_of_query), so
 * the status tells the truth. An exception after a 200 is noticed too, by the tag that the server announces in its
 * header, or because the body breaks off. A write takes as long as the server works on it: the server is asked whether
 * it still does, and about its progress. An abandoned write (no answer and no progress, a broken connection, our own
 * shutdown) is killed by its query_id and awaited, so nothing it does comes after its error.
 */
export interface ServerOptions {
  /** `http://user:password@host:8123/database` */
  readonly url: string;
  readonly logger: Logger;
  /**
   * waits for a server that is not up yet, and logs that every 10 s, until `signal` fires; false: StartError at once.
   * Default true.
   */
  readonly wait?: boolean;
  readonly signal?: AbortSignal;
  /** concurrent statements */
  readonly readers?: number;
  readonly writers?: number;
  /** reads that may wait for a reader; more are refused with 202 */
  readonly readQueue?: number;
  /**
   * Without a byte in either direction for this long, a read ends; it is longer than the longest max_execution_time.
   * The server is asked about a write as often as this. A write that it does not know is abandoned, and so is one
   * without progress for ten times as long.
   */
  readonly requestTimeoutMs?: number;
  /** the same server as a user without any right, for reads that are `isolated` */
  readonly sandboxUrl?: string;
  /** how long a server that cannot be reached is asked to end a write; by default it may be starting */
  readonly unreachablePatienceMs?: number;
  /** PEM: the authorities of the server's certificate, if the url is https; Node's own list by default */
  readonly authorities?: Buffer;
}

const OLDEST_VERSION = [25, 8] as const;
/** Settings of the transport: the answer is complete before its first byte, so its status tells the truth. */
const COMMON_SETTINGS = {
  wait_end_of_query: 1,
  send_progress_in_http_headers: 0,
  http_write_exception_in_output_format: 0,
  http_response_headers: '{}',
} as const;
const READ_SETTINGS = { cancel_http_readonly_queries_on_client_close: 1, readonly: 1 } as const;
/** Settings of our own questions to the server, which no profile can disturb. */
const CONTROL_SETTINGS = {
  max_execution_time: 0,
  use_query_cache: 0,
  additional_result_filter: '',
  // a count of nothing is 0
  empty_result_for_aggregation_by_empty_set: 0,
  limit: 0,
  offset: 0,
  max_result_rows: 0,
  max_rows_to_read: 0,
  read_overflow_mode: 'throw',
  result_overflow_mode: 'throw',
  timeout_overflow_mode: 'throw',
  extremes: 0,
  output_format_tsv_crlf_end_of_line: 0,
} as const;
const PING_TIMEOUT_MS = 5_000;
/**
 * Parameters go into the address, of which a server accepts 1 MiB (http_max_uri_size); longer ones go into the text.
 * Counted in characters, each of which becomes at most nine bytes.
 */
const LONGEST_PARAMETER = 12_000;
const CONNECT_RETRY_MS = 1_000;
/** How long close() lets writes finish, milliseconds. */
const CLOSE_GRACE_MS = 4_000;
/** After this long without an answer, the server may have another version, milliseconds: no replacement takes less. */
const QUIET_MS = 250;
/** A write is abandoned after this many questions that found no progress. */
const STALLED_TIMES = 10;
/** How long a killed write may take to end, milliseconds. */
const KILL_PATIENCE_MS = 30_000;
/** How long a server that cannot be reached is asked to end a write, milliseconds: it may be starting. */
const UNREACHABLE_PATIENCE_MS = 3_000;
/** How long an answer may still be in transit after the server no longer knows the write, milliseconds. */
const ANSWER_GRACE_MS = 1_000;
/** The client's `request_timeout` for writes, which have no such limit: the longest value of a timer. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** What grows as long as a write makes progress. */
const PROGRESS =
  "SELECT toString((read_rows, read_bytes, written_rows, written_bytes, ProfileEvents['OSCPUVirtualTimeMicroseconds'], ProfileEvents['WriteBufferFromFileDescriptorWriteBytes'])) FROM system.processes WHERE query_id = ";

interface Answer {
  readonly body: Buffer;
  readonly summary: { readonly read_rows?: string; readonly read_bytes?: string } | undefined;
}

interface Request {
  readonly sql: string;
  readonly params?: Readonly<Record<string, Param>>;
  readonly settings?: StatementSettings;
  readonly format?: string;
  readonly pieces?: Iterable<Uint8Array>;
  readonly writes: boolean;
  readonly signal?: AbortSignal;
  /** default: a unique one */
  readonly queryId?: string;
}

/**
 * Resolves when the server has answered. Throws StartError (one line) if waiting cannot help: wrong user, no such
 * database, too old, TLS on one side only.
 */
export async function openServer({
  url,
  logger,
  wait = true,
  signal,
  readers = 16,
  writers = 64,
  readQueue = 64,
  requestTimeoutMs = 60_000,
  sandboxUrl,
  unreachablePatienceMs = UNREACHABLE_PATIENCE_MS,
  authorities,
}: ServerOptions): Promise<ClickHouse> {
  const address = new URL(url);
  const database = decodeURIComponent(address.pathname.slice(1)) || 'default';
  const where = `${address.protocol}//${address.host}/${database}`;
  const connect = (sockets: number, at: URL = address, timeoutMs = requestTimeoutMs): ClickHouseClient =>
    createClient({
      url: `${at.protocol}//${at.host}`,
      username: decodeURIComponent(at.username) || 'default',
      password: decodeURIComponent(at.password),
      database: at === address ? database : 'default',
      application: 'sluice',
      ...(authorities !== undefined && at.protocol === 'https:' && { tls: { ca_cert: authorities } }),
      max_open_connections: sockets,
      request_timeout: timeoutMs,
      compression: { request: false, response: false },
      // 0: Node's agent follows the server's own keep-alive time. The client's timer for idle sockets survives a
      // request that is aborted before it has its socket, and then ends the next one on that socket, 2.5 s later
      // (client 1.23.1; seen as ECONNRESET of reads beside aborted ones)
      keep_alive: { enabled: true, idle_socket_ttl: 0 },
      log: { level: ClickHouseLogLevel.OFF },
    });
  // readers and writers share no sockets; control is for statements that must get through when both are stuck
  const clients = {
    read: connect(readers),
    write: connect(writers, address, NO_TIMEOUT_MS),
    control: connect(4),
    ...(sandboxUrl !== undefined && { sandbox: connect(readers, new URL(sandboxUrl)) }),
  };
  const closeClients = async (): Promise<void> => {
    await Promise.all(Object.values(clients).map((c) => c.close()));
  };

  let version: string;
  /** names of the server's settings */
  let known: ReadonlySet<string>;
  /**
   * when the server last answered anything; 0 after a broken connection, because the server may then have another
   * version
   */
  let lastAnswerAt = 0;
  let learning: Promise<void> | undefined;
  try {
    version = await firstAnswer();
    known = await namesOfSettings();
  } catch (error) {
    await closeClients();
    throw error;
  }
  const found = version.split('.').map(Number);
  if (found[0]! < OLDEST_VERSION[0] || (found[0] === OLDEST_VERSION[0] && found[1]! < OLDEST_VERSION[1])) {
    await closeClients();
    throw new StartError(
      `ClickHouse at ${where} is version ${version}; ${OLDEST_VERSION.join('.')} or newer is needed`,
    );
  }

  const none = {
    idleLimit: 0,
    open: () => Promise.resolve(undefined),
    recover: () => Promise.resolve(false),
    close: () => {},
  };
  const reading = createPool<undefined>({ size: readers, queueLimit: readQueue, ...none });
  const writing = createPool<undefined>({ size: writers, queueLimit: Number.POSITIVE_INFINITY, ...none });
  const closing = new AbortController();
  const endWrites = new AbortController();
  logger.info({ version, where }, 'clickhouse_server_connected');

  return {
    where,
    writers,
    get version() {
      return version;
    },

    async read({ sql, params = {}, settings = {}, format, signal: readSignal, isolated, fewRows }) {
      const statement = oneStatement(sql);
      checkReads(statement);
      if (isolated === true) checkIsolated(statement);
      checkParameters(statement, params);
      const client = isolated === true ? clients.sandbox : clients.read;
      if (client === undefined)
        throw refusal(497, 'CLICKHOUSE_SANDBOX_URL is not set, so callers cannot send statements');
      const ended = readSignal === undefined ? closing.signal : AbortSignal.any([readSignal, closing.signal]);
      const written = writeLongValues(statement, params, LONGEST_PARAMETER);
      const answer = await reading.use(
        '',
        () =>
          withinTimeLimit(settings, async () => {
            if (lastAnswerAt === 0) await learn();
            return await request(client, {
              ...written,
              settings: {
                ...pinnedSettings(fewRows === true ? 'read of few rows' : 'read', known),
                ...READ_SETTINGS,
                ...settings,
                readonly: 1,
              },
              format,
              writes: false,
              signal: ended,
            });
          }),
        ended,
      );
      return {
        body: answer.body,
        readRows: numberOf(answer.summary?.read_rows),
        readBytes: numberOf(answer.summary?.read_bytes),
      };
    },

    async execute({ sql, params = {}, settings = {} }) {
      const statement = oneStatement(sql);
      checkParameters(statement, params);
      await writing.use('', () => write('write', { sql: statement, params, settings }));
    },

    async insertRows({ table, columns, pieces, settings = {}, queryId }) {
      await writing.use('', () =>
        write('insert', { sql: `${insertInto(table, columns)} FORMAT RowBinary`, settings, pieces }, queryId),
      );
    },

    async killInsert(queryId) {
      await killAndWait(`startsWith(query_id, ${quote(attemptsOf(queryId))})`, KILL_PATIENCE_MS);
    },

    async rights(wanted) {
      const rights = wanted.map((right) =>
        right.replace('{database}', identifier(database)).replace('{all}', identifier(databaseOfAll(database))),
      );
      // past the pools: a read-only statement has no right to write
      const granted = await Promise.all(rights.map(async (right) => (await ask(`CHECK GRANT ${right}`)) === '1'));
      const [user = '', readonly] = (
        await ask("SELECT currentUser(), (SELECT value FROM system.settings WHERE name = 'readonly')")
      ).split('\t');
      return {
        user,
        isReadOnly: readonly !== '0',
        missing: rights.filter((_, i) => granted[i] !== true),
      };
    },

    async ping() {
      await ask('SELECT 1');
    },

    async close() {
      closing.abort();
      await reading.close();
      const grace = setTimeout(() => endWrites.abort(), CLOSE_GRACE_MS);
      await writing.close();
      clearTimeout(grace);
      await closeClients();
    },
  };

  async function firstAnswer(): Promise<string> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await ask('SELECT version()', null);
      } catch (error) {
        if (!(error instanceof ClickHouseError)) throw error;
        if (error.kind !== 'retry') throw new StartError(startMessage(error), { cause: error });
        if (
          attempt === 0 &&
          address.protocol === 'http:' &&
          error.codeName === 'ECONNRESET' &&
          (await speaksTls({ host: address.hostname, port: Number(address.port || 80) }))
        ) {
          throw new StartError(`ClickHouse at ${where} speaks TLS on this port; use https:// in CLICKHOUSE_URL`, {
            cause: error,
          });
        }
        if (!wait) throw new StartError(`ClickHouse at ${where} does not answer: ${error.codeName}`, { cause: error });
        if (attempt % 10 === 0) logger.warn({ where, reason: error.codeName }, 'waiting_for_clickhouse');
        await sleep(CONNECT_RETRY_MS, undefined, signal === undefined ? {} : { signal });
      }
    }
  }

  function startMessage(error: ClickHouseError): string {
    if (isCertificateError(error.codeName))
      return `ClickHouse at ${where} has an untrusted certificate (${error.codeName}); set CLICKHOUSE_SSL_CA to the file of its authority`;
    if (error.codeName === 'EPROTO' || error.codeName.startsWith('ERR_SSL_'))
      return `ClickHouse at ${where} does not speak TLS on this port (${error.codeName}); use http:// in CLICKHOUSE_URL`;
    if (error.code === undefined)
      return `${where} does not answer like ClickHouse's HTTP interface (${error.codeName}); check CLICKHOUSE_URL`;
    if ([192, 193, 194, 516].includes(error.code))
      return `ClickHouse at ${where} refuses the user ${decodeURIComponent(address.username) || 'default'} or its password; check CLICKHOUSE_URL`;
    if (error.code === 164)
      return `ClickHouse at ${where}: the profile of the user ${decodeURIComponent(address.username) || 'default'} sets readonly, so statements cannot set the settings that they depend on; set readonly to 0 for this user`;
    if (error.code === 452)
      return `ClickHouse at ${where} refuses a setting that sluice depends on: ${error.message.split('\n', 1)[0]}; remove its constraint from the profile of the user ${decodeURIComponent(address.username) || 'default'}`;
    if (error.code === 81)
      return `ClickHouse at ${where} has no database ${database}; create it: CREATE DATABASE ${database}`;
    return `ClickHouse at ${where} refuses the first query: ${error.codeName}`;
  }

  async function request(
    client: ClickHouseClient,
    { sql, params = {}, settings = {}, format, pieces, writes, signal: ended, queryId = randomUUID() }: Request,
  ): Promise<Answer> {
    if (ended !== undefined && hasFired(ended)) throw cancelled();
    try {
      const {
        stream,
        response_headers: headers,
        http_status_code: status = 0,
      } = await client.exec({
        query: sql,
        query_id: queryId,
        query_params: params,
        clickhouse_settings: {
          ...COMMON_SETTINGS,
          ...settings,
          ...(format === undefined ? {} : { default_format: format }),
        } as ClickHouseSettings,
        ignore_error_response: true,
        ...(ended === undefined ? {} : { abort_signal: ended }),
        ...(pieces === undefined ? {} : { values: Readable.from(copies(pieces), { objectMode: false }) }),
      });
      const chunks: Buffer[] = [];
      for await (const chunk of stream) chunks.push(chunk as Buffer);
      const body = Buffer.concat(chunks);
      lastAnswerAt = performance.now();
      const code = headerOf(headers['x-clickhouse-exception-code']);
      if (status !== 200 || code !== undefined) throw toError(body, status, code, writes);
      const late = lateException(body, headerOf(headers['x-clickhouse-exception-tag']));
      if (late !== undefined) throw fromEngine(late, writes) ?? refusal(1002, late);
      const summary = headerOf(headers['x-clickhouse-summary']);
      return { body, summary: summary === undefined ? undefined : (JSON.parse(summary) as Answer['summary']) };
    } catch (error) {
      if (error instanceof ClickHouseError) throw error;
      lastAnswerAt = 0;
      // the server may still work on it, and nobody waits for its answer
      if (!writes && client !== clients.control) void kill(queryId);
      if (ended !== undefined && hasFired(ended))
        throw writes
          ? fromSystem(
              Object.assign(new Error('The request was ended before its answer'), { code: 'ABORT_ERR' }),
              true,
              true,
            )
          : cancelled();
      throw fromSystem(error, writes, true);
    }
  }

  /** One attempt at a write. It has ended when it settles, unless the server cannot be asked (then it logs so). */
  async function write(
    kind: 'write' | 'insert',
    { settings = {}, ...statement }: Omit<Request, 'writes'>,
    queryId = 'sluice',
  ): Promise<void> {
    if (performance.now() - lastAnswerAt > QUIET_MS) await learn();
    const id = `${attemptsOf(queryId)}${randomUUID()}`;
    const over = new AbortController();
    const givenUp = new AbortController();
    const watching = watch(id, over.signal, (reason) => givenUp.abort(reason));
    try {
      await request(clients.write, {
        ...statement,
        settings: { ...pinnedSettings(kind, known), ...settings },
        writes: true,
        signal: AbortSignal.any([endWrites.signal, givenUp.signal]),
        queryId: id,
      });
    } catch (error) {
      if (!(error instanceof ClickHouseError)) throw error;
      const failure = hasFired(givenUp.signal)
        ? fromSystem(Object.assign(new Error(String(givenUp.signal.reason)), { code: 'ETIMEDOUT' }), true, true)
        : error;
      // what ClickHouse reports itself has ended, and so has what never reached it
      if (error.code !== undefined || failure.outcome === 'not_written') throw failure;
      try {
        await killAndWait(
          `query_id = ${quote(id)}`,
          hasFired(endWrites.signal) ? CLOSE_GRACE_MS / 2 : KILL_PATIENCE_MS,
        );
      } catch (unknown) {
        logger.warn({ err: unknown, query_id: id }, 'clickhouse_write_may_still_run');
      }
      throw failure;
    } finally {
      over.abort();
      await watching;
    }
  }

  /**
   * Asks the server about a write from time to time until `over` fires. Before that it may abandon it, with the reason.
   */
  async function watch(id: string, over: AbortSignal, giveUp: (reason: string) => void): Promise<void> {
    let lastProgress: string | undefined;
    let stalled = 0;
    let unanswered = 0;
    for (;;) {
      if (!(await slept(requestTimeoutMs, over))) return;
      let progress: string;
      try {
        progress = await ask(`${PROGRESS}${quote(id)}`);
        unanswered = 0;
      } catch {
        if (++unanswered < 2) continue;
        giveUp('Timeout: the server no longer answers');
        return;
      }
      if (progress === '') {
        if (await slept(ANSWER_GRACE_MS, over)) giveUp('Timeout: no answer, and the server does not run the statement');
        return;
      }
      stalled = progress === lastProgress ? stalled + 1 : 0;
      lastProgress = progress;
      if (stalled >= STALLED_TIMES) {
        giveUp('Timeout: the statement makes no progress');
        return;
      }
      logger.debug({ query_id: id, progress }, 'clickhouse_write_running');
    }
  }

  /** Kills our statements for which the condition holds. Resolves when none of them runs, else throws. */
  async function killAndWait(condition: string, patienceMs: number): Promise<void> {
    const since = performance.now();
    for (;;) {
      // SYNC waits for each; a statement that ignores it for too long is asked about again
      const failure = await ask(`KILL QUERY WHERE ${condition} SYNC`).then(
        () => undefined,
        (error: unknown) => error,
      );
      if (failure === undefined && (await ask(`SELECT count() FROM system.processes WHERE ${condition}`)) === '0')
        return;
      const isUnreachable = failure instanceof ClickHouseError && failure.code === undefined;
      if (performance.now() - since > (isUnreachable ? Math.min(patienceMs, unreachablePatienceMs) : patienceMs))
        throw failure ?? refusal(159, 'Timeout exceeded: a killed statement has not ended');
      await sleep(100);
    }
  }

  /** Returns the answer of a small statement past the pools, as text. Each of them may run twice. */
  async function ask(sql: string, timeoutMs: number | null = PING_TIMEOUT_MS): Promise<string> {
    const once = (): Promise<Answer> =>
      request(clients.control, {
        sql,
        format: 'TabSeparated',
        settings: CONTROL_SETTINGS,
        writes: false,
        ...(timeoutMs !== null && { signal: AbortSignal.timeout(timeoutMs) }),
      });
    const { body } = await once().catch((error: unknown) => {
      // the server may close a long idle connection just when it is used again
      if (error instanceof ClickHouseError && (error.codeName === 'ECONNRESET' || error.codeName === 'EPIPE'))
        return once();
      throw error;
    });
    return body.toString('utf8').trim();
  }

  async function namesOfSettings(): Promise<ReadonlySet<string>> {
    return new Set((await ask('SELECT name FROM system.settings')).split('\n'));
  }

  /** The server may have been replaced: reads its version, and if that changed, the settings that it knows. */
  function learn(): Promise<void> {
    learning ??= (async () => {
      const found = await ask('SELECT version()');
      if (found === version) return;
      logger.info({ version: found, before: version, where }, 'clickhouse_version_changed');
      known = await namesOfSettings();
      version = found;
    })().finally(() => {
      learning = undefined;
    });
    return learning;
  }

  async function kill(queryId: string): Promise<void> {
    await ask(`KILL QUERY WHERE query_id = ${quote(queryId)} ASYNC`).catch((error: unknown) =>
      logger.debug({ err: error }, 'clickhouse_kill_failed'),
    );
  }
}

/** Returns the prefix of the ids of all attempts at an insert: its own id and a character that no id contains. */
function attemptsOf(queryId: string): string {
  return `${queryId}#`;
}

/** Waits. False if `over` fired meanwhile. */
async function slept(ms: number, over: AbortSignal): Promise<boolean> {
  return await sleep(ms, true, { signal: over, ref: false }).catch(() => false);
}

function toError(body: Buffer, status: number, code: string | undefined, writes: boolean): ClickHouseError {
  const text = body.toString('utf8', 0, 16_384);
  const reported = fromEngine(text, writes, code === undefined ? undefined : Number(code));
  if (reported !== undefined) return reported;
  // not ClickHouse's text: from a proxy, or another service
  const retry = status === 408 || status === 429 || status >= 500;
  return new ClickHouseError(`HTTP ${status}: ${text.slice(0, 200)}`, {
    code: undefined,
    codeName: `HTTP_${status}`,
    kind: retry ? 'retry' : 'fatal',
    outcome: writes && status >= 500 ? 'unknown' : 'not_written',
  });
}

/**
 * Returns the exception that a server from 25.11 on writes after rows that were already sent: `__exception__`, tag,
 * text, length, tag, `__exception__`.
 */
function lateException(body: Buffer, tag: string | undefined): string | undefined {
  if (tag === undefined) return undefined;
  const tail = body.toString('utf8', Math.max(0, body.length - 65_536));
  const opening = `\r\n__exception__\r\n${tag}\r\n`;
  const at = tail.indexOf(opening);
  return at >= 0 && tail.trimEnd().endsWith('__exception__')
    ? tail.slice(at + opening.length, tail.lastIndexOf('\n', tail.lastIndexOf(tag)))
    : undefined;
}

/** A stream requests the next piece before it has sent the previous one. */
function* copies(pieces: Iterable<Uint8Array>): Generator<Buffer> {
  for (const piece of pieces) yield Buffer.from(piece);
}

/** a function, because it may fire between two checks */
function hasFired(signal: AbortSignal): boolean {
  return signal.aborted;
}

function headerOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
