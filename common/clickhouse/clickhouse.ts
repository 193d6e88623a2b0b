/**
 * The engine as the services see it: embedded (in this process) or a server (over HTTP), with the same statements on
 * both. Writers and readers are separate: a slow reader never delays an insert, and a reader cannot write.
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
   * settings of this statement. They take precedence over those sent with every statement (pinned-settings.ts). Nothing
   * depends on a server's defaults, and nothing lasts beyond the statement
   */
  readonly settings?: StatementSettings;
  /**
   * The tables of which it must see every row that was acknowledged before, on whichever node of a cluster. Without a
   * cluster every statement does.
   */
  readonly fresh?: Fresh;
  /** In a cluster, it creates or drops a table of the node that runs it, which no other node gets. */
  readonly ofNode?: true;
}

interface Fresh {
  readonly tables: readonly string[];
  /** how long the replicas may take to get there, milliseconds; then it fails, and may be repeated */
  readonly withinMs: number;
}

export interface Read extends Statement {
  /** output format by ClickHouse's name; 64-bit integers come unquoted */
  readonly format: string;
  /** when it fires, the promise rejects with 394 QUERY_WAS_CANCELLED, and the query ends in the engine too */
  readonly signal?: AbortSignal;
  /**
   * Runs without any right: the text can only compute from its parameters. For texts that callers wrote. In server mode
   * the user of CLICKHOUSE_SANDBOX_URL runs it; without one it fails with 497 ACCESS_DENIED.
   */
  readonly isolated?: true;
  /**
   * Planned for a few rows found by primary key (pinned-settings.ts). The answer is the same, but many rows take
   * longer.
   */
  readonly fewRows?: boolean;
  /** In a cluster, the rows of all nodes, one node's after another's: for tables of `system`. */
  readonly everyNode?: true;
}

export interface ReadResult {
  readonly body: Buffer;
  /**
   * rows read from tables; undefined if the engine does not report it (the embedded one does with formats that carry
   * `statistics`: JSON, JSONCompact)
   */
  readonly readRows: number | undefined;
  readonly readBytes: number | undefined;
}

/** Rows of one table. No statement reads them: no expression, no plan. */
export interface Rows {
  readonly table: string;
  /** the columns in the rows, in their order; the engine fills the others with their defaults */
  readonly columns: readonly string[];
  /** default: RowBinary */
  readonly format?: 'Native' | 'RowBinary';
  /** the rows in that format, in pieces, in order; each must stay valid only until the next one is requested */
  readonly pieces: Iterable<Uint8Array>;
  readonly settings?: StatementSettings;
  /** ids for `killInsert`; without one it cannot be ended from outside */
  readonly queryIds?: readonly string[];
}

export interface Reader {
  /**
   * Runs one SELECT (or WITH, EXPLAIN, SHOW, DESCRIBE), read-only: its text can neither write, nor change a setting,
   * nor reach files, URLs or other servers. The answer is whole or an error. Throws ClickHouseError; 202 if too many
   * reads wait.
   */
  read(read: Read): Promise<ReadResult>;
}

interface Writer {
  /** Runs one statement that returns no rows (DDL, INSERT ... SELECT). Throws ClickHouseError. */
  execute(statement: Statement): Promise<void>;
  /**
   * Inserts rows under `insertSettings`. It takes as long as the engine works on them. Throws ClickHouseError with an
   * `outcome`. By then the attempt has ended and will write nothing more, unless ClickHouse does not answer any more.
   */
  insertRows(rows: Rows): Promise<void>;
  /**
   * Ends inserts that have this id among theirs and may still run, whoever began them. Resolves when none of them runs.
   * Throws ClickHouseError if that cannot be known: ClickHouse does not answer, or does not end them in time.
   */
  killInsert(queryId: string): Promise<void>;
}

