import type { ParseArgsConfig } from 'node:util';
import type { ArgumentsSchema } from './arguments.ts';
import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import type { Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';

/** What a command works with, in the process that has the engine open. */
export interface CommandContext {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
}

/**
 * A command for operators. It runs where the engine is: in the running service (POST /api/commands/<name>, an admin
 * key),
 * or, where none runs or ClickHouse is a server, in the process that was called.
 */
export interface Command<Args = unknown, Result = unknown> {
  /** `npm run <name>` */
  readonly name: string;
  /** what --help prints */
  readonly help: string;
  readonly options: NonNullable<ParseArgsConfig['options']>;
  /** JSON Schema of the arguments: whoever calls, by the command line or over HTTP, run() gets nothing else */
  readonly args: ArgumentsSchema;
  /** Arguments from the command line, as JSON. Throws a UsageError. */
  readArgs(values: Readonly<Record<string, string | boolean | undefined>>, positionals: readonly string[]): Args;
  /** The answer, as JSON. */
  run(context: CommandContext, args: Args): Promise<Result>;
  /** For people, on stdout. */
  print(result: Result): string | Buffer;
  /** 0 where all is well */
  exitCode(result: Result): number;
  /** What --json prints; the result itself by default. */
  json?(result: Result): unknown;
}

export { UsageError } from './usage-error.ts';

/** Exit code of a call whose words are off (EX_USAGE of sysexits.h). */
export const EXIT_USAGE = 64;
