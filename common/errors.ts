/** EX_CONFIG of sysexits.h: a setting is wrong, so a restart alone cannot help. */
export const EXIT_CONFIG = 78;
/** EX_USAGE of sysexits.h: the arguments are wrong. */
export const EXIT_USAGE = 64;

/**
 * Something outside of the process is wrong (port taken, data folder in use, no broker). It is printed as one line
 * without a stack trace. Any other error is a bug and shows its stack.
 */
export class StartError extends Error {
  readonly exitCode: number;
  constructor(message: string, options?: { cause?: unknown; exitCode?: number }) {
    super(message, { cause: options?.cause });
    this.name = 'StartError';
    this.exitCode = options?.exitCode ?? 1;
  }
}

/** The arguments of a command are wrong; the message says which. */
export class UsageError extends Error {}
