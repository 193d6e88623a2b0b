import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/**
 * A ClickHouse server for tests where there is none: a child process with the embedded engine behind ClickHouse's HTTP interface, so that the calls of
 * @clickhouse/client, its sockets and its errors are real; and faults to be injected between the two.
 */
export interface Fault {
  /** regular expression on the statement; absent = every statement (pings are never hit) */
  readonly match?: string;
  /** and regular expression on its data, byte by byte (latin1), which has come in whole by then */
  readonly body?: string;
  /** how many statements it hits; default 1 */
  times?: number;
  /**
   * Before the engine sees the statement:
   * - reset: the connection is closed; cut_request: closed in the middle of the body
   * - hang: no answer ever; delay: executed after `ms`
   * - error: an error of ClickHouse by number; garbage: a proxy's words with `status`
   * After the engine has executed it:
   * - reset_after, hang_after, error_after: the same, but it is stored
   * - cut_response: the connection breaks off in the body; late_exception: an exception behind the rows of a 200, as from 25.11 on
   */
  readonly action: 'reset' | 'cut_request' | 'hang' | 'delay' | 'error' | 'garbage' | 'reset_after' | 'hang_after' | 'error_after' | 'cut_response' | 'late_exception';
  readonly code?: number;
  readonly status?: number;
  readonly ms?: number;
}

export interface FaceOptions {
  /** the engine's folder; survives stop and kill */
  readonly dataDir: string;
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
  readonly pid: number;
  /** Replaces the faults that are waiting to happen. */
  inject(...faults: Fault[]): Promise<void>;
  /** The port is closed and all connections with it; the engine lives on. */
  down(): Promise<void>;
  up(): Promise<void>;
  /** kill -9 */
  kill(): Promise<void>;
  stop(): Promise<void>;
}

export type ToFace = { kind: 'faults'; id: number; faults: Fault[] } | { kind: 'down'; id: number } | { kind: 'up'; id: number; port: number };
export type FromFace = { kind: 'listening'; port: number } | { kind: 'done'; id: number };

/** the user without any right, with the password of the other */
export const NOBODY = 'nobody';
const PROCESS = fileURLToPath(new URL('clickhouse-face-process.ts', import.meta.url));

export async function startFace({ dataDir, database = 'sluice', user = 'default', password = '', version = '', port = 0, tls }: FaceOptions): Promise<Face> {
  const options: Required<FaceOptions> = { dataDir, database, user, password, version, port, tls };
  const child = fork(PROCESS, [JSON.stringify(options)], { env: { ...process.env, UV_THREADPOOL_SIZE: '32' }, execArgv: [] });
  const waiting = new Map<number, () => void>();
  let lastId = 0;
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const listening = await new Promise<number>((resolve, reject) => {
    child.on('message', (message: FromFace) => {
      if (message.kind === 'listening') resolve(message.port);
      else {
        waiting.get(message.id)?.();
        waiting.delete(message.id);
      }
    });
    child.once('exit', (code, signal) => reject(new Error(`the HTTP face ended before it listened (exit ${code ?? signal})`)));
  });
  const ask = (message: (id: number) => ToFace): Promise<void> => new Promise((resolve, reject) => {
    const id = ++lastId;
    waiting.set(id, resolve);
    child.send(message(id), (error) => { if (error !== null) reject(error); });
  });
  const end = async (signal: 'SIGTERM' | 'SIGKILL'): Promise<void> => {
    child.kill(signal);
    await exited;
  };
  const urlOf = (name: string): string => `http${tls === undefined ? '' : 's'}://${encodeURIComponent(name)}${password === '' ? '' : `:${encodeURIComponent(password)}`}@127.0.0.1:${listening}/${database}`;
  return {
    url: urlOf(user),
    sandboxUrl: urlOf(NOBODY),
    pid: child.pid!,
    inject: (...faults) => ask((id) => ({ kind: 'faults', id, faults })),
    down: () => ask((id) => ({ kind: 'down', id })),
    up: () => ask((id) => ({ kind: 'up', id, port: listening })),
    kill: () => end('SIGKILL'),
    stop: () => end('SIGTERM'),
  };
}
