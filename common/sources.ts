/**
 * The nine log sources as data. Each has one name everywhere: topic, schema file, raw table, name in code. A tenth
 * source is one entry here, schemas/<name>.avsc and a migration for its table.
 */
interface Source {
  /** topic = schema = raw table = name in code */
  readonly name: string;
  /** the name that existing producers use, as topic or as `?source_name=` */
  readonly alias: string;
  readonly description: string;
  /** the path of an event's project: names of members, joined by dots. A list of objects stands for its first object */
  readonly project: string;
  /** a text at this path replaces an absent project: the event is stored with an empty one */
  readonly orText?: string;
  /**
   * columns of the raw table behind project, timestamp and id, in its order: the kind of each, and the path that it is
   * read from
   */
  readonly columns: readonly Column[];
}

export interface Column {
  /** every column that it fills: `refs` fills two */
  readonly names: readonly string[];
  readonly kind: ColumnKind;
  readonly path: string;
}

/**
 * What a column makes of the value at its path; whatever else stands there never rejects an event.
 *   text           a string, or a number as its text, else empty
 *   nullable_text  a string, or a number as its text, else NULL
 *   string         a string, else NULL
 *   status         UInt16: a number or a numeric string, else NULL
 *   duration       Float64: the same, not negative and finite
 *   is_object      Bool: an object stands here
 *   families       UInt8, bits of the API families whose mark the string contains: 1 /rest, 2 /storage, 4 /auth, 8
 * /realtime
 *   refs           Array(FixedString(20)) and Bool: each distinct window of 20 lower-case letters in the string, or
 * none and true where they are too many
 */
export type ColumnKind =
  | 'text'
  | 'nullable_text'
  | 'string'
  | 'status'
  | 'duration'
  | 'is_object'
  | 'families'
  | 'refs';

const column = (name: string, kind: ColumnKind, path: string): Column => ({ names: [name], kind, path });
const level = column('level', 'nullable_text', 'metadata.level');
const statusCode = column('status_code', 'status', 'metadata.response.status_code');

export const sources = [
  {
    name: 'edge_logs',
    alias: 'cloudflare.logs.prod',
    description: 'edge request logs',
    project: 'project',
    orText: 'metadata.request.url',
    columns: [
      column('url', 'string', 'metadata.request.url'),
      column('host', 'string', 'metadata.request.host'),
      column('path', 'string', 'metadata.request.path'),
      column('method', 'string', 'metadata.request.method'),
      statusCode,
      column('families', 'families', 'metadata.request.path'),
      { names: ['refs', 'refs_overflow'], kind: 'refs', path: 'metadata.request.url' },
    ],
  },
  {
    name: 'postgres_logs',
    alias: 'postgres.logs',
    description: 'database logs',
    project: 'project',
    columns: [column('level', 'nullable_text', 'metadata.parsed.error_severity')],
  },
  {
    name: 'function_edge_logs',
    alias: 'deno-relay-logs',
    description: 'serverless function gateway logs',
    project: 'metadata.project_ref',
    columns: [
      column('function_id', 'text', 'metadata.function_id'),
      column('is_invocation', 'is_object', 'metadata.response'),
      statusCode,
      column('execution_time_ms', 'duration', 'metadata.execution_time_ms'),
    ],
  },
  {
    name: 'function_logs',
    alias: 'deno-subhosting-events',
    description: 'serverless function event logs',
    project: 'metadata.project_ref',
    columns: [level],
  },
  {
    name: 'auth_logs',
    alias: 'gotrue.logs.prod',
    description: 'authentication logs',
    project: 'project',
    columns: [level],
  },
  {
    name: 'realtime_logs',
    alias: 'realtime.logs.prod',
    description: 'realtime logs',
    project: 'metadata.project',
    columns: [level],
  },
  {
    name: 'storage_logs',
    alias: 'storage.logs.prod.2',
    description: 'object storage logs',
    project: 'metadata.project',
    columns: [level],
  },
  {
    name: 'postgrest_logs',
    alias: 'postgREST.logs.prod',
    description: 'REST API layer logs',
    project: 'project',
    columns: [level],
  },
  {
    name: 'pgbouncer_logs',
    alias: 'pgbouncer.logs.prod',
    description: 'connection pooler logs',
    project: 'project',
    columns: [level],
  },
] as const satisfies readonly Source[];

export type SourceName = (typeof sources)[number]['name'];
export type KnownSource = Source & { readonly name: SourceName };

/** Returns the source of a name or an alias. Undefined if there is none. */
export function findSource(nameOrAlias: string): KnownSource | undefined {
  return sources.find((s) => s.name === nameOrAlias || s.alias === nameOrAlias);
}

/** Returns the source of this name. */
export function sourceOf(name: SourceName): KnownSource {
  return sources.find((s) => s.name === name)!;
}
