import { randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { createClient, ClickHouseLogLevel, type ClickHouseClient, type ClickHouseSettings } from '@clickhouse/client';
import type { ReadResult, Statement } from '../clickhouse.ts';
import { ClickHouseError, fromEngine, fromSystem, isUnanswered, refusal } from '../errors.ts';
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
const PROGRESS =
  "SELECT toString((read_rows, read_bytes, written_rows, written_bytes, memory_usage, ProfileEvents['OSCPUVirtualTimeMicroseconds'], ProfileEvents['WriteBufferFromFileDescriptorWriteBytes'])) FROM system.processes WHERE query_id = ";
/** A statement is given up at this question in a row that finds no progress. */
const STALLED_TIMES = { read: 2, write: 20 } as const;
/** The same if the server does not know it, or does not answer the questions. */
const LOST_TIMES = { read: 2, write: 4 } as const;
/** The client's `request_timeout` for reads and writes, which are watched: the longest value of a timer. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;

export interface Request extends Pick<Statement, 'sql' | 'params' | 'settings'> {
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
    request,
    ask,
    async close(): Promise<void> {
      for (const client of Object.values(clients)) await client?.close();
    },
  };

  /**
   * Resolves with the whole answer, else throws ClickHouseError. A read or a write takes as long as the server works on
   * it: twice in `requestTimeoutMs` it is asked about its progress.
   */
  async function request(channel: Channel, { queryId = randomUUID(), ...statement }: Request): Promise<ReadResult> {
    const { signal: ended } = statement;
    const client = clients[channel];
    if (client === undefined)
      throw refusal(497, 'CLICKHOUSE_SANDBOX_URL is not set, so callers cannot send statements');
    const writes = channel === 'write';
    if (hasFired(ended)) throw cancelled();
    const watch =
      channel === 'read' || channel === 'write'
        ? watchStatement(queryId, ask, requestTimeoutMs / 2, channel)
        : undefined;
    const signals = [ended, watch?.givenUp].filter((signal) => signal !== undefined);
    try {
      const sent = { ...statement, queryId, writes, signal: AbortSignal.any(signals), onBytes: watch?.onBytes };
      return await exchange(client, sent, () => {
        lastAnswerAt = performance.now();
      });
    } catch (error) {
      if (error instanceof ClickHouseError) throw error;
      lastAnswerAt = 0;
      // the server may still work on it, and nobody waits for its answer
      if (!writes && channel !== 'control') void kill(queryId);
      if (hasFired(ended) && !writes) throw cancelled();
      throw fromSystem(hasFired(watch?.givenUp) ? new Error('Timeout error: no progress') : error, writes, true);
    } finally {
      watch?.end();
    }
  }

  /**
   * Returns the answer of a small statement past the pools, as text. Each of them may run twice. An answer that takes
   * longer is none: ETIMEDOUT.
   */
  async function ask(sql: string, timeoutMs = PING_TIMEOUT_MS): Promise<string> {
    const once = async (): Promise<ReadResult> => {
      const late = AbortSignal.timeout(timeoutMs);
      const statement = { sql, format: 'TabSeparated', settings: CONTROL_SETTINGS, signal: late };
      return await request('control', statement).catch((error: unknown) => {
        throw late.aborted ? fromSystem(new Error('Timeout error'), false, true) : error;
      });
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

/** Asks about a statement again and again until `end`. It is given up if no bytes of its answer arrive meanwhile. */
function watchStatement(
  queryId: string,
  ask: (sql: string) => Promise<string>,
  everyMs: number,
  channel: 'read' | 'write',
) {
  const givenUp = new AbortController();
  let progress = '';
  let stalled = 0;
  let lost = 0;
  const look = async (): Promise<void> => {
    const found = await ask(`${PROGRESS}${quote(queryId)}`).catch((error: unknown) =>
      isUnanswered(error) ? '' : undefined,
    );
    // a server that refuses the question is there
    if (found === undefined) return;
    lost = found === '' ? lost + 1 : 0;
    if (found !== '') {
      stalled = found === progress ? stalled + 1 : 0;
      progress = found;
    }
    if (lost >= LOST_TIMES[channel] || stalled >= STALLED_TIMES[channel]) givenUp.abort();
  };
  const timer = setInterval(() => void look(), everyMs).unref();
  return {
    givenUp: givenUp.signal,
    onBytes: () => {
      stalled = 0;
      lost = 0;
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
): Promise<ReadResult> {
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
  const summary = JSON.parse(headerOf(headers['x-clickhouse-summary']) ?? '{}') as Partial<Record<string, string>>;
  return { body, readRows: numberOf(summary['read_rows']), readBytes: numberOf(summary['read_bytes']) };
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
function hasFired(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

function headerOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
