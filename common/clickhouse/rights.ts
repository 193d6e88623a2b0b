import { EXIT_CONFIG, StartError } from '../errors.ts';
import type { ClickHouse } from './clickhouse.ts';
import { identifier } from './sql.ts';

export type Service = 'ingest' | 'query' | 'rollup';

const READ_AND_WRITE = 'SELECT, INSERT ON {database}.*';
/** A long statement is watched in system.processes. Its own user may kill it without a right. */
const PROCESSES = 'SELECT ON system.processes';
const PARTS = 'SELECT ON system.parts';
const ENGINES = ['MergeTree', 'AggregatingMergeTree', 'ReplacingMergeTree', 'SummingMergeTree'];
const REPLICAS = [
  'SYSTEM SYNC REPLICA ON {database}.*',
  'SELECT ON system.replicas',
  'SELECT ON system.clusters',
  'SELECT ON system.zookeeper',
];

/**
 * What the user of each service needs on a server with the access control that ClickHouse ships. docs/security.md lists
 * the same rights. A materialized view inserts with the rights of the user that created it.
 */
export const RIGHTS: Readonly<Record<Service, readonly string[]>> = {
  ingest: [READ_AND_WRITE, PROCESSES],
  query: [READ_AND_WRITE, PROCESSES, PARTS],
  rollup: [
    'SELECT, INSERT, ALTER, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, TRUNCATE ON {database}.*',
    ...ENGINES.map((engine) => `TABLE ENGINE ON ${engine}`),
    PROCESSES,
    PARTS,
  ],
};

/** What they need beside that in a cluster. */
export const CLUSTER_RIGHTS: typeof RIGHTS = {
  ingest: [PARTS, ...REPLICAS],
  query: REPLICAS,
  rollup: [
    'CLUSTER ON *.*',
    ...ENGINES.map((engine) => `TABLE ENGINE ON Replicated${engine}`),
    ...REPLICAS,
    'SELECT ON system.distributed_ddl_queue',
  ],
};

/** What they need beside that where the cluster has several shards; {all}: the database that reads all of them. */
export const SHARD_RIGHTS: typeof RIGHTS = {
  ingest: ['SELECT ON {all}.*'],
  query: ['SELECT ON {all}.*'],
  rollup: [
    'SELECT, INSERT, CREATE TABLE, DROP TABLE ON {all}.*',
    'TABLE ENGINE ON Distributed',
    'TABLE ENGINE ON Merge',
    'REMOTE ON *.*',
  ],
};

/** Throws StartError, one line with the missing GRANT statements, if our user lacks a right that the service needs. */
export async function checkRights(clickhouse: ClickHouse, service: Service): Promise<void> {
  const rights = await clickhouse.rights([
    ...RIGHTS[service],
    ...(clickhouse.cluster === undefined ? [] : CLUSTER_RIGHTS[service]),
    ...(clickhouse.shards === undefined ? [] : SHARD_RIGHTS[service]),
  ]);
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
