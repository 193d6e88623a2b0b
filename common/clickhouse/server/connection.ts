import { randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { createClient, ClickHouseLogLevel, type ClickHouseClient, type ClickHouseSettings } from '@clickhouse/client';
import type { Param, StatementSettings } from '../clickhouse.ts';
import { abandoned, ClickHouseError, fromEngine, fromSystem, refusal } from '../errors.ts';
import { wholeAnswer } from '../pinned-settings.ts';
import { cancelled } from '../pool.ts';
import { quote } from '../sql.ts';
import type { ServerOptions } from './server.ts';

/**
 * Sockets of their own for reads and for writes; control is for statements that must get through when both are stuck.
 * Only what goes over `write` can store something.
 */
type Channel = 'read' | 'write' | 'control' | 'sandbox';

export type Connection = ReturnType<typeof createConnection>;

type ConnectionOptions = Pick<
  Required<ServerOptions>,
  'url' | 'logger' | 'readers' | 'writers' | 'requestTimeoutMs' | 'sandboxUrl' | 'authorities'
>;

/** Settings of the transport: the answer is complete before its first byte, so its status tells the truth. */
const COMMON_SETTINGS = {
  wait_end_of_query: 1,
  send_progress_in_http_headers: 0,
  http_write_exception_in_output_format: 0,
  http_response_headers: '{}',
} as const;
/** Settings of our own questions to the server, which no profile can disturb. */
const CONTROL_SETTINGS = { ...wholeAnswer, output_format_tsv_crlf_end_of_line: 0 } as const;
const PING_TIMEOUT_MS = 5_000;
/** What changes as long as a statement makes progress. While it sorts or merges groups, only its memory does. */
export const PROGRESS =
  "SELECT toString((read_rows, read_bytes, written_rows, written_bytes, memory_usage, ProfileEvents['OSCPUVirtualTimeMicroseconds'], ProfileEvents['WriteBufferFromFileDescriptorWriteBytes'])) FROM system.processes WHERE query_id = ";
/** The client's `request_timeout` for reads and writes, which are watched: the longest value of a timer. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

export interface Answer {
  readonly body: Buffer;
  readonly summary: { readonly read_rows?: string; readonly read_bytes?: string } | undefined;
}

export interface Request {
  readonly sql: string;
  readonly params?: Readonly<Record<string, Param>>;
  readonly settings?: StatementSettings;
  readonly format?: string;
  readonly pieces?: Iterable<Uint8Array>;
  readonly signal?: AbortSignal;
  /** default: a unique one */
  readonly queryId?: string;
}

/** HTTP to one server. Opens no socket before the first request. */
export function createConnection(options: ConnectionOptions) {
  const { url, logger, readers, writers, requestTimeoutMs, sandboxUrl } = options;
  const address = new URL(url);
  const database = databaseIn(address);
  const connect = (sockets: number, timeoutMs = requestTimeoutMs, at = address): ClickHouseClient =>
    clientOf(at, at === address ? database : 'default', sockets, timeoutMs, options.authorities);
  const clients = {
    read: connect(readers, NO_TIMEOUT_MS),
    write: connect(writers, NO_TIMEOUT_MS),
    control: connect(4),
    sandbox: sandboxUrl === undefined ? undefined : connect(readers, requestTimeoutMs, new URL(sandboxUrl)),
  };
  let lastAnswerAt = 0;

  return {
    /** of the url, without credentials */
    where: `${address.protocol}//${address.host}/${database}`,
    address,
    database,
    user: userOf(address),
    /**
     * When the server last answered anything, monotonic milliseconds; 0 after a broken connection, because the server
     * may then have another version.
     */
    get lastAnswerAt() {
      return lastAnswerAt;
    },
    /** False for a sandbox without its url. */
    has: (channel: Channel): boolean => clients[channel] !== undefined,
    request,
    ask,
    async close(): Promise<void> {
      for (const client of Object.values(clients)) await client?.close();
    },
  };

  /** Resolves with the whole answer, else throws ClickHouseError. */
  async function request(channel: Channel, { queryId = randomUUID(), ...statement }: Request): Promise<Answer> {
    const { signal: ended } = statement;
    const writes = channel === 'write';
    if (hasFired(ended)) throw cancelled();
    const watch = channel === 'read' ? watchRead(queryId, ask, requestTimeoutMs) : undefined;
    const signals = [ended, watch?.givenUp].filter((signal) => signal !== undefined);
    try {
      const sent = { ...statement, queryId, writes, signal: AbortSignal.any(signals), onBytes: watch?.onBytes };
      return await exchange(clients[channel]!, sent, () => {
        lastAnswerAt = performance.now();
      });
    } catch (error) {
      if (error instanceof ClickHouseError) throw error;
      lastAnswerAt = 0;
      // the server may still work on it, and nobody waits for its answer
      if (!writes && channel !== 'control') void kill(queryId);
      if (hasFired(ended))
        throw writes ? abandoned('ABORT_ERR', 'The request was ended before its answer') : cancelled();
      throw fromSystem(hasFired(watch?.givenUp) ? new Error('Timeout error') : error, writes, true);
    } finally {
      watch?.end();
    }
  }

  /**
   * Returns the answer of a small statement past the pools, as text. Each of them may run twice. `timeoutMs`: null for
   * `requestTimeoutMs`. An answer that takes longer is none: ETIMEDOUT.
   */
  async function ask(sql: string, timeoutMs: number | null = PING_TIMEOUT_MS): Promise<string> {
    const once = async (): Promise<Answer> => {
      const late = timeoutMs === null ? undefined : AbortSignal.timeout(timeoutMs);
      const statement = { sql, format: 'TabSeparated', settings: CONTROL_SETTINGS };
      try {
        return await request('control', { ...statement, ...(late !== undefined && { signal: late }) });
      } catch (error) {
        throw hasFired(late) ? fromSystem(new Error('Timeout error'), false, true) : error;
      }
    };
    const { body } = await once().catch((error: unknown) => {
      // the server may close a long idle connection just when it is used again
      if (error instanceof ClickHouseError && (error.codeName === 'ECONNRESET' || error.codeName === 'EPIPE'))
        return once();
      throw error;
    });
    return body.toString('utf8').trim();
  }

  async function kill(queryId: string): Promise<void> {
    await ask(`KILL QUERY WHERE query_id = ${quote(queryId)} ASYNC`).catch((error: unknown) =>
      logger.debug({ err: error }, 'clickhouse_kill_failed'),
    );
  }
}

