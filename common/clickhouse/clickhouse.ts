/**
 * The engine as the services see it: embedded (in this process) or a server (over HTTP), the same statements on both.
 * Writers and readers are apart: a slow reader never holds up an insert, and a reader cannot write.
 */
export type Param = string | number | bigint | boolean | null | readonly (string | number | bigint)[];

/** Settings by ClickHouse's names. */
export type StatementSettings = Readonly<Record<string, string | number>>;

export interface Statement {
  /** one statement; parameters as `{name:Type}` */
  readonly sql: string;
  /** every parameter that the statement names */
  readonly params?: Readonly<Record<string, Param>>;
  /**
   * settings of this statement, before those that go with every one (pinned-settings.ts); nothing depends on a server's
   * defaults, nothing lasts beyond the statement
   */
  readonly settings?: StatementSettings;
}

export interface Read extends Statement {
  /** output format by ClickHouse's name; 64-bit integers come unquoted */
  readonly format: string;
  /** when it fires, the promise rejects with 394 QUERY_WAS_CANCELLED and the query is ended in the engine too */
  readonly signal?: AbortSignal;
  /**
   * With no right to anything: the text gets what it computes by itself and from its parameters. For texts that callers
   * wrote. In server mode
   * the user of CLICKHOUSE_SANDBOX_URL runs it; without one: 497 ACCESS_DENIED.
   */
  readonly isolated?: true;
  /**
   * Planned for a few rows found by primary key (pinned-settings.ts): the answer is the same, many rows take longer.
   */
  readonly fewRows?: boolean;
}

export interface ReadResult {
  readonly body: Buffer;
  /**
   * read from tables; undefined where the engine does not tell (embedded tells with the formats that carry
   * `statistics`: JSON, JSONCompact)
   */
  readonly readRows: number | undefined;
  readonly readBytes: number | undefined;
}

export interface Insert extends Statement {
  /** columns of the frames: the structure argument of `file()` and `input()` */
  readonly structure: string;
  /**
   * RowBinary rows in pieces, in order, each of which need be valid only until the next one is asked for; the statement
   * reads them with `FROM frames` (written exactly once)
   */
  readonly frames: Iterable<Uint8Array>;
  /** what `killInsert` knows it by; without one it cannot be ended from outside */
  readonly queryId?: string;
}

/** Rows of one table, as they are. */
export interface Rows {
  readonly table: string;
  /** those that the rows hold, in their order; the engine fills the others with their defaults */
  readonly columns: readonly string[];
  /** RowBinary in pieces, in order */
  readonly pieces: Iterable<Uint8Array>;
  readonly settings?: StatementSettings;
  /** what `killInsert` knows it by; without one it cannot be ended from outside */
  readonly queryId?: string;
}

export interface Reader {
  /**
   * Runs one SELECT (or WITH, EXPLAIN, SHOW, DESCRIBE), read-only: whatever its text says, it can neither write, nor
   * change a setting,
   * nor reach files, URLs or other servers. The answer is whole or an error. Throws ClickHouseError; 202 when too many
   * reads wait already.
   */
  read(read: Read): Promise<ReadResult>;
}

export interface Writer {
  /** Runs one statement that returns no rows (DDL, INSERT ... SELECT, INSERT ... VALUES). Throws ClickHouseError. */
  execute(statement: Statement): Promise<void>;
  /**
   * Runs an INSERT ... SELECT ... FROM frames, under `insertSettings`. Takes as long as the engine works on it. Throws
   * ClickHouseError, see its `outcome`; by then the
   * attempt is over and will write nothing more, unless the error's `mayStillRun` says that ClickHouse could not be
   * asked.
   */
  insert(insert: Insert): Promise<void>;
  /** The same of rows that no statement reads: no expression, no plan. */
  insertRows(rows: Rows): Promise<void>;
  /**
   * Ends what may still run of inserts with this `queryId`, whoever began them. Resolves when none of them runs.
   * Throws ClickHouseError where that cannot be known: ClickHouse does not answer, or does not end them in time.
   */
  killInsert(queryId: string): Promise<void>;
}

export interface Rights {
  /** those of the wanted ones that the user lacks */
  readonly missing: readonly string[];
  /** the user's profile refuses writes, whatever it was granted */
  readonly isReadOnly: boolean;
  readonly user: string;
}

export interface ClickHouse extends Reader, Writer {
  /** `embedded` or the server's address without credentials: for log lines */
  readonly where: string;
  /** statements that write at a time; more of them wait */
  readonly writers: number;
  /** engine version, for instance 26.7.2.1 */
  readonly version: string;
  /** What our user may do; undefined: the engine has no users (embedded). */
  rights(wanted: readonly string[]): Promise<Rights | undefined>;
  /** resolves when the engine answers, else throws ClickHouseError */
  ping(): Promise<void>;
  /**
   * when the engine's machine was started (unix ms, by the engine's clock): what nobody waited for before that may
   * never have reached its disk; undefined = it does not tell
   */
  machineStartedAt(): Promise<number | undefined>;
  /** Ends reads, lets writes finish for a few seconds, then ends them too. */
  close(): Promise<void>;
}

/** For reads whose 64-bit integers may be beyond 2^53: they come as text. */
export const INTEGERS_AS_TEXT = { output_format_json_quote_64bit_integers: 1 } as const;

/** The rows of one SELECT; its values are safe in JavaScript, or come with INTEGERS_AS_TEXT. */
export async function select<T>(
  reader: Reader,
  sql: string,
  params: Readonly<Record<string, Param>> = {},
  settings: StatementSettings = {},
): Promise<T[]> {
  return rows<T>(await reader.read({ sql, params, settings, format: 'JSONEachRow' }));
}

/** Rows of a read with format JSONEachRow whose values are safe in JavaScript (no integers beyond 2^53). */
export function rows<T>(result: ReadResult): T[] {
  return result.body
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
}
