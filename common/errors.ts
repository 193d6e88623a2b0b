/** sysexits.h EX_CONFIG: a setting is wrong; restarting without changing it cannot help. */
export const EXIT_CONFIG = 78;

/**
 * Something outside the process is not as it must be (port taken, data folder in use, no broker).
 * Printed as its one line, without a stack trace; any other error is a bug and shows its stack.
 */
export class StartError extends Error {
  readonly exitCode: number;
  constructor(message: string, options?: { cause?: unknown; exitCode?: number }) {
    super(message, { cause: options?.cause });
    this.name = 'StartError';
    this.exitCode = options?.exitCode ?? 1;
  }
}
