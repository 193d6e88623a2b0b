import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../errors.ts';
import { isCertificateError, speaksTls } from '../../tls.ts';
import { ClickHouseError } from '../errors.ts';
import type { Names } from '../pinned-settings.ts';
import type { Connection } from './connection.ts';
import type { ServerOptions } from './server.ts';
import { identifier } from '../sql.ts';

/** What is known of a server. It may be replaced by one of another version at any time. */
export type ServerVersion = Awaited<ReturnType<typeof readVersion>>;

type Waiting = Pick<ServerOptions, 'logger' | 'wait' | 'signal' | 'firstAnswerMs'>;

const OLDEST_VERSION = [25, 8] as const;
const CONNECT_RETRY_MS = 1_000;

/** Resolves when the server has answered. Throws StartError (one line) if waiting cannot help. */
export async function readVersion(connection: Connection, waiting: Waiting) {
  const { where } = connection;
  const timeoutMs = waiting.firstAnswerMs ?? null;
  let version = await untilAnswered(connection, waiting, () => connection.ask('SELECT version()', timeoutMs));
  const [year = 0, month = 0] = version.split('.').map(Number);
  // also of what is no version
  if (!(year > OLDEST_VERSION[0] || (year === OLDEST_VERSION[0] && month >= OLDEST_VERSION[1])))
    throw new StartError(
      `ClickHouse at ${where} is version ${version}; ${OLDEST_VERSION.join('.')} or newer is needed`,
    );
  let settings = await untilAnswered(connection, waiting, () => namesOfSettings(connection, timeoutMs));
  let learning: Promise<void> | undefined;
  return {
    get version() {
      return version;
    },
    /** names of the server's settings */
    get settings() {
      return settings;
    },
    /** Reads the version again, and if it changed, the settings. */
    learn(): Promise<void> {
      learning ??= (async () => {
        const found = await connection.ask('SELECT version()');
        if (found === version) return;
        waiting.logger.info({ version: found, before: version, where }, 'clickhouse_version_changed');
        settings = await namesOfSettings(connection);
        version = found;
      })().finally(() => {
        learning = undefined;
      });
      return learning;
    },
  };
}

async function namesOfSettings(connection: Connection, timeoutMs?: number | null): Promise<Names> {
  return new Set((await connection.ask('SELECT name FROM system.settings', timeoutMs)).split('\n'));
}

/**
 * Returns the answer to a question of the start, and waits for it. Throws StartError if waiting cannot help, or nobody
 * waits.
 */
export async function untilAnswered<T>(
  connection: Connection,
  { logger, wait = true, signal }: Waiting,
  question: () => Promise<T>,
): Promise<T> {
  const { where, address } = connection;
  for (let attempt = 0; ; attempt++) {
    try {
      return await question();
    } catch (error) {
      if (!(error instanceof ClickHouseError)) throw error;
      if (error.kind !== 'retry') throw new StartError(startMessage(error, connection), { cause: error });
      if (
        address.protocol === 'http:' &&
        error.codeName === 'ECONNRESET' &&
        (await speaksTls({ host: address.hostname.replace(/^\[|\]$/g, ''), port: Number(address.port || 80) }))
      ) {
        throw new StartError(`ClickHouse at ${where} speaks TLS on this port; use https:// in CLICKHOUSE_URL`, {
          cause: error,
        });
      }
      if (!wait) throw new StartError(`ClickHouse at ${where} does not answer: ${error.codeName}`, { cause: error });
      if (attempt % 10 === 0) logger.warn({ where, reason: error.codeName }, 'waiting_for_clickhouse');
      await sleep(CONNECT_RETRY_MS, undefined, { signal });
    }
  }
}

function startMessage(error: ClickHouseError, { where, user, database }: Connection): string {
  if (isCertificateError(error.codeName))
    return `ClickHouse at ${where} has an untrusted certificate (${error.codeName}); set CLICKHOUSE_SSL_CA to the file of its authority`;
  if (error.codeName === 'EPROTO' || error.codeName.startsWith('ERR_SSL_'))
    return `ClickHouse at ${where} does not speak TLS on this port (${error.codeName}); use http:// in CLICKHOUSE_URL`;
  if (error.code === undefined)
    return `${where} does not answer like ClickHouse's HTTP interface (${error.codeName}); check CLICKHOUSE_URL`;
  if ([192, 193, 194, 516].includes(error.code))
    return `ClickHouse at ${where} refuses the user ${user} or its password; check CLICKHOUSE_URL`;
  if (error.code === 164)
    return `ClickHouse at ${where}: the profile of the user ${user} sets readonly, so statements cannot set the settings that they depend on; set readonly to 0 for this user`;
  if (error.code === 452)
    return `ClickHouse at ${where} refuses a setting that sluice depends on: ${error.message.split('\n', 1)[0]}; remove its constraint from the profile of the user ${user}`;
  if (error.code === 81)
    return `ClickHouse at ${where} has no database ${database}; create it: CREATE DATABASE ${identifier(database)}`;
  return `ClickHouse at ${where} refuses the first query: ${error.codeName}`;
}
