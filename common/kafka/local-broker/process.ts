import { spawn, execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

export interface Outcome {
  /** exit code; undefined when the program is not there, was killed or took too long */
  readonly code: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. Does not throw for what the program does. */
export function run(
  command: string,
  args: readonly string[],
  options: {
    readonly cwd?: string;
    readonly timeoutMs: number;
    readonly signal?: AbortSignal | undefined;
    readonly onOutput?: (text: string) => void;
  },
): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = execFile(
      command,
      args,
      {
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        timeout: options.timeoutMs,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
        maxBuffer: 16 * 1024 * 1024,
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : undefined;
        resolve({ code, stdout, stderr: error !== null && stderr === '' ? error.message : stderr });
      },
    );
    if (options.onOutput !== undefined) child.stdout?.on('data', options.onOutput);
  });
}

/** The cause that a log ends with: its last line with an error or an exception, undefined when there is none. */
export function lastError(text: string): string | undefined {
  return text
    .split('\n')
    .map((line) => line.trim())
    .findLast((line) => /\bERROR\b|\bFATAL\b|Exception|Error:/.test(line) && !line.startsWith('at '));
}

/** Last line that says something, stack frames apart: Java and Docker put the cause at the end. */
export function lastLine(text: string): string {
  return (
    text
      .split('\n')
      .map((line) => line.trim())
      .findLast((line) => line !== '' && !/^at |^\.\.\. \d+ more$/.test(line)) ?? 'no output'
  );
}

/**
 * Command line of a running process, undefined when there is none (also for one that ended and was not collected by its
 * parent).
 * A process id alone proves nothing: the system gives it to another process later.
 */
export async function commandOf(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim() || undefined;
    } catch {
      return undefined;
    }
  }
  const { stdout } = await promisify(execFile)('ps', ['-ww', '-o', 'command=', '-p', String(pid)]).catch(() => ({
    stdout: '',
  }));
  return stdout.trim() || undefined;
}

/** Resolves when `running` says no. With ref false the wait does not keep our process alive. */
export async function until(running: () => Promise<boolean>, everyMs: number, ref: boolean): Promise<void> {
  while (await running()) await sleep(everyMs, undefined, { ref });
}

/**
 * Starts a program that outlives a ctrl-C in our terminal (a process group of its own), with its output in an open
 * file.
 * `exited` tells how it ended.
 */
export function startDetached(
  command: string,
  args: readonly string[],
  cwd: string,
  output: number,
): { readonly pid: number | undefined; readonly exited: Promise<string> } {
  const child = spawn(command, args, { cwd, detached: true, stdio: ['ignore', output, output] });
  child.unref();
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal === null ? `exit code ${code}` : signal));
  });
  return { pid: child.pid, exited };
}
