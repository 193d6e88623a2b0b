import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import type { SettingName, Settings } from '../config/settings.ts';
import type { Logger } from '../logger.ts';

/** How long a running service may work on a command, milliseconds: a replay of two million letters takes a day. */
export const COMMAND_TIMEOUT_MS = 86_400_000;

/** What a command gets, in the process that has the engine open. */
export interface CommandContext {
  readonly clickhouse: ClickHouse;
  readonly settings: Settings;
  readonly logger: Logger;
  /** fires when the caller of a running service leaves: what is repeated for each of many things stops */
  readonly signal?: AbortSignal;
}

/** An option of a command line: `--name` alone, or with a value that help shows as `value`. */
interface Option {
  readonly value?: string;
  readonly isRequired?: true;
  readonly isRepeatable?: true;
}
type Options = Readonly<Record<string, Option>>;

type OptionValue<O extends Option> = O extends { readonly isRepeatable: true }
  ? readonly string[]
  : O extends { readonly isRequired: true }
    ? string
    : O extends { readonly value: string }
      ? string | undefined
      : boolean;

/** JSON Schema, draft 7, of the members that a form's arguments have. */
interface MembersSchema {
  readonly properties: Readonly<Record<string, unknown>>;
  readonly required: readonly string[];
}

export interface Form<Args = unknown> {
  /** one line for help */
  readonly help: string;
  /** the action's word where it is not the form's name */
  readonly action?: string;
  /** values behind the action, as help names them: TOPIC */
  readonly words?: readonly string[];
  readonly options?: Options;
  /** true: takes any other option too, with one value */
  readonly hasAnyOption?: true;
  /** schema of the arguments beside the name of the form */
  readonly schema?: MembersSchema;
  /** Returns the arguments of a command line as JSON. Throws UsageError. */
  read(
    options: Readonly<Record<string, string | boolean | readonly string[] | undefined>>,
    words: readonly string[],
    others: Readonly<Record<string, string>>,
  ): Args;
}

/** Declares a form, so that `read` gets its options and words typed. */
export function form<Args, const O extends Options = {}, const W extends readonly string[] = []>(
  declared: Omit<Form<Args>, 'read'> & {
    readonly options?: O;
    readonly words?: W;
    read(
      options: { readonly [K in keyof O]: OptionValue<O[K]> },
      words: { readonly [K in keyof W]: string },
      others: Readonly<Record<string, string>>,
    ): Args;
  },
): Form<Args> {
  return declared;
}

/**
 * A command for operators. It runs where the engine is: in the running npm start (POST /api/commands/<name> with an
 * admin key; keys and dead letters also in npm run query). If none runs, or ClickHouse is a server, it runs in the
 * process that was called.
 */
export interface Command<Args = unknown, Result = unknown> {
  /** `npm run <name>` */
  readonly name: string;
  /** what help says besides its forms */
  readonly about: string;
  /** by name: the first word of the command line, and the member `action` of the arguments; '' if there is only one */
  readonly forms: Readonly<Record<string, Form<Args>>>;
  /** a setting that it cannot do without, for a command that never runs in a service */
  readonly needs?: SettingName;
  /** Returns whether it may begin a data folder. By default one must exist: a mistyped DATA_DIR is not an empty one. */
  mayCreate?(args: Args): boolean;
  /** what the operator should look at if it is unknown whether a statement took effect */
  readonly afterUnknown?: string;
  /** Returns the result as JSON. */
  run(context: CommandContext, args: Args): Promise<Result>;
  /**
   * Returns one line for people if SIGINT or SIGTERM ends the command: what goes on without it, or is half done. By
   * default the process ends without a word.
   */
  interrupted?(args: Args): string;
  /** Returns the result for people, on stdout. */
  print(result: Result): string | Buffer;
  /** Returns what the log of an admin's action shows of the result; no secrets. */
  audit?(result: Result): Readonly<Record<string, unknown>>;
  /** Returns 0 for success, which is the default. */
  exitCode?(result: Result): number;
  /** Returns what --json prints: a value, or a string that is JSON text. The result itself by default. */
  json?(result: Result): unknown;
}
