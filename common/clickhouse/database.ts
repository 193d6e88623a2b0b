import { StartError } from '../errors.ts';
import { select, type Reader } from './clickhouse.ts';

/** The name of the database whose tables read all shards of a cluster (shards.ts). */
export const databaseOfAll = (database: string): string => `${database}_all`;

/** The name of the database that statements run in. */
export async function databaseOf(clickhouse: Reader): Promise<string> {
  return (await select<{ name: string }>(clickhouse, 'SELECT currentDatabase() AS name'))[0]!.name;
}

/**
 * Throws StartError if there is a table already; `what` needs the database empty. The message does not name the server:
 * callers over HTTP get it too.
 */
export async function assertEmpty(clickhouse: Reader, what: string): Promise<void> {
  const tables = await select(clickhouse, 'SELECT name FROM system.tables WHERE database = currentDatabase()');
  if (tables.length > 0)
    throw new StartError(
      `the database already has ${tables.length} tables, but ${what} needs an empty database: use another one (embedded: another DATA_DIR), or DROP DATABASE and CREATE DATABASE`,
    );
}
