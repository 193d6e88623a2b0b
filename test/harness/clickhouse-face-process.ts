import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createBrotliDecompress, createGunzip, createZstdDecompress } from 'node:zlib';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Session } from 'chdb';
import { quote } from '../../common/clickhouse/sql.ts';
import { NOBODY, type Fault, type FaceOptions, type ToFace, type FromFace } from './clickhouse-face.ts';

/**
 * The child process of clickhouse-face.ts: the embedded engine behind the part of ClickHouse's HTTP interface that @clickhouse/client uses.
 * One session per request, opened with the request's settings and closed after it: nothing of one request can reach the next.
 */
const options = JSON.parse(process.argv[2]!) as Required<FaceOptions>;
const folder = join(options.dataDir, 'clickhouse');
const bodies = join(options.dataDir, 'bodies');
const config = fileURLToPath(new URL('../../common/clickhouse/engine/config.xml', import.meta.url));
rmSync(bodies, { recursive: true, force: true });
mkdirSync(bodies, { recursive: true });

/** names in the query string that are not settings of a query */
const NOT_SETTINGS = new Set(['query', 'query_id', 'database', 'default_format', 'wait_end_of_query', 'cancel_http_readonly_queries_on_client_close', 'enable_http_compression', 'session_id', 'role']);

const control = openSession({}, 'face-control');
control.query(`CREATE DATABASE IF NOT EXISTS ${options.database}`);
const settingNames = new Set(control.query('SELECT name FROM system.settings', 'TabSeparated').split('\n'));

let faults: Fault[] = [];
let bodyFiles = 0;

/** as ClickHouse's keep_alive_timeout and http_max_uri_size */
const limits = { keepAliveTimeout: 10_000, maxHeaderSize: 1_048_576 };
const answer = (req: IncomingMessage, res: ServerResponse): void => {
  handle(req, res).catch((error: unknown) => {
    if (!res.headersSent && !res.destroyed) answerError(res, error instanceof Error ? error.message : String(error));
  });
};
const server = options.tls === undefined ? createServer(limits, answer) : createTlsServer({ ...limits, cert: readFileSync(options.tls.cert), key: readFileSync(options.tls.key) }, answer);

process.on('message', (message: ToFace) => {
  if (message.kind === 'faults') {
    faults = message.faults;
    reply({ kind: 'done', id: message.id });
  } else if (message.kind === 'down') {
    server.close();
    server.closeAllConnections();
    reply({ kind: 'done', id: message.id });
  } else {
    listen(message.port, () => reply({ kind: 'done', id: message.id }));
  }
});
process.on('disconnect', () => process.exit(0));
listen(options.port, (port) => reply({ kind: 'listening', port }));

function listen(port: number, then: (port: number) => void): void {
  server.listen(port, '127.0.0.1', () => {
    const address = server.address();
    then(typeof address === 'object' && address !== null ? address.port : port);
  });
}

function reply(message: FromFace): void {
  process.send?.(message);
}

function openSession(settings: Readonly<Record<string, string>>, comment: string, role: 'writer' | 'NONE' = 'writer'): Session {
  const session = new Session(folder, { connectionArgs: [`--config-file=${config}`, '--implicit_select=0', ...Object.entries(settings).map(([k, v]) => `--${k}=${v}`), `--log_comment=${comment}`] });
  session.query(`SET ROLE ${role}`);
  return session;
}

/** The first fault that matches, one time less left. data: undefined = not there yet */
function faultOf(sql: string, data: Buffer | undefined): Fault | undefined {
  const fault = faults.find((f) => (f.times ?? 1) > 0 && (f.body === undefined) === (data === undefined) && new RegExp(f.match ?? '', 's').test(sql) && new RegExp(f.body ?? '', 's').test(data?.toString('latin1') ?? ''));
  if (fault !== undefined) fault.times = (fault.times ?? 1) - 1;
  return fault;
}

async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const url = new URL(req.url ?? '/', 'http://face');
  if (url.pathname === '/ping') {
    res.end('Ok.\n');
    return;
  }
  const sqlInUrl = url.searchParams.get('query');
  const early = sqlInUrl === null ? undefined : faultOf(sqlInUrl, undefined);
  if (early?.action === 'cut_request') {
    req.once('data', () => req.socket.destroy());
    return;
  }
  const body = await readBody(req);
  const sql = sqlInUrl ?? body.toString('utf8');
  const fault = early ?? (sqlInUrl === null ? faultOf(sql, undefined) : faultOf(sql, body));

  if (fault !== undefined && await injectBefore(fault, req, res)) return;

  // the client names its user in headers of ClickHouse's own where it was given an authority
  const { 'x-clickhouse-user': user, 'x-clickhouse-key': password } = req.headers;
  const given = user === undefined ? Buffer.from((req.headers.authorization ?? '').replace(/^Basic /, ''), 'base64').toString('utf8') : `${String(user)}:${String(password)}`;
  const isNobody = given === `${NOBODY}:${options.password}`;
  if (given !== `${options.user}:${options.password}` && !isNobody) {
    answerError(res, `Code: 516. DB::Exception: ${options.user}: Authentication failed: password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED) (version 0)`);
    return;
  }
  if (options.version !== '' && /^SELECT version\(\)$/.test(sql)) {
    res.end(`${options.version}\n`);
    return;
  }

  const result = await execute(url, sql, sqlInUrl === null ? undefined : body, res, isNobody ? 'NONE' : 'writer').catch((error: unknown) => {
    // it was to strike after the statement, which did not come so far
    if (fault !== undefined && fault.action !== 'delay') fault.times = (fault.times ?? 0) + 1;
    throw error;
  });
  const headers = { 'content-type': 'text/plain; charset=UTF-8', 'x-clickhouse-query-id': url.searchParams.get('query_id') ?? '', 'x-clickhouse-summary': JSON.stringify({ read_rows: String(result.rows), read_bytes: String(result.bytes) }) };
  if (fault !== undefined && injectAfter(fault, req, res, result.body, headers)) return;
  res.writeHead(200, headers).end(result.body);
}

