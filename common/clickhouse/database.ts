import { StartError } from '../errors.ts';
import { select, type ClickHouse, type Reader } from './clickhouse.ts';

/** The name of the database that statements run in. */
export async function databaseOf(clickhouse: Reader): Promise<string> {
  return (await select<{ name: string }>(clickhouse, 'SELECT currentDatabase() AS name'))[0]!.name;
}

/** Throws StartError where there is a table already; `what` needs the database empty. */
export async function assertEmpty(clickhouse: ClickHouse, what: string): Promise<void> {
  const tables = await select(clickhouse, 'SELECT name FROM system.tables WHERE database = currentDatabase()');
  if (tables.length > 0)
    throw new StartError(
      `${clickhouse.where} already has ${tables.length} tables, but ${what} needs an empty database: use another one (embedded: another DATA_DIR), or DROP DATABASE and CREATE DATABASE`,
    );
}
