import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import type { Image } from './build.ts';

export interface Container {
  stdout(): string;
  stderr(): string;
  /** exit code, or the signal's number and 128 */
  readonly exited: Promise<number>;
  hasEnded(): boolean;
  /** Sends the image's stop signal. Resolves to the exit code. */
  stop(): Promise<number>;
}

interface ContainerOptions {
  /** instead of the image's entrypoint */
  readonly entrypoint?: readonly string[];
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** folders of this machine by their place in the container, writable */
  readonly volumes?: Readonly<Record<string, string>>;
}

/**
 * As a container runs: the image's file system, read-only, /tmp in memory, as the image's user (1000) without any
 * capability or way to a new one.
 * $1 = the file system, $2 = the working folder, then pairs of volumes up to `--`, then the command.
 */
const SCRIPT = `
set -e
root=$1 workdir=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
for device in null urandom; do [ -e "$root/dev/$device" ] || : >"$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
while [ "$1" != -- ]; do mount --bind "$1" "$root$2"; shift 2; done
shift
mount -o remount,bind,ro "$root"
exec unshare --root="$root" --wd="$workdir" setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
`;

const running = new Set<ChildProcess>();

/** Ends what a failed test left running. */
export function endContainers(): void {
  for (const child of running) child.kill('SIGKILL');
}

/** Starts the image's entrypoint with this command. */
export function startContainer(
  { folder, config }: Image,
  { entrypoint = config.Entrypoint, command, env, volumes = {} }: ContainerOptions,
): Container {
  const imageEnv = Object.fromEntries(config.Env.map((pair) => pair.split(/=(.*)/s, 2) as [string, string]));
  const child = spawn(
    'unshare',
    [
      '--mount',
      'sh',
      '-c',
      SCRIPT,
      'sh',
      folder,
      config.WorkingDir,
      ...Object.entries(volumes).flatMap(([place, from]) => [from, place]),
      '--',
      ...entrypoint,
      ...command,
    ],
    { env: { ...imageEnv, ...env }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  running.add(child);
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString('utf8');
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString('utf8');
  });
  const exited = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      running.delete(child);
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
  return {
    stdout: () => stdout,
    stderr: () => stderr,
    exited,
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    stop: () => {
      child.kill(config.StopSignal as NodeJS.Signals);
      return exited;
    },
  };
}
