import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '../../logger.ts';
import { Unavailable, type Backend } from './backend.ts';
import { lastLine, run, type Outcome } from './process.ts';
import {
  KAFKA_VERSION,
  formatArguments,
  formatClass,
  javaArguments,
  serverClass,
  type MoreListeners,
} from './server-properties.ts';

const KAFKA_IMAGE = `apache/kafka:${KAFKA_VERSION}`;
/** of the image */
const CLASSPATH = '/opt/kafka/libs/*';
/** path of the broker's folder in the container */
const HOME = '/sluice';

/** A container does not inherit our umask. The broker's files are for its owner only. */
const PRIVATE_JAVA = 'umask 077; exec java "$@"';

/** A daemon that hangs counts as absent. */
const PROBE_TIMEOUT_MS = 3_000;
const DOCKER_TIMEOUT_MS = 60_000;
const PULL_TIMEOUT_MS = 15 * 60_000;

/** One container per data folder. */
export function containerName(home: string): string {
  return `sluice-kafka-${createHash('sha256').update(home).digest('hex').slice(0, 12)}`;
}

interface DockerLayout {
  /** the broker's folder on the host */
  readonly home: string;
  readonly port: number;
  /** `uid:gid` that owns the files */
  readonly user: string;
  readonly more?: MoreListeners | undefined;
}

/**
 * Runs the image's java directly. Its start script writes into the image, which only the image's user may do, but the
 * data must belong to our user.
 * server.properties and data are the same as without Docker.
 */
function runArguments(
  { home, user }: DockerLayout,
  options: readonly string[],
  mainClass: string,
  ...rest: string[]
): string[] {
  return [
    'run',
    ...options,
    '--user',
    user,
    '--volume',
    `${home}:${HOME}`,
    '--workdir',
    HOME,
    '--entrypoint',
    'sh',
    KAFKA_IMAGE,
    '-c',
    PRIVATE_JAVA,
    'java',
    ...javaArguments(CLASSPATH, mainClass, ...rest),
  ];
}

/** Returns the arguments of `docker` that format the data folder before the broker's first start. */
export function dockerFormat(layout: DockerLayout): string[] {
  return runArguments(layout, ['--rm'], formatClass, ...formatArguments('server.properties', layout.more?.scram));
}

/** The broker listens on the same port inside and outside, so its advertised address works for itself too. */
export function dockerStart(layout: DockerLayout): string[] {
  const name = containerName(layout.home);
  return runArguments(
    layout,
    [
      '--detach',
      '--name',
      name,
      ...[layout.port, ...Object.values(layout.more?.ports ?? {})].flatMap((port) => [
        '--publish',
        `127.0.0.1:${port}:${port}`,
      ]),
    ],
    serverClass,
    'server.properties',
  );
}

/**
 * If Docker runs without root on the host, the container's root is our user. Otherwise the container runs with our ids.
 */
export function containerUser(securityOptions: string, uid: number, gid: number): string {
  return securityOptions.includes('name=rootless') ? '0:0' : `${uid}:${gid}`;
}

/** Returns the user for containers. Throws Unavailable if no Docker answers. */
export async function findDocker(): Promise<string> {
  const { code, stdout, stderr } = await run('docker', ['info', '--format', '{{json .SecurityOptions}}'], {
    timeout: PROBE_TIMEOUT_MS,
  });
  if (code !== 0) throw new Unavailable(`does not answer (${lastLine(stderr)})`);
  return containerUser(stdout, process.getuid?.() ?? 0, process.getgid?.() ?? 0);
}

/**
 * Starts the container (server.properties is in `home`). The first start downloads the image and formats the data
 * folder. Throws Unavailable.
 */
export async function startWithDocker(
  layout: DockerLayout,
  logger: Logger,
  signal: AbortSignal | undefined,
): Promise<Backend> {
  const must = async (args: readonly string[], timeoutMs: number, purpose: string): Promise<void> => {
    const { code, stderr } = await run('docker', args, { timeout: timeoutMs, signal });
    if (code !== 0) throw new Unavailable(`answers, but ${purpose} failed: ${lastLine(stderr)}`);
  };
  if ((await run('docker', ['image', 'inspect', KAFKA_IMAGE], { timeout: DOCKER_TIMEOUT_MS, signal })).code !== 0) {
    logger.info({ image: KAFKA_IMAGE }, 'kafka_image_fetching');
    await must(['pull', '--quiet', KAFKA_IMAGE], PULL_TIMEOUT_MS, `docker pull ${KAFKA_IMAGE}`);
  }
  const name = containerName(layout.home);
  await run('docker', ['rm', '--force', '--volumes', name], { timeout: DOCKER_TIMEOUT_MS, signal });
  if (!existsSync(join(layout.home, 'data', 'meta.properties')))
    await must(dockerFormat(layout), DOCKER_TIMEOUT_MS, 'formatting its data folder');
  try {
    await must(dockerStart(layout), DOCKER_TIMEOUT_MS, `starting the container ${name}`);
  } catch (error) {
    // the daemon may have started it for a command that was interrupted
    await docker('rm', '--force', '--volumes', name);
    throw error;
  }
  return backend(name);
}

/** Returns the container if it runs. */
export async function findContainer(name: string): Promise<Backend | undefined> {
  return (await isRunning(name)) ? backend(name) : undefined;
}

function docker(...args: string[]): Promise<Outcome> {
  return run('docker', args, { timeout: DOCKER_TIMEOUT_MS });
}

async function isRunning(name: string): Promise<boolean> {
  const { code, stdout } = await docker('inspect', '--format', '{{.State.Running}}', name);
  return code === 0 && stdout.trim() === 'true';
}

/** `docker wait` runs as long as the container. If a wait ends for another reason, it starts again. */
async function ended(name: string): Promise<string> {
  for (;;) {
    const { code, stdout } = await run('docker', ['wait', name], { timeout: 0 });
    if (code === 0) return `exit code ${stdout.trim()}`;
    if (!(await isRunning(name))) return 'gone';
  }
}

function backend(name: string): Backend {
  return {
    run: { kind: 'docker', container: name },
    exited: ended(name),
    terminate: () => docker('kill', '--signal', 'SIGTERM', name),
    kill: () => docker('kill', name),
    lastWords: async () => {
      const { stdout, stderr } = await docker('logs', '--tail', '200', name);
      return `${lastLine(stdout + stderr)}; see docker logs ${name}`;
    },
  };
}
