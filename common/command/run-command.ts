import http from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { ClickHouseError } from '../clickhouse/errors.ts';
import { openClickHouse } from '../clickhouse/open.ts';
import { keepToOwner, keyFile, readOwnFile } from '../config/data-folder.ts';
import { PROOF_PATH, isProof, newNonce, readProofSecret } from '../config/service-proof.ts';
import { readSettings, type Settings } from '../config/settings.ts';
import { EXIT_CONFIG, EXIT_USAGE, StartError, UsageError } from '../errors.ts';
import { addressOf, endOf } from '../http/address.ts';
import { endProcess } from '../lifecycle/end-process.ts';
import { createLogger } from '../logger.ts';
import { trusting } from '../tls.ts';
import { helpOf, readCommandLine } from './command-line.ts';
import { COMMAND_TIMEOUT_MS, type Command } from './command.ts';
import { printable } from './printable.ts';

/** As a shell reports a process that SIGINT ended. */
const EXIT_INTERRUPTED = 130;
/** How long a listener may take for its proof, milliseconds. */
const PROOF_TIMEOUT_MS = 30_000;
/** What to do about npm run query, which is no npm start. */
const WITHOUT_COMMANDS = 'set CLICKHOUSE_URL to the ClickHouse that it uses';

/** Runs a command line, given the words behind the command's name, and sets the exit code. Never throws. */
export async function runCommandLine<Args, Result>(
  command: Command<Args, Result>,
  words: readonly string[],
): Promise<void> {
  keepToOwner();
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // whoever reads it has seen enough
    if (error.code !== 'EPIPE') throw error;
  });
  try {
    const line = readCommandLine(command, words);
    if (line === 'help') {
      process.stdout.write(helpOf(command));
      return;
    }
    const left = command.interrupted?.(line.args);
    if (left !== undefined)
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupt(left));
    const result = await resultOf(command, line.args, readSettings(), line.url);
    const text = line.isJson ? `${jsonOf(command, result)}\n` : command.print(result);
    // foreign bytes go to a file unchanged, to a terminal as safe text
    const shown = typeof text === 'string' || process.stdout.isTTY ? printable(text.toString('utf8')) : text;
    await new Promise<void>((resolve) => {
      process.stdout.write(shown, () => resolve());
    });
    process.exitCode = command.exitCode?.(result) ?? 0;
  } catch (error) {
    const [exitCode, line] =
      error instanceof UsageError
        ? [EXIT_USAGE, `${error.message}; see npm run ${command.name} -- --help`]
        : error instanceof StartError
          ? [error.exitCode, `sluice: ${error.message}`]
          : [1, `sluice: ${error instanceof Error ? error.stack : String(error)}`];
    process.exitCode = exitCode;
    process.stderr.write(printable(`${line}\n`));
  }
}

/** Ends the process, also while the embedded engine works. */
function interrupt(left: string): never {
  process.stderr.write(printable(`sluice: ${left}\n`));
  endProcess(EXIT_INTERRUPTED);
}

function jsonOf<Args, Result>(command: Command<Args, Result>, result: Result): string {
  const json = command.json?.(result);
  return typeof json === 'string' ? json : JSON.stringify(json ?? result);
}

async function resultOf<Args, Result>(
  command: Command<Args, Result>,
  args: Args,
  settings: Settings,
  url: string | undefined,
): Promise<Result> {
  const { needs } = command;
  if (needs !== undefined && url !== undefined)
    throw new UsageError('this command asks no service, so it takes no --url');
  if (needs !== undefined && settings[needs] === undefined)
    throw new StartError(`npm run ${command.name} needs ${needs}`, { exitCode: EXIT_CONFIG });
  if (needs === undefined && (url !== undefined || settings.CLICKHOUSE_URL === undefined)) {
    const answered = await askService(command, args, settings, url);
    if (answered !== undefined) return answered;
  }
  const logger = createLogger('warn');
  const clickhouse = await openClickHouse(settings, logger, {
    wait: false,
    create: command.mayCreate?.(args) ?? false,
  });
  try {
    return await command.run({ clickhouse, settings, logger }, args);
  } catch (error) {
    throw error instanceof ClickHouseError ? failureOf(error, clickhouse.where, command) : error;
  } finally {
    await clickhouse.close();
  }
}

/**
 * Returns the line for an error of ClickHouse, or of what is before it: a missing right, memory, a proxy. The error
 * itself if it has no such cause, but is a defect.
 */
function failureOf(
  error: ClickHouseError,
  where: string,
  { afterUnknown }: Pick<Command, 'afterUnknown'>,
): StartError | ClickHouseError {
  if (error.codeName === 'UNKNOWN_TABLE')
    return new StartError(`${where} has no schema yet; npm start or the rollup service creates it`, { cause: error });
  if (error.code === undefined && error.codeName === 'UNKNOWN') return error;
  const doubt = ['its outcome is unknown', afterUnknown].filter((text) => text !== undefined).join(': ');
  return new StartError(
    `ClickHouse: ${error.message.trim().replaceAll(/\s+/g, ' ')}${error.outcome === 'unknown' ? `; ${doubt}` : ''}`,
    { cause: error },
  );
}

