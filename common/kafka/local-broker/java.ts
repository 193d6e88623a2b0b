import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, renameSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from '../../logger.ts';
import { makeFolder } from '../../make-folder.ts';
import { Unavailable, type Backend } from './backend.ts';
import { commandOf, lastLine, run } from './process.ts';
import { KAFKA_VERSION, formatArguments, formatClass, javaArguments, serverClass } from './server-properties.ts';

const JAVA_TIMEOUT_MS = 60_000;
/** bytes of all jars; Maven also downloads its own plugins the first time */
const JARS_MEGABYTES = 54;
/** enough for 54 MB over a slow line */
const MAVEN_TIMEOUT_MS = 15 * 60_000;
const OLDEST_JAVA = 17;

/**
 * Returns the major version in the output of `java -version` ("17.0.15" is 17, "1.8.0_402" is 8). Undefined if there is
 * none.
 */
export function javaMajor(output: string): number | undefined {
  const [, first, second] = /version "(\d+)(?:\.(\d+))?/.exec(output) ?? [];
  return first === undefined ? undefined : Number(first === '1' ? second : first);
}

/** Returns the java of JAVA_HOME, else the one on the PATH. Throws Unavailable. */
export async function findJava(javaHome: string | undefined): Promise<string> {
  const java = javaHome === undefined ? 'java' : join(javaHome, 'bin', 'java');
  const { code, stdout, stderr } = await run(java, ['-version'], { timeout: 10_000 });
  const major = code === 0 ? javaMajor(stderr + stdout) : undefined;
  if (major === undefined) throw new Unavailable(`is not installed (${java} -version: ${lastLine(stderr)})`);
  if (major < OLDEST_JAVA) throw new Unavailable(`is version ${major}, Kafka needs ${OLDEST_JAVA} or newer`);
  return java;
}

/**
 * Returns the classpath of the jars in the cache folder. The first time, Maven downloads them there for all data
 * folders of this user. Throws Unavailable.
 */
export async function kafkaJars(cacheDir: string, logger: Logger, signal: AbortSignal | undefined): Promise<string> {
  const folder = join(cacheDir, `kafka-${KAFKA_VERSION}`);
  if (!existsSync(folder)) {
    logger.info({ into: folder, megabytes: JARS_MEGABYTES }, 'kafka_jars_fetching');
    const part = `${folder}.${process.pid}.part`;
    makeFolder(cacheDir);
    const pom = fileURLToPath(new URL('pom.xml', import.meta.url));
    const { code, stdout, stderr } = await run(
      'mvn',
      ['-B', '-f', pom, 'dependency:copy-dependencies', '-DincludeScope=runtime', `-DoutputDirectory=${part}`],
      { cwd: cacheDir, timeout: MAVEN_TIMEOUT_MS, signal },
    );
    if (code !== 0) {
      rmSync(part, { recursive: true, force: true });
      throw new Unavailable(
        `is installed, but Maven cannot fetch Kafka's jars (mvn: ${/^\[ERROR\] (.+)$/m.exec(stdout)?.[1] ?? lastLine(stderr)})`,
      );
    }
    try {
      renameSync(part, folder);
    } catch (error) {
      // another process was faster
      rmSync(part, { recursive: true, force: true });
      if (!existsSync(folder)) throw error;
    }
  }
  return join(folder, '*');
}

/** Starts Kafka in `home` (server.properties is there). The first start formats the data folder. */
export async function startWithJava(
  java: string,
  classpath: string,
  home: string,
  signal: AbortSignal | undefined,
  scram: readonly string[] = [],
): Promise<Backend> {
  const properties = join(home, 'server.properties');
  // Java reads the names of files by the locale
  const env = { ...process.env, LC_ALL: 'C.UTF-8' };
  if (!existsSync(join(home, 'data', 'meta.properties'))) {
    const { code, stdout, stderr } = await run(
      java,
      javaArguments(classpath, formatClass, ...formatArguments(properties, scram)),
      { cwd: home, env, timeout: JAVA_TIMEOUT_MS, signal },
    );
    if (code !== 0)
      throw new Unavailable(`is installed, but Kafka cannot format its data folder: ${lastLine(stdout + stderr)}`);
  }
  const output = openSync(join(home, 'broker.log'), 'w');
  // in its own process group, so it survives a ctrl-C in our terminal
  const child = spawn(java, javaArguments(classpath, serverClass, properties), {
    cwd: home,
    env,
    detached: true,
    stdio: ['ignore', output, output],
  });
  closeSync(output);
  child.unref();
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, killedBy) => resolve(killedBy ?? `exit code ${code}`));
  });
  if (child.pid === undefined) throw new Unavailable(`cannot be started: ${await exited}`);
  return backend(child.pid, home, exited);
}

/** Returns the broker with this pid if it still runs in `home`, whoever started it. */
export async function findJavaBroker(pid: number, home: string): Promise<Backend | undefined> {
  return (await isBroker(pid, home)) ? backend(pid, home, endOf(pid, home)) : undefined;
}

/** Resolves when a broker that another process started has ended. Does not keep our process alive. */
async function endOf(pid: number, home: string): Promise<string> {
  while (await isBroker(pid, home)) await sleep(100, undefined, { ref: false });
  return 'ended';
}

async function isBroker(pid: number, home: string): Promise<boolean> {
  return (await commandOf(pid))?.includes(join(home, 'server.properties')) ?? false;
}

function backend(pid: number, home: string, exited: Promise<string>): Backend {
  const send = async (signal: NodeJS.Signals): Promise<void> => {
    if (await isBroker(pid, home)) process.kill(pid, signal);
  };
  return {
    run: { kind: 'java', pid },
    exited,
    terminate: () => send('SIGTERM'),
    kill: () => send('SIGKILL'),
    lastWords: async () => {
      const log = join(home, 'broker.log');
      return `${lastLine(await readFile(log, 'utf8').catch(() => ''))}; see ${log}`;
    },
  };
}
