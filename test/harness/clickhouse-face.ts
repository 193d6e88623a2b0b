import {
  createServer,
  request as httpRequest,
  Agent,
  type ClientRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import { serverOfRun } from './clickhouse-run.ts';
import { lastingPort } from './ports.ts';
import { startServer, type Profile, type ServerVersion } from './clickhouse-server.ts';
import { waitFor } from './wait-for.ts';

/**
 * A genuine ClickHouse server with a face before it: a proxy that passes every request on as it is, and does on purpose
 * what a server cannot be made to do:
 * requests and answers are cut, held back, forged or never come.
 */
export interface Fault {
  /** regular expression on the statement; absent = every statement (pings are never hit) */
  readonly match?: string;
  /** and regular expression on its data, byte by byte (latin1), which has come in whole by then */
  readonly body?: string;
  /** how many statements it hits; default 1 */
  times?: number;
  /**
   * Before the server sees the statement:
   * - reset: the connection is closed; cut_request: the server gets half of the body, then both connections are closed
   * - hang: no answer until release(); delay: executed after `ms`; hold: executed after execute()
   * - error: an error of ClickHouse by number; garbage: a proxy's words with `status`
   *
   * After the server has executed it:
   *
   * - reset_after, hang_after, error_after: the same, but it is stored
   * - cut_response: the connection breaks off in the body; late_exception: an exception behind the rows of a 200, as
   *   from 25.11 on
   */
  readonly action:
    | 'reset'
    | 'cut_request'
    | 'hang'
    | 'delay'
    | 'hold'
    | 'error'
    | 'garbage'
    | 'reset_after'
    | 'hang_after'
    | 'error_after'
    | 'cut_response'
    | 'late_exception';
  readonly code?: number;
  readonly status?: number;
  readonly ms?: number;
}

interface FaceOptions {
  /** the server's folder; survives stop and kill */
  readonly dataDir: string;
  /** default: those of this run, else 25.8 and plain */
  readonly engine?: ServerVersion;
  readonly profile?: Profile;
  /** made where it is not there */
  readonly database?: string;
  readonly user?: string;
  readonly password?: string;
  /** what `SELECT version()` says instead of the truth */
  readonly version?: string;
  readonly port?: number;
  /** files in PEM; with them the face speaks TLS only */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

export interface Face {
  /** for CLICKHOUSE_URL, credentials and database in it */
  readonly url: string;
  /** as the user without any right */
  readonly sandboxUrl: string;
  /** of the server */
  readonly pid: number;
  /** Runs a statement on the server past the face, as a user who may do everything and is under no profile. */
  query(sql: string): Promise<string>;
  /** Replaces the faults that are waiting to happen. */
  inject(...faults: Fault[]): Promise<void>;
  /** how many requests hang */
  hanging(): number;
  /** how many statements of `hold` are not yet executed */
  held(): number;
  /** Executes what `hold` holds. */
  execute(): void;
  /** Closes the connections of the requests that hang. */
  release(): void;
  /** The port is closed and all connections with it; the server lives on. */
  down(): Promise<void>;
  up(): Promise<void>;
  /** kill -9 of the server */
  kill(): Promise<void>;
  stop(): Promise<void>;
}

/** the user without any right, with the password of the other */
export { NOBODY } from './clickhouse-server.ts';

/** as ClickHouse's http_max_uri_size */
const MAX_HEADER_SIZE = 1_048_576;
/** Headers of one connection, which each side has its own of. */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length']);

export async function startFace({
  dataDir,
  engine = serverOfRun().version,
  profile = serverOfRun().profile,
  database = 'sluice',
  user = 'sluice',
  password = '',
  version = '',
  port,
  tls,
}: FaceOptions): Promise<Face> {
  const server = await startServer({ version: engine, profile, dataDir, user, password });
  await server.query(`CREATE DATABASE IF NOT EXISTS ${database}`);
  const agent = new Agent({ keepAlive: true });
  let faults: Fault[] = [];
  const hanging = new Set<Socket>();
  const held = new Set<() => void>();
  let unexecuted = 0;

  const answer = (req: IncomingMessage, res: ServerResponse): void => {
    handle(req, res).catch(() => req.socket.destroy());
  };
  const limits = { keepAliveTimeout: 10_000, maxHeaderSize: MAX_HEADER_SIZE };
  const face =
    tls === undefined
      ? createServer(limits, answer)
      : createTlsServer({ ...limits, cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, answer);
  const listening = await listen(port ?? (await lastingPort()));
  const urlOf = (of: string): string => {
    const url = new URL(of);
    url.protocol = tls === undefined ? 'http:' : 'https:';
    url.port = String(listening);
    url.pathname = database;
    return url.href;
  };
  const down = async (): Promise<void> => {
    await new Promise<void>((resolve) => {
      face.close(() => resolve());
      face.closeAllConnections();
    });
    // whoever is connected from this process has heard of the end by the time a new connection is refused
    await waitFor(() => refuses(listening), 5_000, 'the face refuses connections');
  };
  const end = async (ending: () => Promise<void>): Promise<void> => {
    await Promise.all([face.listening ? down() : undefined, ending()]);
    agent.destroy();
  };
  return {
    url: urlOf(server.url),
    sandboxUrl: urlOf(server.nobodyUrl),
    pid: server.pid,
    query: (sql) => server.query(sql),
    inject: (...next) => {
      faults = next;
      return Promise.resolve();
    },
    hanging: () => hanging.size,
    held: () => unexecuted,
    execute: () => {
      for (const goOn of held) goOn();
      held.clear();
    },
    release: () => {
      for (const socket of hanging) socket.destroy();
    },
    down,
    up: async () => {
      await listen(listening);
    },
    kill: () => end(() => server.kill()),
    stop: () => end(() => server.stop()),
  };

  function listen(at: number): Promise<number> {
    return new Promise((resolve, reject) => {
      face.once('error', reject);
      face.listen(at, '127.0.0.1', () => {
        face.off('error', reject);
        resolve(at);
      });
    });
  }

  /** The first fault that matches, one time less left. data: undefined = not there yet */
  function faultOf(sql: string, data: Buffer | undefined): Fault | undefined {
    const fault = faults.find(
      (f) =>
        (f.times ?? 1) > 0 &&
        (f.body === undefined) === (data === undefined) &&
        new RegExp(f.match ?? '', 's').test(sql) &&
        new RegExp(f.body ?? '', 's').test(data?.toString('latin1') ?? ''),
    );
    if (fault !== undefined) fault.times = (fault.times ?? 1) - 1;
    return fault;
  }

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? '/', 'http://face');
    const sqlInUrl = url.searchParams.get('query');
    const early = sqlInUrl === null ? undefined : faultOf(sqlInUrl, undefined);
    const body = await collect(req);
    let fault = early;
    let sql = sqlInUrl ?? '';
    if (url.pathname !== '/ping' && fault === undefined) {
      const text = decompressed(body, req.headers['content-encoding']);
      if (sqlInUrl === null) sql = text.toString('utf8');
      fault = sqlInUrl === null ? faultOf(sql, undefined) : faultOf(sql, text);
    }
    if (fault?.action === 'hang') return hang(req);
    if (fault?.action === 'cut_request') return cutRequest(req, body);
    if (fault !== undefined && (await injectBefore(fault, req, res))) return;
    if (version !== '' && /^SELECT version\(\)$/.test(sql)) {
      res.setHeader('x-clickhouse-query-id', 'face').end(`${version}\n`);
      return;
    }
    if (fault?.action === 'hold') {
      unexecuted++;
      await new Promise<void>((resolve) => held.add(resolve));
    }
    const answered = await passOn(req, body, res).finally(() => {
      if (fault?.action === 'hold') unexecuted--;
    });
    // it was to strike after the statement, which did not come so far
    const failed = answered.status !== 200;
    if (fault !== undefined && failed && fault.action !== 'delay' && fault.action !== 'hold')
      fault.times = (fault.times ?? 0) + 1;
    if (fault?.action === 'hang_after' && !failed) return hang(req);
    if (fault !== undefined && !failed && injectAfter(fault, req, res, answered)) return;
    res.writeHead(answered.status, { ...answered.headers, 'content-length': answered.body.length }).end(answered.body);
  }

  function hang({ socket }: IncomingMessage): void {
    hanging.add(socket);
    socket.once('close', () => hanging.delete(socket));
  }

  /** To the server, with the head of this request; the body is still to be written. */
  function onwardRequest(req: IncomingMessage, length: number): ClientRequest {
    return httpRequest({
      host: '127.0.0.1',
      port: server.port,
      agent,
      method: req.method,
      path: req.url,
      headers: { ...ofMessage(req), 'content-length': length },
      maxHeaderSize: MAX_HEADER_SIZE,
    });
  }

  /** The server answers the half that it got, with an error, only once it knows that no more comes. */
  async function cutRequest(req: IncomingMessage, body: Buffer): Promise<void> {
    if (body.length < 2) throw new Error('there is no middle of the body to cut it in');
    const onward = onwardRequest(req, body.length);
    const answered = new Promise<void>((resolve) => {
      onward.once('close', resolve).once('error', () => {});
    });
    onward.write(body.subarray(0, Math.floor(body.length / 2)), () => onward.socket!.end());
    await answered;
    req.socket.destroy();
  }

  async function passOn(req: IncomingMessage, body: Buffer, res: ServerResponse): Promise<Answer> {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const onward = onwardRequest(req, body.length);
      onward.once('response', resolve).once('error', reject);
      // who is gone is gone for the server too
      res.once('close', () => {
        if (!res.writableFinished) onward.destroy();
      });
      onward.end(body);
    });
    return {
      status: response.statusCode ?? 0,
      headers: ofMessage(response),
      body: await collect(response),
    };
  }
}