/**
 * Returns the service's result. Undefined if the operator named no address, and nobody listens at that of the settings.
 * Whoever listens there must first prove to be the service of the data folder. Only then, and on the same connection,
 * the key is sent.
 */
async function askService<Args, Result>(
  command: Command<Args, Result>,
  args: Args,
  settings: Settings,
  named: string | undefined,
): Promise<Result | undefined> {
  const url = named ?? addressOf(settings.HOST, settings.PORT, settings.HTTPS_CERT === undefined ? 'http' : 'https');
  const key = settings.API_KEY ?? readOwnFile(keyFile(settings.DATA_DIR));
  const connection = connectTo(url, settings.HTTPS_CERT);
  let answer: Answer;
  try {
    if (named === undefined) await demandProof(connection, url, settings);
    answer = await connection.send(
      'POST',
      `/api/commands/${command.name}`,
      { 'content-type': 'application/json', ...(key === undefined ? {} : { 'x-api-key': key }) },
      JSON.stringify(args),
      named === undefined,
    );
  } catch (error) {
    if (error instanceof StartError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') {
      if (named === undefined) return undefined;
      throw new StartError(`no service answers at ${url}`);
    }
    throw new StartError(`the service at ${url} does not answer: ${code ?? message}`);
  } finally {
    connection.close();
  }
  const body = parsed(answer.text);
  if (answer.status === 200 && body !== undefined && 'result' in body) return body.result as Result;
  if (answer.status === 404)
    throw new StartError(`the service at ${url} does not run this command: ${WITHOUT_COMMANDS}`);
  const message = `the service at ${url} refuses: ${body?.error?.message ?? `status ${answer.status}`}`;
  throw answer.status === 400 ? new UsageError(message) : new StartError(message);
}

async function demandProof(
  connection: Connection,
  url: string,
  { DATA_DIR }: Pick<Settings, 'DATA_DIR'>,
): Promise<void> {
  const nonce = newNonce();
  const { status, text: answer, from } = await connection.send('GET', `${PROOF_PATH}?nonce=${nonce}`, {}, '', false);
  const secret = readProofSecret(DATA_DIR);
  if (secret !== undefined && isProof(secret, from, nonce, parsed(answer)?.proof)) return;
  throw new StartError(
    `the listener at ${url} does not prove to be the service of the data folder ${DATA_DIR}, so it does not get the key; restart the service if it is of an older version, set DATA_DIR, HOST and PORT to those of the service, or, if you know who listens there, use --url ${url}${status === 404 ? `. If it is npm run query, ${WITHOUT_COMMANDS}` : ''}`,
  );
}

interface Answer {
  readonly status: number;
  readonly text: string;
  /** address and port of the listener, as endOf writes them */
  readonly from: string;
}

interface Body {
  readonly result?: unknown;
  readonly proof?: unknown;
  readonly error?: { readonly message?: string };
}

/** Undefined if the text is no JSON object. */
function parsed(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

type Connection = ReturnType<typeof connectTo>;

/** Opens one connection. With TLS it trusts the service's own certificate, if known. */
function connectTo(url: string, certificate: string | undefined) {
  const client = new URL(url).protocol === 'https:' ? https : http;
  // with an identity check per request, the agent would not reuse the connection
  const agent = new client.Agent({ keepAlive: true, maxSockets: 1, ...trusting(certificate) });
  let used: Socket | undefined;
  return {
    close: (): void => agent.destroy(),
    /** `again`: only on the connection of the previous call; rejects if that is closed */
    send: (
      method: 'GET' | 'POST',
      path: string,
      headers: Readonly<Record<string, string>>,
      body: string,
      again: boolean,
    ): Promise<Answer> =>
      new Promise((resolve, reject) => {
        const limitMs = method === 'POST' ? COMMAND_TIMEOUT_MS : PROOF_TIMEOUT_MS;
        const signal = AbortSignal.timeout(limitMs);
        const request = client.request(new URL(path, url), { method, agent, headers, signal });
        const fail = (error: Error): void =>
          reject(
            signal.aborted
              ? new StartError(`the service at ${url} gave no answer within ${limitMs / 1000} s`, { cause: error })
              : error,
          );
        request.once('error', fail);
        request.once('response', (response) => {
          const from = endOf(response.socket.remoteAddress, response.socket.remotePort);
          text(response).then((all) => resolve({ status: response.statusCode ?? 0, text: all, from }), fail);
        });
        // send nothing before the socket is known
        request.once('socket', (socket) => {
          if (again && socket !== used) request.destroy(new Error('the connection was closed'));
          else request.end(body);
          used = socket;
        });
      }),
  };
}
