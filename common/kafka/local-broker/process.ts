import { execFile, type ExecFileOptions } from 'node:child_process';
import { readFileSync } from 'node:fs';

export interface Outcome {
  /** exit code; undefined if the program is missing, was killed or took too long */
  readonly code: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** Runs a program to its end. It does not throw if the program fails. */
export function run(command: string, args: readonly string[], options: ExecFileOptions): Promise<Outcome> {
  return new Promise((resolve) => {
    execFile(command, args, { maxBuffer: MAX_OUTPUT_BYTES, ...options, encoding: 'utf8' }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : undefined;
      resolve({ code, stdout, stderr: error !== null && stderr === '' ? error.message : stderr });
    });
  });
}

/**
 * Returns the cause at the end of an output: its last line with an error or an exception, else its last line. Stack
 * frames are none.
 */
export function lastLine(text: string): string {
  const lines = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !/^at |^\.\.\. \d+ more$/.test(line));
  return lines.findLast((line) => /\bERROR\b|\bFATAL\b|Exception|Error:/.test(line)) ?? lines.at(-1) ?? 'no output';
}

/**
 * Returns the command line of a running process. Undefined if there is none, or if it ended and its parent has not
 * collected it.
 * A pid alone proves nothing: the system reuses it.
 */
export async function commandOf(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim() || undefined;
    } catch {
      return undefined;
    }
  }
  const { stdout } = await run('ps', ['-ww', '-o', 'command=', '-p', String(pid)], {});
  return stdout.trim() || undefined;
}