/**
 * A read takes as long as the server works on it. It is given up when for `timeoutMs` neither bytes of its answer arrive
 * nor the server knows of any progress.
 */
function watchRead(queryId: string, ask: (sql: string) => Promise<string>, timeoutMs: number) {
  const givenUp = new AbortController();
  let progress = '';
  let quiet = 0;
  const look = async (): Promise<void> => {
    let now = '';
    try {
      now = await ask(`${PROGRESS}${quote(queryId)}`);
    } catch (error) {
      // a server that refuses the question is there
      if (error instanceof ClickHouseError && error.code !== undefined) return;
    }
    quiet++;
    if (now !== '' && now !== progress) quiet = 0;
    progress = now;
    if (quiet >= 2) givenUp.abort();
  };
  const timer = setInterval(() => void look(), timeoutMs / 2).unref();
  return {
    givenUp: givenUp.signal,
    onBytes: () => {
      quiet = 0;
    },
    end: () => clearInterval(timer),
  };
}

interface Sent extends Request {
  readonly queryId: string;
  readonly writes: boolean;
  readonly onBytes?: (() => void) | undefined;
}

/** Sends a statement and reads its answer to the end. `onAnswer`: it is there, whatever it says. */
async function exchange(
  client: ClickHouseClient,
  { sql, params = {}, settings = {}, format, pieces, writes, signal, queryId, onBytes }: Sent,
  onAnswer: () => void,
): Promise<Answer> {
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
    ...(signal === undefined ? {} : { abort_signal: signal }),
    ...(pieces === undefined ? {} : { values: Readable.from(copies(pieces), { objectMode: false }) }),
  });
  // the client listens to the signal only until the headers are there
  if (signal !== undefined) addAbortSignal(signal, stream);
  const chunks: Buffer[] = [];
  for await (const chunk of stream) {
    chunks.push(chunk as Buffer);
    onBytes?.();
  }
  const body = Buffer.concat(chunks);
  onAnswer();
  const code = headerOf(headers['x-clickhouse-exception-code']);
  // a proxy may answer a page with 200, which stores nothing
  const isOfClickHouse = headers['x-clickhouse-query-id'] !== undefined;
  if (status !== 200 || code !== undefined || !isOfClickHouse) throw toError(body, status, code, writes);
  const late = lateException(body, headerOf(headers['x-clickhouse-exception-tag']));
  if (late !== undefined) throw fromEngine(late, writes) ?? refusal(1002, late);
  const summary = headerOf(headers['x-clickhouse-summary']);
  return { body, summary: summary === undefined ? undefined : (JSON.parse(summary) as Answer['summary']) };
}

function clientOf(
  at: URL,
  database: string,
  sockets: number,
  timeoutMs: number,
  authorities: Buffer | undefined,
): ClickHouseClient {
  return createClient({
    url: `${at.protocol}//${at.host}`,
    username: userOf(at),
    password: decodeURIComponent(at.password),
    database,
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
}

export const databaseIn = (at: URL): string => decodeURIComponent(at.pathname.slice(1)) || 'default';
const userOf = (at: URL): string => decodeURIComponent(at.username) || 'default';

function toError(body: Buffer, status: number, code: string | undefined, writes: boolean): ClickHouseError {
  const text = body.toString('utf8', 0, 16_384);
  const reported = fromEngine(text, writes, code === undefined ? undefined : Number(code));
  if (reported !== undefined) return reported;
  // not ClickHouse's text: from a proxy, or another service
  const retry = status === 200 || status === 408 || status === 429 || status >= 500;
  return new ClickHouseError(`HTTP ${status}: ${text.slice(0, 200)}`, {
    code: undefined,
    codeName: `HTTP_${status}`,
    kind: retry ? 'retry' : 'fatal',
    outcome: writes && (status === 200 || status >= 500) ? 'unknown' : 'not_written',
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
export function hasFired(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

function headerOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