/** The headers that are not of one connection only. */
function ofMessage({ headers }: IncomingMessage): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !HOP_BY_HOP.has(name))) as Record<
    string,
    string
  >;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

const injected = (code: number | undefined): string =>
  `Code: ${code ?? 1002}. DB::Exception: injected. (INJECTED) (version 0)`;

/** true: the request ends here. */
async function injectBefore(
  { action, status, code, ms }: Fault,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<boolean> {
  if (action === 'delay') await sleep(ms ?? 0);
  else if (action === 'reset') req.socket.destroy();
  else if (action === 'garbage')
    res.writeHead(status ?? 502, { 'content-type': 'text/html' }).end('<html>Bad Gateway</html>');
  else if (action === 'error') answerError(res, code);
  return ['reset', 'garbage', 'error'].includes(action);
}

/** true: the request ends here, after the server has executed it. */
function injectAfter(
  { action, code }: Fault,
  req: IncomingMessage,
  res: ServerResponse,
  { headers, body }: Answer,
): boolean {
  if (action === 'reset_after') req.socket.destroy();
  else if (action === 'error_after') answerError(res, code);
  else if (action === 'cut_response') {
    res.writeHead(200, { ...headers, 'content-length': body.length + 1 });
    res.write(body.subarray(0, Math.ceil(body.length / 2)), () => req.socket.destroy());
  } else if (action === 'late_exception') {
    const tag = 'rnywyenusvzdtkab';
    const text = `${injected(code)}\n`;
    res.writeHead(200, { ...headers, 'x-clickhouse-exception-tag': tag });
    res.end(
      Buffer.concat([
        body,
        Buffer.from(`\r\n__exception__\r\n${tag}\r\n${text}${Buffer.byteLength(text)} ${tag}\r\n__exception__\r\n`),
      ]),
    );
  }
  return ['reset_after', 'error_after', 'cut_response', 'late_exception'].includes(action);
}

function answerError(res: ServerResponse, code: number | undefined): void {
  res.writeHead(statusOf(code ?? 1002), {
    'content-type': 'text/plain; charset=UTF-8',
    'x-clickhouse-exception-code': String(code ?? 1002),
  });
  res.end(`${injected(code)}\n`);
}

/** src/Server/HTTP/exceptionCodeToHTTPStatus.cpp, the part that matters here. */
function statusOf(code: number): number {
  if (code === 194) return 401;
  if ([192, 193, 497, 516].includes(code)) return 403;
  if ([6, 26, 27, 38, 41, 62, 72].includes(code)) return 400;
  if ([46, 47, 60, 81, 115].includes(code)) return 404;
  if (code === 159) return 408;
  if (code === 209 || code === 439) return 503;
  return 500;
}

function refuses(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', () => resolve(true));
  });
}

async function collect(stream: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function decompressed(body: Buffer, encoding: string | undefined): Buffer {
  if (encoding === 'gzip') return gunzipSync(body);
  if (encoding === 'zstd') return zstdDecompressSync(body);
  return encoding === 'br' ? brotliDecompressSync(body) : body;
}
