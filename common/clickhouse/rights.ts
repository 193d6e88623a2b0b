import { EXIT_CONFIG, StartError } from '../errors.ts';
import type { ClickHouse } from './clickhouse.ts';
import { identifier } from './sql.ts';

/**
 * What a service's user needs. A long insert is looked after in system.processes, and an abandoned one is killed by
 * what stands there. Materialized views insert with
 * the rights of whoever made them.
 */
const RIGHTS = {
  // the last: of input(), from which an insert reads its rows
  ingest: ['SELECT, INSERT ON {database}.*', 'SELECT ON system.processes', 'CREATE TEMPORARY TABLE ON *.*'],
  query: ['SELECT, INSERT ON {database}.*', 'SELECT ON system.processes'],
  rollup: [
    'SELECT, INSERT, ALTER, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, TRUNCATE ON {database}.*',
    'SELECT ON system.processes',
  ],
} as const;

/**
 * Throws StartError with the GRANT statements that are missing, where the server says that our user lacks a right of
 * this service.
 */
export async function checkRights(clickhouse: ClickHouse, service: keyof typeof RIGHTS): Promise<void> {
  const rights = await clickhouse.rights(RIGHTS[service]);
  if (rights === undefined) return;
  const { isReadOnly, missing, user } = rights;
  if (isReadOnly)
    throw new StartError(
      `the profile of the user ${user} of ClickHouse at ${clickhouse.where} sets readonly, but ${service} writes; set readonly to 0 for this user`,
      { exitCode: EXIT_CONFIG },
    );
  if (missing.length > 0)
    throw new StartError(
      `the user ${user} of ClickHouse at ${clickhouse.where} lacks rights that ${service} needs; run there: ${missing.map((right) => `GRANT ${right} TO ${identifier(user)};`).join(' ')}`,
      { exitCode: EXIT_CONFIG },
    );
}
