import { once } from 'node:events';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { assertOwn, makeDataFolder } from '../../config/data-folder.ts';
import type { Settings } from '../../config/settings.ts';
import { StartError } from '../../errors.ts';
import type { Component } from '../../lifecycle/run.ts';
import { within } from '../../lifecycle/within.ts';
import type { Logger } from '../../logger.ts';
import { probe } from '../probe.ts';
import { Unavailable, type Backend, type Run } from './backend.ts';
import { findContainer, findDocker, startWithDocker } from './docker.ts';
import { findJava, findJavaBroker, kafkaJars, startWithJava } from './java.ts';
import { commandOf } from './process.ts';
import { serverProperties, type MoreListeners } from './server-properties.ts';

type BrokerSettings = Pick<Settings, 'KAFKA_PORT' | 'DATA_DIR' | 'CACHE_DIR' | 'JAVA_HOME' | 'FSYNC'>;

interface Options {
  readonly more?: MoreListeners | undefined;
  /** aborts the start */
  readonly signal?: AbortSignal | undefined;
}

/** A Kafka that this process uses. */
export interface Broker extends Component {
  /** host:port each */
  readonly brokers: readonly string[];
}

/** A Kafka that we started on this machine. */
export interface LocalBroker extends Required<Broker> {
  readonly run: Run;
}

/** A killed broker reads its whole log at the next start. */
const READY_DEADLINE_MS = 60_000;
const PROBE_EVERY_MS = 30;
/** run.ts gives the whole shutdown 9 s; an ordinary stop takes 0.3 s. */
const STOP_DEADLINE_MS = 5_000;

/**
 * Written beside the data while a broker runs. It names the owning process by pid and command line, because another
 * process may have the pid by now.
 */
interface Running {
  readonly run: Run;
  readonly owner: { readonly pid: number; readonly command: string };
}

/**
 * Starts Kafka on this machine. Ends the one that a killed process left in the same data folder first. It uses
 * Docker if it answers, else Java 17 or newer. Both keep the same data in the data folder across starts.
 * It runs in its own process group: ctrl-C in a terminal reaches us, and we stop it last.
 * Throws StartError (one line) if the port or the data folder is in use, or if neither way is available.
 */
export async function startLocalBroker(
  settings: BrokerSettings,
  logger: Logger,
  options: Options = {},
): Promise<LocalBroker> {
  const { KAFKA_PORT: port } = settings;
  const home = join(resolve(settings.DATA_DIR), 'kafka');
  assertOwn(home);
  for (const folder of [dirname(home), home]) makeDataFolder(folder);
  const left = await leftRunning(home);
  if (left !== undefined) {
    logger.info({ ...left.run }, 'local_broker_replaced');
    await endBroker(left);
  }

  await assertPortFree(port);
  const started = performance.now();
  const backend = await startBackend(settings, home, logger, options);
  await writeRecord(home, backend.run);
  const failure = await whyNotReady(backend, port, options.signal);
  if (failure !== undefined) {
    await backend.kill();
    rmSync(recordFile(home), { force: true });
    throw new StartError(failure);
  }
  logger.info(
    { port, ...backend.run, seconds: Math.round((performance.now() - started) / 100) / 10 },
    'local_broker_started',
  );
  return localBroker(backend, home, port);
}

async function startBackend(
  { KAFKA_PORT: port, CACHE_DIR, JAVA_HOME, FSYNC: fsync }: BrokerSettings,
  home: string,
  logger: Logger,
  { signal, more }: Options,
): Promise<Backend> {
  const write = async (bindHost: string): Promise<void> => {
    writeFileSync(
      join(home, 'server.properties'),
      serverProperties({ port, controllerPort: await freePort(), bindHost, fsync, ...(more && { more }) }),
    );
  };
  const javaFound = findJava(JAVA_HOME);
  javaFound.catch(() => undefined);
  const ways = {
    Docker: async () => {
      const user = await findDocker();
      await write('0.0.0.0');
      return await startWithDocker({ home, port, user, more }, logger, signal);
    },
    Java: async () => {
      const java = await javaFound;
      const classpath = await kafkaJars(CACHE_DIR, logger, signal);
      await write('127.0.0.1');
      return await startWithJava(java, classpath, home, signal, more?.scram);
    },
  };
  const reasons: string[] = [];
  for (const [way, start] of Object.entries(ways)) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      reasons.push(`${way} ${error.message}`);
    }
  }
  throw new StartError(
    `there is no Kafka: set KAFKA_BROKERS=host:port to use a running one, or install Docker, or install Java 17 and Maven (${reasons.join('; ')})`,
  );
}

