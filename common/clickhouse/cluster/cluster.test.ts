import { describe, expect, test } from 'vitest';
import { forCluster, isForAllShards } from './cluster.ts';
import { loadMigrations } from '../migrations.ts';

const REPLICA = "'/clickhouse/tables/{uuid}/{shard}', '{shard}-{replica}'";
const inCluster = (sql: string): string => forCluster(sql, 'logs');

describe('a statement for a cluster', () => {
  test('tables are replicated, on every node, with the window of their tokens in Keeper', () => {
    expect(
      inCluster(`-- ENGINE = MergeTree in a comment
CREATE TABLE t (x UInt8 DEFAULT length('ENGINE = MergeTree'))
ENGINE = MergeTree
ORDER BY x
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000`),
    ).toBe(`-- ENGINE = MergeTree in a comment
CREATE TABLE t ON CLUSTER \`logs\` (x UInt8 DEFAULT length('ENGINE = MergeTree'))
ENGINE = ReplicatedMergeTree(${REPLICA})
ORDER BY x
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window_seconds = 604800, replicated_deduplication_window = 10000`);
    expect(inCluster('CREATE TABLE IF NOT EXISTS d.t (x UInt8) engine = ReplacingMergeTree(x) ORDER BY x')).toBe(
      `CREATE TABLE IF NOT EXISTS d.t ON CLUSTER \`logs\` (x UInt8) engine = ReplicatedReplacingMergeTree(${REPLICA}, x) ORDER BY x`,
    );
  });

  test.each([
    ['CREATE TABLE a AS b', 'CREATE TABLE a ON CLUSTER `logs` AS b'],
    ['CREATE VIEW v AS SELECT 1', 'CREATE VIEW v ON CLUSTER `logs` AS SELECT 1'],
    ['CREATE OR REPLACE VIEW v AS (SELECT 1)', 'CREATE OR REPLACE VIEW v ON CLUSTER `logs` AS (SELECT 1)'],
    ['CREATE MATERIALIZED VIEW v TO t AS SELECT 1', 'CREATE MATERIALIZED VIEW v ON CLUSTER `logs` TO t AS SELECT 1'],
    ['DROP VIEW IF EXISTS v SYNC', 'DROP VIEW IF EXISTS v ON CLUSTER `logs` SYNC'],
    ['DROP TABLE t', 'DROP TABLE t ON CLUSTER `logs`'],
    ['EXCHANGE TABLES a AND b', 'EXCHANGE TABLES a AND b ON CLUSTER `logs`'],
    ['ALTER TABLE t MODIFY SETTING x = 1', 'ALTER TABLE t ON CLUSTER `logs` MODIFY SETTING x = 1'],
    ['SYSTEM STOP MERGES d.t', 'SYSTEM STOP MERGES ON CLUSTER `logs` d.t'],
    ['ALTER TABLE t ADD COLUMN x UInt8', 'ALTER TABLE t ON CLUSTER `logs` ADD COLUMN x UInt8'],
  ])('%s happens on every node', (sql, expected) => {
    expect(inCluster(sql)).toBe(expected);
  });

  test('a table that all shards share has one place in Keeper and changes once, but each replica has settings', () => {
    expect(inCluster('CREATE TABLE d.api_keys (x UInt8) ENGINE = AggregatingMergeTree ORDER BY x')).toContain(
      "ReplicatedAggregatingMergeTree('/clickhouse/tables/{uuid}/all', '{shard}-{replica}')",
    );
    const alter = 'ALTER TABLE `api_keys` ADD COLUMN setting UInt8';
    expect(inCluster(alter)).toBe(alter);
    for (const change of ['MODIFY SETTING x = 1', 'RESET SETTING x'])
      expect(inCluster(`ALTER TABLE \`api_keys\` ${change}`)).toBe(
        `ALTER TABLE \`api_keys\` ON CLUSTER \`logs\` ${change}`,
      );
  });

  test.each([
    "ALTER TABLE t DROP PARTITION ID '1'",
    "ALTER TABLE t REPLACE PARTITION ID '1' FROM s",
    "ALTER TABLE t MOVE PARTITION ID '1' TO TABLE s",
    'TRUNCATE TABLE t',
    "INSERT INTO t SELECT 'CREATE TABLE x ENGINE = MergeTree'",
    'SYSTEM SYNC REPLICA t LIGHTWEIGHT',
  ])('%s stays as it is: Keeper or the node takes care of it', (sql) => {
    expect(inCluster(sql)).toBe(sql);
  });

  test.each([
    ['-- comment\nINSERT INTO rollups (x) SELECT 1', true],
    ['INSERT INTO d.`api_keys` VALUES (1)', true],
    ['CREATE VIEW v AS SELECT 1', true],
    ['INSERT INTO batches (topic) SELECT 1', false],
    ["ALTER TABLE edge_logs DROP PARTITION ID '1'", false],
    ['TRUNCATE TABLE edge_logs', false],
    ['SYSTEM STOP MERGES t', true],
    ['SYSTEM SYNC REPLICA t LIGHTWEIGHT', false],
    ['BACKUP DATABASE d TO Null', false],
  ])('%s: for all shards: %s', (sql, expected) => {
    expect(isForAllShards(sql)).toBe(expected);
  });

  test('a table of one node has an identity of its own and no other replica', () => {
    expect(forCluster('CREATE TABLE a AS b', 'logs', 'some-uuid')).toBe("CREATE TABLE a UUID 'some-uuid' AS b");
    expect(forCluster('DROP TABLE IF EXISTS a SYNC', 'logs', 'some-uuid')).toBe('DROP TABLE IF EXISTS a SYNC');
  });

  test('no migration is left with a table of one node', () => {
    for (const { name, statements } of loadMigrations())
      for (const sql of statements.map(inCluster)) {
        expect(sql, name).not.toMatch(/= (?!Replicated)\w*MergeTree|[^_]non_replicated/);
        if (!/^\s*(--.*\n\s*)*INSERT/.test(sql)) expect(sql, name).toContain('ON CLUSTER `logs`');
      }
  });
});