export interface Rights {
  /** the wanted rights that the user lacks */
  readonly missing: readonly string[];
  /** true if the user's profile refuses writes, whatever it was granted */
  readonly isReadOnly: boolean;
  readonly user: string;
}

/** What the owner of the schema does in a cluster. */
export interface ClusterDuties {
  /** Throws StartError, one line, if a node lacks what replicated tables need. */
  check(): Promise<void>;
  /**
   * Creates on every node what others have and it lacks: a replica that has joined, or comes back empty. While a
   * migration runs it creates nothing: the first call waits, a later one returns. Throws StartError if no node that
   * answers has a table, and another one does not answer.
   */
  complete(): Promise<void>;
  /**
   * Of several shards: creates on every node, for each table, the one that reads it on all shards. To be called when
   * tables or columns of views were added. Undefined for one shard, which needs none.
   */
  distribute?(): Promise<void>;
}

/** The rows of some partitions of Kafka: all tables of one shard, each of them whole. */
export interface Shard extends ClickHouse {
  readonly shard: string;
}

export interface ClickHouse extends Reader, Writer {
  /** undefined if it is one engine */
  readonly cluster?: ClusterDuties;
  /** The name of the shard; undefined without a cluster, and for several shards together. */
  readonly shard?: string | undefined;
  /**
   * Of several shards, each by itself, in the order of their names. What belongs to a partition of Kafka is written and
   * read there. The whole reads all shards, and writes only the tables that they share.
   */
  readonly shards?: readonly Shard[] | undefined;
  /** `embedded` or the server's address without credentials, for log lines */
  readonly where: string;
  /** the number of concurrent writes; more of them wait */
  readonly writers: number;
  /** engine version, for instance 26.7.2.1 */
  readonly version: string;
  /** Returns the rights of our user. Undefined if the engine has no users (embedded). */
  rights(wanted: readonly string[]): Promise<Rights | undefined>;
  /** resolves when the engine answers, else throws ClickHouseError */
  ping(): Promise<void>;
  /** Ends reads, lets writes finish for a few seconds, then ends them too. */
  close(): Promise<void>;
}

/** Returns each shard; without several, the ClickHouse itself. */
export function shardsOf<T extends Pick<ClickHouse, 'shards'>>(clickhouse: T): readonly (T | Shard)[] {
  return clickhouse.shards ?? [clickhouse];
}

/** For reads whose 64-bit integers may exceed 2^53: they come as text. */
export const INTEGERS_AS_TEXT = { output_format_json_quote_64bit_integers: 1 } as const;

/** Returns the rows of one SELECT. Its values are safe in JavaScript, or come with INTEGERS_AS_TEXT. */
export async function select<T>(
  reader: Reader,
  sql: string,
  params: Readonly<Record<string, Param>> = {},
  settings: StatementSettings = {},
): Promise<T[]> {
  return rows<T>(await reader.read({ sql, params, settings, format: 'JSONEachRow' }));
}

/** How long replicas usually may take to fetch what is there, milliseconds. */
const FETCH_PATIENCE_MS = 60_000;

/** Returns a reader whose reads see every row of these tables that was acknowledged before (Statement.fresh). */
export function fresh(reader: Reader, tables: readonly string[], withinMs: number = FETCH_PATIENCE_MS): Reader {
  return { read: (read) => reader.read({ ...read, ...freshly(tables, withinMs) }) };
}

/** The same for a statement that writes. */
export function freshly(tables: readonly string[], withinMs: number = FETCH_PATIENCE_MS): { readonly fresh: Fresh } {
  return { fresh: { tables, withinMs } };
}

/** Returns a reader whose reads have the rows of all nodes (Read.everyNode). */
export function everywhere(reader: Reader): Reader {
  return { read: (read) => reader.read({ ...read, everyNode: true }) };
}

/** Returns the rows of a read in JSONEachRow whose values are safe in JavaScript (no integers beyond 2^53). */
export function rows<T>(result: ReadResult): T[] {
  return result.body
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
}