const injected = (code: number | undefined): string => `Code: ${code ?? 1002}. DB::Exception: injected. (INJECTED) (version 0)`;

/** true: the request ends here. */
async function injectBefore({ action, status, code, ms }: Fault, req: IncomingMessage, res: ServerResponse): Promise<boolean> {
  if (action === 'delay') await sleep(ms ?? 0);
  else if (action === 'reset' || action === 'cut_request') req.socket.destroy();
  else if (action === 'garbage') res.writeHead(status ?? 502, { 'content-type': 'text/html' }).end('<html>Bad Gateway</html>');
  else if (action === 'error') answerError(res, injected(code));
  return ['reset', 'cut_request', 'garbage', 'error', 'hang'].includes(action);
}

/** true: the request ends here, after the engine has executed it. */
function injectAfter({ action, code }: Fault, req: IncomingMessage, res: ServerResponse, body: Buffer, headers: Record<string, string>): boolean {
  if (action === 'reset_after') req.socket.destroy();
  else if (action === 'error_after') answerError(res, injected(code));
  else if (action === 'cut_response') {
    res.writeHead(200, { ...headers, 'content-length': body.length + 1 });
    res.write(body.subarray(0, Math.ceil(body.length / 2)), () => req.socket.destroy());
  } else if (action === 'late_exception') {
    const tag = 'rnywyenusvzdtkab';
    const text = `${injected(code)}\n`;
    res.writeHead(200, { ...headers, 'x-clickhouse-exception-tag': tag });
    res.end(Buffer.concat([body, Buffer.from(`\r\n__exception__\r\n${tag}\r\n${text}${Buffer.byteLength(text)} ${tag}\r\n__exception__\r\n`)]));
  }
  return ['reset_after', 'error_after', 'cut_response', 'late_exception', 'hang_after'].includes(action);
}

async function execute(url: URL, sql: string, data: Buffer | undefined, res: ServerResponse, role: 'writer' | 'NONE'): Promise<{ body: Buffer; rows: number; bytes: number }> {
  const kill = /^KILL QUERY WHERE query_id = ('.*?') ASYNC$/s.exec(sql);
  if (kill !== null) {
    control.query(`KILL QUERY WHERE Settings['log_comment'] = ${kill[1]} ASYNC`);
    return { body: Buffer.alloc(0), rows: 0, bytes: 0 };
  }
  const queryId = url.searchParams.get('query_id') ?? '';
  const settings: Record<string, string> = {};
  const params: string[] = [];
  for (const [name, value] of url.searchParams) {
    if (name.startsWith('param_')) params.push(`${name} = ${quote(value)}`);
    else if (!NOT_SETTINGS.has(name)) {
      if (!settingNames.has(name)) throw new Error(`Code: 115. DB::Exception: Setting ${name} is neither a builtin setting nor started with the prefix. (UNKNOWN_SETTING) (version 0)`);
      settings[name] = value;
    }
  }
  let path: string | undefined;
  let statement = sql;
  if (data !== undefined) {
    path = join(bodies, `${++bodyFiles}.body`);
    writeFileSync(path, data);
    const file = quote(path);
    const rows = /\binput\(/.test(sql) ? null : /^(INSERT INTO .*) (FORMAT \w+)\s*$/s.exec(sql);
    statement = rows !== null ? `${rows[1]} FROM INFILE ${file} ${rows[2]}` : sql.replace(/\s*FORMAT RowBinary\s*$/, '').replace(/\binput\(('(?:[^'\\]|\\.)*')\)/, (_, structure: string) => `file(${file}, 'RowBinary', ${structure})`);
  }
  const session = openSession(settings, queryId, role);
  const onClose = (): void => {
    if (!res.writableFinished && url.searchParams.get('cancel_http_readonly_queries_on_client_close') === '1') control.query(`KILL QUERY WHERE Settings['log_comment'] = ${quote(queryId)} ASYNC`);
  };
  res.once('close', onClose);
  try {
    // a server asks for no right to the database that a request names; USE does
    if (role !== 'NONE') await session.queryAsync(`USE ${url.searchParams.get('database') ?? 'default'}`);
    const result = await session.queryAsync(`${params.length === 0 ? '' : `SET ${params.join(', ')}; `}${statement}`, { format: url.searchParams.get('default_format') ?? 'TabSeparated' });
    return { body: Buffer.from(result.bytes()), rows: result.rowsRead, bytes: result.bytesRead };
  } finally {
    res.removeListener('close', onClose);
    session.close();
    if (path !== undefined) rmSync(path, { force: true });
  }
}

function answerError(res: ServerResponse, message: string): void {
  const code = /Code: (\d+)/.exec(message)?.[1] ?? '1002';
  res.writeHead(statusOf(Number(code)), { 'content-type': 'text/plain; charset=UTF-8', 'x-clickhouse-exception-code': code });
  res.end(`${message}\n`);
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

async function readBody(req: IncomingMessage): Promise<Buffer> {
  const encoding = req.headers['content-encoding'];
  const stream = encoding === 'gzip' ? req.pipe(createGunzip()) : encoding === 'zstd' ? req.pipe(createZstdDecompress()) : encoding === 'br' ? req.pipe(createBrotliDecompress()) : req;
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
