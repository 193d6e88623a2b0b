import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import type { Fragment } from '../statement/branches.ts';

/**
 * A saved endpoint is two files: `<name>.sql`, one SELECT with `@name` parameters, and `<name>.yaml`, what callers see
 * (definition.schema.json). `@now` is reserved: the service binds the instant of the query. parse-definition.ts checks
 * what needs no ClickHouse. check.ts asks ClickHouse: columns, the tables that are read, and the sandbox.
 */

export type Format = 'string' | 'timestamp' | 'integer' | 'number' | 'pattern';
/** ClickHouse prints a time in the zone of its type. `unix_microseconds` and `utc` take it for UTC. */
const IN_UTC = /^Date[^']*('UTC'|$)/;
/**
 * The types that a column of each rendering may have, besides LowCardinality and Nullable. `text` and `nested_list` are
 * made of members of a JSON text (isOfJson); render.ts makes them.
 */
export const COLUMN_TYPES = {
  string: /^(String|FixedString|UUID|Enum|IPv)/,
  number: /^(U?Int|Float|Decimal|BFloat)/,
  integer: /^U?Int/,
  boolean: /^Bool/,
  json: /^/,
  unix_microseconds: IN_UTC,
  utc: IN_UTC,
  text: /^String/,
  nested_list: /^String/,
} as const;
export type Render = keyof typeof COLUMN_TYPES;

export interface Parameter {
  readonly name: string;
  readonly description: string;
  readonly required: boolean;
  readonly format: Format;
  /** bytes of UTF-8 */
  readonly maxLength: number;
  /** RE2 syntax, found anywhere in the value */
  readonly pattern?: string;
  /** of an integer */
  readonly minimum?: number;
  readonly maximum?: number;
  readonly values?: readonly string[];
  readonly default?: string;
  /** the value that anything outside of `values` stands for */
  readonly otherwise?: string;
  readonly aliases: Readonly<Record<string, string>>;
  readonly examples: readonly string[];
}

export interface Column {
  readonly name: string;
  readonly description: string;
  readonly render: Render;
  /** the column of the statement that it is made from */
  readonly from: string;
  readonly nullable: boolean;
  /** members of `from`, a JSON text; the first one that exists and is not null counts, of `text` the first string */
  readonly keys?: readonly string[];
}

/** Whether a column is made of members of a JSON text, which may be a whole event. It is never null. */
export function isOfJson({ render }: Pick<Column, 'render'>): boolean {
  return render === 'text' || render === 'nested_list';
}

export interface Definition {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly maxRows: number;
  readonly maxSeconds?: number | undefined;
  readonly cacheSeconds: number;
  /** an answer in use is queried again this often; 0 = never */
  readonly requerySeconds: number;
  /** planned for a few rows found by primary key */
  readonly fewRows: boolean;
  /** callers may send ?sql=, a SELECT over the named subqueries */
  readonly sandboxed: boolean;
  readonly project?: { readonly parameter: string; readonly match: 'exact' | 'pattern' } | undefined;
  /** what a call may contain */
  readonly parameters: readonly Parameter[];
  readonly columns: readonly Column[];
  /** the statement with `{name:Type}` for `@name` */
  readonly boundSql: string;
  /**
   * boundSql in pieces, without named subqueries that nothing reads (a sandboxed one keeps them). branches.ts omits the
   * pieces that a call does not need.
   */
  readonly fragments: readonly Fragment[];
  /** of both files: a changed definition shares no cached answer with the former one */
  readonly hash: string;
  readonly sqlFile: string;
  readonly yamlFile: string;
}

/** Names with a meaning of their own for the service. */
export const RESERVED = { now: 'now', sql: 'sql', apiKey: 'api_key' } as const;
export const NOW_TYPE = "DateTime64(6, 'UTC')";

/** Returns the ClickHouse type that `@name` is bound as. An absent parameter is '' as a string, else NULL. */
export function parameterType(p: Pick<Parameter, 'format' | 'required' | 'default'>): string {
  const type = { string: 'String', pattern: 'String', timestamp: NOW_TYPE, integer: 'Int64', number: 'Float64' }[
    p.format
  ];
  return type === 'String' || p.required || p.default !== undefined ? type : `Nullable(${type})`;
}

/** A mistake in a definition: where, and what. */
export interface Mistake {
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

/** Returns `file:line: message`, one mistake a line. */
export function describe(mistakes: readonly Mistake[]): string {
  return mistakes.map((m) => `  ${m.file}:${m.line}: ${m.message}`).join('\n');
}

/** Throws StartError (exit code 78) that lists every mistake, if there is one. */
export function refuseMistakes(mistakes: readonly Mistake[]): void {
  if (mistakes.length > 0)
    throw new StartError(`the endpoint definitions have mistakes:\n${describe(mistakes)}`, { exitCode: EXIT_CONFIG });
}