/** Waits until the broker answers. Returns why it does not; undefined if it does. */
async function whyNotReady(backend: Backend, port: number, signal?: AbortSignal): Promise<string | undefined> {
  const deadline = performance.now() + READY_DEADLINE_MS;
  while ((await probe(`127.0.0.1:${port}`, 2_000)).kind !== 'kafka') {
    if (signal?.aborted === true) return 'stopped while the local Kafka started';
    const how = await within(PROBE_EVERY_MS, backend.exited, undefined);
    if (how !== undefined) return `the local Kafka ended while it started (${how}): ${await backend.lastWords()}`;
    if (performance.now() > deadline)
      return `the local Kafka does not answer on port ${port} after ${READY_DEADLINE_MS / 1000} s: ${await backend.lastWords()}`;
  }
  return undefined;
}

function localBroker(backend: Backend, home: string, port: number): LocalBroker {
  let stopping = false;
  const failed = backend.exited.then(async (how) => {
    if (stopping) return;
    rmSync(recordFile(home), { force: true });
    throw new StartError(`the local Kafka on port ${port} ended (${how}): ${await backend.lastWords()}`);
  });
  failed.catch(() => undefined);
  return {
    name: 'local broker',
    brokers: [`127.0.0.1:${port}`],
    run: backend.run,
    failed,
    stop: async () => {
      stopping = true;
      await endBroker(backend);
      rmSync(recordFile(home), { force: true });
    },
  };
}

export async function endBroker(backend: Backend): Promise<void> {
  await backend.terminate();
  if ((await within(STOP_DEADLINE_MS, backend.exited, undefined)) !== undefined) return;
  await backend.kill();
  await backend.exited;
}

/** Returns the broker that a dead process left in this folder. Throws StartError if that process is alive. */
export async function leftRunning(home: string): Promise<Backend | undefined> {
  const record = readRecord(home);
  if (record === undefined) return undefined;
  const backend =
    record.run.kind === 'java' ? await findJavaBroker(record.run.pid, home) : await findContainer(record.run.container);
  if (backend === undefined) return undefined;
  if ((await commandOf(record.owner.pid)) === record.owner.command)
    throw new StartError(
      `the data folder ${dirname(home)} is in use by process ${record.owner.pid}; set another DATA_DIR (and another PORT and KAFKA_PORT), or stop that process`,
    );
  return backend;
}

const recordFile = (home: string): string => join(home, 'running.json');

async function writeRecord(home: string, run: Run): Promise<void> {
  const record: Running = { run, owner: { pid: process.pid, command: (await commandOf(process.pid)) ?? '' } };
  const part = `${recordFile(home)}.part`;
  writeFileSync(part, JSON.stringify(record));
  renameSync(part, recordFile(home));
}

function readRecord(home: string): Running | undefined {
  try {
    return JSON.parse(readFileSync(recordFile(home), 'utf8')) as Running;
  } catch {
    return undefined; // there is none; it is written whole
  }
}

async function assertPortFree(port: number): Promise<void> {
  try {
    await listenOnce(port);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new StartError(
      code === 'EADDRINUSE'
        ? `the port 127.0.0.1:${port} of the local Kafka is in use: set KAFKA_BROKERS=127.0.0.1:${port} if a Kafka runs there, or KAFKA_PORT to a free one`
        : `the local Kafka cannot listen on 127.0.0.1:${port} (${code}); set KAFKA_PORT`,
    );
  }
}

/** Returns a free port. */
export function freePort(): Promise<number> {
  return listenOnce(0);
}

/** Listens on a port of this machine, or any free one (0), for a moment. Returns its number. */
async function listenOnce(port: number): Promise<number> {
  const server = net.createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  const { port: opened } = server.address() as net.AddressInfo;
  await once(server.close(), 'close');
  return opened;
}
