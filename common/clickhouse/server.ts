import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, ClickHouseLogLevel, type ClickHouseClient, type ClickHouseSettings } from '@clickhouse/client';
import { StartError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { isCertificateError, speaksTls } from '../tls.ts';
import type { ClickHouse, Param, StatementSettings } from './clickhouse.ts';
import { ClickHouseError, fromEngine, fromSystem, refusal } from './errors.ts';
import { fewRowsSettings } from './few-rows.ts';
import { cancelled, createPool } from './pool.ts';
import { checkParameters, checkReads, insertInto, oneStatement, quote, replaceFrames, writeLongValues } from './sql.ts';
import { withinTimeLimit } from './time-limit.ts';

/**
 * A ClickHouse server over HTTP. Every statement waits for its end before the server answers (wait_end_of_query), so that the status tells the truth;
 * an exception behind a 200 is noticed all the same, by the tag the server announces in its header, or because the body breaks off.
 */
export interface ServerOptions {
  /** `http://user:password@host:8123/database` */
  readonly url: string;
  readonly logger: Logger;
  /** a server that is not up yet is waited for, saying so every 10 s, until `signal` fires; false: StartError at once. Default true. */
  readonly wait?: boolean;
  readonly signal?: AbortSignal;
  /** statements at a time */
  readonly readers?: number;
  readonly writers?: number;
  /** reads that may wait for a reader; more are refused with 202 */
  readonly readQueue?: number;
  /** no byte for this long in either direction ends a request: longer than the longest max_execution_time */
  readonly requestTimeoutMs?: number;
  /** compress what is inserted (zstd): for a server behind a thin line */
  readonly compress?: boolean;
  /** the same server as a user without any right, for reads that are `isolated` */
  readonly sandboxUrl?: string;
  /** PEM: who may have signed the server's certificate, where the url is https; Node's own list by default */
  readonly authorities?: Buffer;
}

const OLDEST_VERSION = [25, 8] as const;
const COMMON_SETTINGS = { wait_end_of_query: 1 } as const;
const READ_SETTINGS = { output_format_json_quote_64bit_integers: 0, cancel_http_readonly_queries_on_client_close: 1, readonly: 1 } as const;
const PING_TIMEOUT_MS = 5_000;
/** Parameters go in the address, of which a server takes 1 MiB (http_max_uri_size): longer ones go in the text. Characters, of which nine bytes at most are made. */
const LONGEST_PARAMETER = 12_000;
/** no row where the server does not run on Linux */
const MACHINE_STARTED_AT = "SELECT toUnixTimestamp64Milli(now64(3)) - toInt64(value * 1000) FROM system.asynchronous_metrics WHERE metric = 'OSUptime'";
/** UNKNOWN_TABLE, ACCESS_DENIED */
const UNTOLD = new Set<number | undefined>([60, 497]);
const CONNECT_RETRY_MS = 1_000;
/** How long close() lets writes finish, milliseconds. */
const CLOSE_GRACE_MS = 4_000;

interface Answer {
  readonly body: Buffer;
  readonly summary: { readonly read_rows?: string; readonly read_bytes?: string } | undefined;
}

interface Request {
  readonly sql: string;
  readonly params?: Readonly<Record<string, Param>>;
  readonly settings?: StatementSettings;
  readonly format?: string;
  readonly frames?: Iterable<Uint8Array>;
  readonly writes: boolean;
  readonly signal?: AbortSignal;
}

/** Resolves when the server has answered. Throws StartError (one line) where waiting cannot help: wrong user, no such database, too old, TLS where there is none or the other way round. */
export async function openServer({ url, logger, wait = true, signal, readers = 16, writers = 16, readQueue = 64, requestTimeoutMs = 60_000, compress = false, sandboxUrl, authorities }: ServerOptions): Promise<ClickHouse> {
  const address = new URL(url);
  const database = decodeURIComponent(address.pathname.slice(1)) || 'default';
  const where = `${address.protocol}//${address.host}/${database}`;
  const connect = (sockets: number, at: URL = address): ClickHouseClient => createClient({
    url: `${at.protocol}//${at.host}`,
    username: decodeURIComponent(at.username) || 'default',
    password: decodeURIComponent(at.password),
    database: at === address ? database : 'default',
    application: 'sluice',
    ...(authorities !== undefined && at.protocol === 'https:' && { tls: { ca_cert: authorities } }),
    max_open_connections: sockets,
    request_timeout: requestTimeoutMs,
    compression: { request: compress ? { codec: 'zstd', level: 1 } : false, response: false },
    // 0: Node's agent keeps to the server's own keep-alive time. The client's timer for idle sockets survives a request that is aborted before it has
    // its socket, and then cuts the next one that runs on it, 2.5 s later (client 1.23.1; seen as an ECONNRESET of reads beside aborted ones)
    keep_alive: { enabled: true, idle_socket_ttl: 0 },
    log: { level: ClickHouseLogLevel.OFF },
  });
  // readers and writers do not share sockets; control is for what must get through when both are stuck
  const clients = { read: connect(readers), write: connect(writers), control: connect(2), ...(sandboxUrl !== undefined && { sandbox: connect(readers, new URL(sandboxUrl)) }) };
  const closeClients = async (): Promise<void> => { await Promise.all(Object.values(clients).map((c) => c.close())); };

  let version: string;
  try {
    version = await firstAnswer();
  } catch (error) {
    await closeClients();
    throw error;
  }
  const found = version.split('.').map(Number);
  if (found[0]! < OLDEST_VERSION[0] || (found[0] === OLDEST_VERSION[0] && found[1]! < OLDEST_VERSION[1])) {
    await closeClients();
    throw new StartError(`ClickHouse at ${where} is version ${version}; ${OLDEST_VERSION.join('.')} or newer is needed`);
  }

  const none = { idleLimit: 0, open: () => Promise.resolve(undefined), recover: () => Promise.resolve(false), close: () => {} };
  const reading = createPool<undefined>({ size: readers, queueLimit: readQueue, ...none });
  const writing = createPool<undefined>({ size: writers, queueLimit: Number.POSITIVE_INFINITY, ...none });
  const closing = new AbortController();
  const endWrites = new AbortController();
  logger.info({ version, where }, 'clickhouse_server_connected');

  return {
    where,
    writers,
    version,

    async read({ sql, params = {}, settings = {}, format, signal: readSignal, isolated, fewRows }) {
      const statement = oneStatement(sql);
      checkReads(statement);
      checkParameters(statement, params);
      const client = isolated === true ? clients.sandbox : clients.read;
      if (client === undefined) throw refusal(497, 'CLICKHOUSE_SANDBOX_URL names no user for statements of callers');
      const ended = readSignal === undefined ? closing.signal : AbortSignal.any([readSignal, closing.signal]);
      const written = writeLongValues(statement, params, LONGEST_PARAMETER);
      const answer = await reading.use('', () => withinTimeLimit(settings, () => request(client, { ...written, settings: { ...READ_SETTINGS, ...(fewRows === true && fewRowsSettings(version)), ...settings, readonly: 1 }, format, writes: false, signal: ended })), ended);
      return { body: answer.body, readRows: numberOf(answer.summary?.read_rows), readBytes: numberOf(answer.summary?.read_bytes) };
    },

    async execute({ sql, params = {}, settings = {} }) {
      const statement = oneStatement(sql);
      checkParameters(statement, params);
      await writing.use('', () => request(clients.write, { sql: statement, params, settings, writes: true, signal: endWrites.signal }));
    },

    async insert({ sql, params = {}, settings = {}, structure, frames }) {
      const statement = oneStatement(sql);
      checkParameters(statement, params);
      const withInput = `${replaceFrames(statement, `input(${quote(structure)})`)}\nFORMAT RowBinary`;
      await writing.use('', () => request(clients.write, { sql: withInput, params, settings, frames, writes: true, signal: endWrites.signal }));
    },

    async insertRows({ table, columns, pieces, settings = {} }) {
      await writing.use('', () => request(clients.write, { sql: `${insertInto(table, columns)} FORMAT RowBinary`, settings, frames: pieces, writes: true, signal: endWrites.signal }));
    },

    async ping() {
      await request(clients.control, { sql: 'SELECT 1', writes: false, signal: AbortSignal.timeout(PING_TIMEOUT_MS) });
    },

    async machineStartedAt() {
      try {
        return numberOf((await request(clients.read, { sql: MACHINE_STARTED_AT, format: 'TabSeparated', settings: READ_SETTINGS, writes: false })).body.toString('utf8').trim() || undefined);
      } catch (error) {
        if (error instanceof ClickHouseError && UNTOLD.has(error.code)) return undefined;
        throw error;
      }
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
        return (await request(clients.control, { sql: 'SELECT version()', format: 'TabSeparated', writes: false })).body.toString('utf8').trim();
      } catch (error) {
        if (!(error instanceof ClickHouseError)) throw error;
        if (error.kind !== 'retry') throw new StartError(startMessage(error), { cause: error });
        if (attempt === 0 && address.protocol === 'http:' && error.codeName === 'ECONNRESET' && await speaksTls({ host: address.hostname, port: Number(address.port || 80) })) {
          throw new StartError(`ClickHouse at ${where} speaks TLS on this port; use https:// in CLICKHOUSE_URL`, { cause: error });
        }
        if (!wait) throw new StartError(`ClickHouse at ${where} does not answer: ${error.codeName}`, { cause: error });
        if (attempt % 10 === 0) logger.warn({ where, reason: error.codeName }, 'waiting_for_clickhouse');
        await sleep(CONNECT_RETRY_MS, undefined, signal === undefined ? {} : { signal });
      }
    }
  }

  function startMessage(error: ClickHouseError): string {
    if (isCertificateError(error.codeName)) return `ClickHouse at ${where} has a certificate that is not trusted (${error.codeName}); CLICKHOUSE_SSL_CA names the file of its authority`;
    if (error.codeName === 'EPROTO' || error.codeName.startsWith('ERR_SSL_')) return `ClickHouse at ${where} speaks no TLS on this port (${error.codeName}); use http:// in CLICKHOUSE_URL`;
    if (error.code === undefined) return `${where} does not answer as ClickHouse's HTTP interface does (${error.codeName}); check CLICKHOUSE_URL`;
    if ([192, 193, 194, 516].includes(error.code)) return `ClickHouse at ${where} refuses the user ${decodeURIComponent(address.username) || 'default'} or its password; check CLICKHOUSE_URL`;
    if (error.code === 81) return `ClickHouse at ${where} has no database ${database}; create it: CREATE DATABASE ${database}`;
    return `ClickHouse at ${where} refuses the first query: ${error.codeName}`;
  }

  async function request(client: ClickHouseClient, { sql, params = {}, settings = {}, format, frames, writes, signal: ended }: Request): Promise<Answer> {
    if (ended !== undefined && hasFired(ended)) throw cancelled();
    const queryId = randomUUID();
    try {
      const { stream, response_headers: headers, http_status_code: status = 0 } = await client.exec({
        query: sql,
        query_id: queryId,
        query_params: params,
        clickhouse_settings: { ...COMMON_SETTINGS, ...settings, ...(format === undefined ? {} : { default_format: format }) } as ClickHouseSettings,
        ignore_error_response: true,
        ...(ended === undefined ? {} : { abort_signal: ended }),
        ...(frames === undefined ? {} : { values: Readable.from(copies(frames), { objectMode: false }) }),
      });
      const chunks: Buffer[] = [];
      for await (const chunk of stream) chunks.push(chunk as Buffer);
      const body = Buffer.concat(chunks);
      const code = headerOf(headers['x-clickhouse-exception-code']);
      if (status !== 200 || code !== undefined) throw toError(body, status, code, writes);
      const late = lateException(body, headerOf(headers['x-clickhouse-exception-tag']));
      if (late !== undefined) throw fromEngine(late, writes) ?? refusal(1002, late);
      const summary = headerOf(headers['x-clickhouse-summary']);
      return { body, summary: summary === undefined ? undefined : JSON.parse(summary) as Answer['summary'] };
    } catch (error) {
      if (error instanceof ClickHouseError) throw error;
      // the server may still be at it: nobody waits for its answer any more
      if (!writes && client !== clients.control) void kill(queryId);
      if (ended !== undefined && hasFired(ended)) throw writes ? fromSystem(Object.assign(new Error('The request was ended while ClickHouse is being closed'), { code: 'ABORT_ERR' }), true, true) : cancelled();
      throw fromSystem(error, writes, true);
    }
  }

  async function kill(queryId: string): Promise<void> {
    await request(clients.control, { sql: `KILL QUERY WHERE query_id = ${quote(queryId)} ASYNC`, format: 'Null', writes: false, signal: AbortSignal.timeout(PING_TIMEOUT_MS) })
      .catch((error: unknown) => logger.debug({ err: error }, 'clickhouse_kill_failed'));
  }
}

