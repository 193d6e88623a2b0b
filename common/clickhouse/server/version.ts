import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../errors.ts';
import { isCertificateError, speaksTls } from '../../tls.ts';
import { ClickHouseError } from '../errors.ts';
import type { Connection } from './connection.ts';
import type { ServerOptions } from './server.ts';
import { identifier } from '../sql.ts';

/** What is known of a server. It may be replaced by one of another version at any time. */
export type ServerVersion = Awaited<ReturnType<typeof readVersion>>;

type Waiting = Pick<ServerOptions, 'logger' | 'wait' | 'signal' | 'setting'>;

/** A service in ClickHouse Cloud that sleeps answers only when it has woken up, milliseconds. */
const FIRST_ANSWER_MS = 60_000;

const OLDEST_VERSION = '25.8';
const CONNECT_RETRY_MS = 1_000;

/** Resolves when the server has answered. Throws StartError (one line) if waiting cannot help. */
export async function readVersion(
  connection: Connection,
  { firstAnswerMs = FIRST_ANSWER_MS, ...waiting }: Waiting & Pick<ServerOptions, 'firstAnswerMs'>,
) {
  const { where } = connection;
  const version = await onceAnswered(connection, waiting, () => connection.ask('SELECT version()', firstAnswerMs));
  // also of what is no version
  if (!(monthOf(version) >= monthOf(OLDEST_VERSION)))
    throw new StartError(`ClickHouse at ${where} is version ${version}; ${OLDEST_VERSION} or newer is needed`);
  let learning: Promise<void> | undefined;
  const server = {
    version,
    /** names of the server's settings */
    settings: await onceAnswered(connection, waiting, () => namesOfSettings(connection, version)),
    /** Reads the version again, and if it changed, the settings. */
    learn(): Promise<void> {
      learning ??= learn().finally(() => {
        learning = undefined;
      });
      return learning;
    },
  };
  return server;

  async function learn(): Promise<void> {
    const found = await connection.ask('SELECT version()');
    if (found === server.version) return;
    waiting.logger.info({ version: found, before: server.version, where }, 'clickhouse_version_changed');
    server.settings = await namesOfSettings(connection, found);
    server.version = found;
  }
}

/** Returns the number of the month of a version, for instance 25 * 100 + 8 of 25.8.2.1. */
function monthOf(version: string): number {
  const [year, month] = version.split('.').map(Number);
  return year! * 100 + month!;
}

/**
 * Before this version, a disk whose free space is unknown (S3, Azure, GCS) counts as full for this setting: each insert
 * would be refused (243), for good.
 */
const KNOWS_UNKNOWN_SPACE = '26.1';
const FREE_SPACE = 'min_free_disk_bytes_to_perform_insert';

/** Returns the names of the settings that statements may have there. */
async function namesOfSettings(connection: Connection, version: string): Promise<ReadonlySet<string>> {
  const names = new Set((await connection.ask('SELECT name FROM system.settings')).split('\n'));
  if (monthOf(version) < monthOf(KNOWS_UNKNOWN_SPACE)) names.delete(FREE_SPACE);
  return names;
}

/** Returns the answer to a question of the start. Throws StartError if waiting cannot help, or nobody waits. */
export async function onceAnswered<T>(
  connection: Connection,
  waiting: Waiting,
  question: () => Promise<T>,
): Promise<T> {
  const { setting = 'CLICKHOUSE_URL' } = waiting;
  return await untilAnswered(connection.where, waiting, () =>
    question().catch(async (error: unknown) => {
      if (!(error instanceof ClickHouseError)) throw error;
      if (error.kind !== 'retry') throw new StartError(startMessage(error, connection, setting), { cause: error });
      if (error.codeName === 'ECONNRESET' && (await speaksTlsOnly(connection.address)))
        throw new StartError(`ClickHouse at ${connection.where} speaks TLS on this port; use https:// in ${setting}`, {
          cause: error,
        });
      throw error;
    }),
  );
}

/** Repeats what may succeed later, every second. Throws StartError if nobody waits. */
export async function untilAnswered<T>(
  where: string,
  { logger, wait = true, signal }: Waiting,
  question: () => Promise<T>,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await question();
    } catch (error) {
      if (!(error instanceof ClickHouseError) || error.kind !== 'retry') throw error;
      const reason = error.codeName;
      if (!wait) throw new StartError(`ClickHouse at ${where} does not answer: ${reason}`, { cause: error });
      if (attempt % 10 === 0) logger.warn({ where, reason }, 'waiting_for_clickhouse');
      await sleep(CONNECT_RETRY_MS, undefined, { signal });
    }
  }
}

async function speaksTlsOnly({ protocol, hostname, port }: URL): Promise<boolean> {
  if (protocol !== 'http:') return false;
  return await speaksTls({ host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 80) });
}

function startMessage(error: ClickHouseError, { where, user, database }: Connection, setting: string): string {
  if (isCertificateError(error.codeName))
    return `ClickHouse at ${where} has an untrusted certificate (${error.codeName}); set CLICKHOUSE_SSL_CA to the file of its authority`;
  if (error.codeName === 'EPROTO' || error.codeName.startsWith('ERR_SSL_'))
    return `ClickHouse at ${where} does not speak TLS on this port (${error.codeName}); use http:// in ${setting}`;
  if (error.code === undefined)
    return `${where} does not answer like ClickHouse's HTTP interface (${error.codeName}); check ${setting}`;
  if ([192, 193, 194, 516].includes(error.code))
    return `ClickHouse at ${where} refuses the user ${user} or its password; check ${setting}`;
  if (error.code === 164)
    return `ClickHouse at ${where}: the profile of the user ${user} sets readonly, so statements cannot set the settings that they depend on; set readonly to 0 for this user`;
  if (error.code === 452)
    return `ClickHouse at ${where} refuses a setting that sluice depends on: ${error.message.split('\n', 1)[0]}; remove its constraint from the profile of the user ${user}`;
  if (error.code === 81)
    return `ClickHouse at ${where} has no database ${database}; create it: CREATE DATABASE ${identifier(database)}`;
  return `ClickHouse at ${where} refuses the first query: ${error.codeName}`;
}
