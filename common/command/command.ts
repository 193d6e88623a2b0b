import type { ParseArgsConfig } from 'node:util';
import type { ArgumentsSchema } from './arguments.ts';
import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';

/** What a command gets, in the process that has the engine open. */
export interface CommandContext {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
}

/**
 * A command for operators. It runs where the engine is: in the running service (POST /api/commands/<name> with an admin
 * key). If none runs, or ClickHouse is a server, it runs in the process that was called.
 */
export interface Command<Args = unknown, Result = unknown> {
  /** `npm run <name>` */
  readonly name: string;
  /** what --help prints */
  readonly help: string;
  readonly options: NonNullable<ParseArgsConfig['options']>;
  /** JSON Schema of the arguments, for calls by command line and over HTTP alike */
  readonly args: ArgumentsSchema;
  /** Returns the arguments of a command line as JSON. Throws UsageError. */
  readArgs(values: Readonly<Record<string, string | boolean | undefined>>, positionals: readonly string[]): Args;
  /** Returns the result as JSON. */
  run(context: CommandContext, args: Args): Promise<Result>;
  /** Returns the result for people, on stdout. */
  print(result: Result): string | Buffer;
  /** 0 for success */
  exitCode(result: Result): number;
  /** Returns what --json prints; the result itself by default. */
  json?(result: Result): unknown;
}

export { UsageError } from './usage-error.ts';

/** Exit code for wrong arguments (EX_USAGE of sysexits.h). */
export const EXIT_USAGE = 64;