function toError(body: Buffer, status: number, code: string | undefined, writes: boolean): ClickHouseError {
  const text = body.toString('utf8', 0, 16_384);
  const reported = fromEngine(text, writes, code === undefined ? undefined : Number(code));
  if (reported !== undefined) return reported;
  // not ClickHouse's words: a proxy's, or another service's
  const retry = status === 408 || status === 429 || status >= 500;
  return new ClickHouseError(`HTTP ${status}: ${text.slice(0, 200)}`, { code: undefined, codeName: `HTTP_${status}`, kind: retry ? 'retry' : 'fatal', outcome: writes && status >= 500 ? 'unknown' : 'not_written' });
}

/** The exception that a server from 25.11 on writes behind rows that were sent already: `__exception__`, tag, text, length, tag, `__exception__`. */
function lateException(body: Buffer, tag: string | undefined): string | undefined {
  if (tag === undefined) return undefined;
  const tail = body.toString('utf8', Math.max(0, body.length - 65_536));
  const opening = `\r\n__exception__\r\n${tag}\r\n`;
  const at = tail.indexOf(opening);
  return at >= 0 && tail.trimEnd().endsWith('__exception__') ? tail.slice(at + opening.length, tail.lastIndexOf('\n', tail.lastIndexOf(tag))) : undefined;
}

/** A stream asks for the next piece before it has sent the one before. */
function* copies(pieces: Iterable<Uint8Array>): Generator<Buffer> {
  for (const piece of pieces) yield Buffer.from(piece);
}

/** a function, because it may fire between two looks */
function hasFired(signal: AbortSignal): boolean {
  return signal.aborted;
}

function headerOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
