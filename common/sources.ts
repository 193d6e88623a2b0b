/**
 * The nine log sources. One name per source everywhere: topic, schema file, raw table, name in code.
 * A tenth source is one line here, schemas/<name>.avsc, a migration for its tables and clickhouse/sources/<name>.sql.
 */
export interface Source {
  /** topic = schema = raw table = name in code */
  readonly name: string;
  /** the name that existing producers use, as topic or as `?source_name=` */
  readonly alias: string;
  readonly description: string;
  /** where an event names its project, as clickhouse/sources/<name>.sql reads it: members of objects, of which the first of a list counts */
  readonly project: readonly string[];
}

export const sources = [
  { name: 'edge_logs', alias: 'cloudflare.logs.prod', description: 'edge request logs', project: ['project'] },
  { name: 'postgres_logs', alias: 'postgres.logs', description: 'database logs', project: ['project'] },
  { name: 'function_edge_logs', alias: 'deno-relay-logs', description: 'serverless function gateway logs', project: ['metadata', 'project_ref'] },
  { name: 'function_logs', alias: 'deno-subhosting-events', description: 'serverless function event logs', project: ['metadata', 'project_ref'] },
  { name: 'auth_logs', alias: 'gotrue.logs.prod', description: 'authentication logs', project: ['project'] },
  { name: 'realtime_logs', alias: 'realtime.logs.prod', description: 'realtime logs', project: ['metadata', 'project'] },
  { name: 'storage_logs', alias: 'storage.logs.prod.2', description: 'object storage logs', project: ['metadata', 'project'] },
  { name: 'postgrest_logs', alias: 'postgREST.logs.prod', description: 'REST API layer logs', project: ['project'] },
  { name: 'pgbouncer_logs', alias: 'pgbouncer.logs.prod', description: 'connection pooler logs', project: ['project'] },
] as const satisfies readonly Source[];

export type KnownSource = (typeof sources)[number];
export type SourceName = KnownSource['name'];

/** The source that a name or an alias stands for, or undefined. */
export function findSource(nameOrAlias: string): KnownSource | undefined {
  return sources.find((s) => s.name === nameOrAlias || s.alias === nameOrAlias);
}
