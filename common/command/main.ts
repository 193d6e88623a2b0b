import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { checkServerIdentity, getCACertificates, type PeerCertificate } from 'node:tls';
import { parseArgs } from 'node:util';
import { ClickHouseError } from '../clickhouse/errors.ts';
import { openClickHouse } from '../clickhouse/open.ts';
import { keyFile } from '../config/key-file.ts';
import { readSettings, type Settings } from '../config/settings.ts';
import { StartError } from '../errors.ts';
import { addressOf } from '../http/address.ts';
import { createLogger } from '../logger.ts';
import { EXIT_USAGE, UsageError, type Command } from './command.ts';

const COMMON_HELP = `
  --url URL    the running service; default http://HOST:PORT, https with HTTPS_CERT
  --json       one JSON document on stdout
  --help       this text
The key of a running service is API_KEY, else the one in DATA_DIR. Exit codes: 0 fine, 1 not, 64 wrong arguments, 78 a wrong setting.`;

/** How long a running service may take for a command, milliseconds. */
const COMMAND_TIMEOUT_MS = 600_000;

/** Runs a command line to its end and sets the exit code; never throws. */
export async function runCommandLine<Args, Result>(command: Command<Args, Result>): Promise<void> {
  try {
    const { values, positionals } = parse(command);
    if (values['help'] === true) {
      process.stdout.write(`${command.help}\n${COMMON_HELP}\n`);
      return;
    }
    const args = command.readArgs(values, positionals);
    const settings = readSettings();
    const result = await resultOf(command, args, settings, typeof values['url'] === 'string' ? values['url'] : undefined);
    const text = values['json'] === true ? `${JSON.stringify(command.json?.(result) ?? result)}\n` : command.print(result);
    await new Promise<void>((resolve) => { process.stdout.write(text, () => resolve()); });
    process.exitCode = command.exitCode(result);
  } catch (error) {
    if (error instanceof UsageError) process.stderr.write(`${error.message}; see npm run ${command.name} -- --help\n`);
    else process.stderr.write(`sluice: ${error instanceof StartError ? error.message : error instanceof Error ? error.stack : String(error)}\n`);
    process.exitCode = error instanceof UsageError ? EXIT_USAGE : error instanceof StartError ? error.exitCode : 1;
  }
}

function parse<Args, Result>(command: Command<Args, Result>): { values: Record<string, string | boolean | undefined>; positionals: string[] } {
  try {
    const { values, positionals } = parseArgs({
      options: { ...command.options, url: { type: 'string' }, json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
      allowPositionals: true,
      strict: true,
    });
    return { values, positionals };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

async function resultOf<Args, Result>(command: Command<Args, Result>, args: Args, settings: Settings, url: string | undefined): Promise<Result> {
  if (url !== undefined || settings.CLICKHOUSE_URL === undefined) {
    const answered = await askService(command, args, settings, url ?? addressOf(settings.HOST, settings.PORT, settings.HTTPS_CERT === undefined ? 'http' : 'https'));
    if (answered !== undefined) return answered.result as Result;
    if (url !== undefined) throw new StartError(`no service answers at ${url}`);
  }
  const logger = createLogger('warn');
  const clickhouse = await openClickHouse(settings, logger, { wait: false });
  try {
    return await command.run({ clickhouse, settings, logger }, args);
  } catch (error) {
    if (error instanceof ClickHouseError && error.codeName === 'UNKNOWN_TABLE') throw new StartError(`${clickhouse.where} has no schema yet: npm start, or the rollup service, makes it`, { cause: error });
    throw error;
  } finally {
    await clickhouse.close();
  }
}

/** Undefined = nobody listens there. */
async function askService<Args, Result>(command: Command<Args, Result>, args: Args, settings: Settings, url: string): Promise<{ result: unknown } | undefined> {
  const key = settings.API_KEY ?? storedKey(settings.DATA_DIR);
  let answer: Answer;
  try {
    answer = await post(new URL(`/api/commands/${command.name}`, url), { 'content-type': 'application/json', ...(key === undefined ? {} : { 'x-api-key': key }) }, JSON.stringify(args), settings.HTTPS_CERT);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') return undefined;
    throw new StartError(`the service at ${url} does not answer: ${code ?? message}`);
  }
  const body = parsed(answer.text);
  if (answer.status === 200 && body !== undefined && 'result' in body) return { result: body.result };
  throw new StartError(`the service at ${url} refuses: ${body?.error?.message ?? `status ${answer.status}`}`);
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

function parsed(text: string): { result?: unknown; error?: { message?: string } } | undefined {
  try {
    return JSON.parse(text) as { result?: unknown; error?: { message?: string } };
  } catch {
    return undefined;
  }
}

/** By TLS the service's own certificate, where it is known, is trusted under whatever name the service is called. */
function post(url: URL, headers: Readonly<Record<string, string>>, body: string, certificate: string | undefined): Promise<Answer> {
  const own = certificate === undefined ? undefined : readFileSync(certificate);
  const fingerprint = own && new X509Certificate(own).fingerprint256;
  const trusted = own && {
    ca: [...getCACertificates('default'), own],
    allowPartialTrustChain: true,
    checkServerIdentity: (host: string, peer: PeerCertificate) => (peer.fingerprint256 === fingerprint ? undefined : checkServerIdentity(host, peer)),
  };
  return new Promise((resolve, reject) => {
    const options = { method: 'POST', headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) }, signal: AbortSignal.timeout(COMMAND_TIMEOUT_MS) };
    const request = url.protocol === 'https:' ? httpsRequest(url, { ...options, ...trusted }) : httpRequest(url, options);
    request.once('error', reject);
    request.once('response', (response) => {
      text(response).then((all) => resolve({ status: response.statusCode ?? 0, text: all }), reject);
    });
    request.end(body);
  });
}

function storedKey(dataDir: string): string | undefined {
  try {
    return readFileSync(keyFile(dataDir), 'utf8').trim();
  } catch {
    return undefined;
  }
}
