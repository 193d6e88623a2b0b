import { EXIT_CONFIG, StartError } from '../../errors.ts';
import { select, shardsOf } from '../clickhouse.ts';
import type { ClickHouse, ClusterDuties, Read, ReadResult, Shard } from '../clickhouse.ts';
import { countShards, isForAllShards, SHARED_TABLES, SIDE_TABLE } from './cluster.ts';
import { databaseOfAll } from '../database.ts';
import { ClickHouseError } from '../errors.ts';
import { lost, shardOfNode } from './node-list.ts';
import { databaseIn } from '../server/connection.ts';
import { untilAnswered } from '../server/version.ts';
import { concatenated, openNodes, type ClusterOptions, type Nodes, type NodesOptions } from './nodes.ts';
import { identifier, quote } from '../sql.ts';

/**
 * A ClickHouse cluster. With one shard it is the nodes of that shard (nodes.ts). With several shards each of them is a
 * ClickHouse of its own (`shards`), and the whole is for what concerns all of them:
 * - Its reads see all shards: in a database beside ours, every table has a table of the same name that reads it on all
 * shards. A table that the shards share is read on the node that runs the statement.
 * - It writes the shared tables and changes the schema. It refuses every other write, which belongs to one shard.
 */

/** How soon a process notices that the cluster has another number of shards, milliseconds. */
const WATCH_MS = 10_000;

/** Tables and views whose table over all shards is absent or has other columns. Parameters: all (its database). */
const NOT_DISTRIBUTED = `
SELECT table AS found
FROM system.columns
WHERE database IN (currentDatabase(), {all:String}) AND NOT match(table, '_mv$|_retired_[0-9a-f]{8}$|${SIDE_TABLE}')
GROUP BY found
HAVING countIf(database = currentDatabase()) > 0
    AND arraySort(groupArrayIf((position, name, type), database = currentDatabase())) != arraySort(groupArrayIf((position, name, type), database = {all:String}))
ORDER BY found`;

/** Resolves when a node of every shard has answered. Throws StartError if waiting cannot help. */
export async function openCluster(options: ClusterOptions): Promise<ClickHouse> {
  const { cluster, logger } = options;
  let changed: Error | undefined;
  const guarded = {
    ...options,
    guard: () => {
      if (changed !== undefined) throw changed;
    },
  };
  const nodes = await openNodes(guarded);
  try {
    return watched(await untilAnswered(nodes.where, options, () => openWhole(nodes, guarded)));
  } catch (error) {
    await nodes.close();
    throw error;
  }

  /** Ends every further statement once there are more or fewer shards: it would miss the rows of one. */
  function watched(opened: ClickHouse): ClickHouse {
    const expected = shardsOf(opened).length;
    const close = opened.close.bind(opened);
    const look = async (): Promise<void> => {
      // 0: of a node that does not know the cluster. Where it cannot be asked, the statements fail too
      const now = await countShards(nodes, cluster).catch(() => 0);
      if (now === 0 || now === expected || changed !== undefined) return;
      changed = new StartError(
        `the cluster ${cluster} has ${now} shards now, and had ${expected}: restart the process`,
      );
      logger.error({ cluster, expected, now }, 'shards_changed');
    };
    const timer = setInterval(() => void look(), WATCH_MS).unref();
    return Object.assign(opened, {
      close: async () => {
        clearInterval(timer);
        await close();
      },
    });
  }
}

/** Throws StartError if waiting cannot help, ClickHouseError if no node of a shard has answered yet. */
async function openWhole(nodes: Nodes, options: NodesOptions): Promise<ClickHouse> {
  const { cluster } = options;
  const expected = await countShards(nodes, cluster).catch((error: unknown) => {
    if (!(error instanceof ClickHouseError) || error.codeName !== 'ACCESS_DENIED') throw error;
    throw new StartError(
      `the user of ClickHouse at ${nodes.where} cannot read how many shards the cluster has; run there: GRANT SELECT ON system.clusters`,
      { cause: error, exitCode: EXIT_CONFIG },
    );
  });
  if (expected === 0) {
    // names everything that the nodes lack
    await nodes.cluster.check();
    throw lost(new Error(`it had no cluster ${cluster}`), 'NO_CLUSTER');
  }
  if (expected === 1) return Object.assign(nodes, { shard: await shardOfNode(nodes) });
  const found = await nodes.onLiveNodes(shardOfNode);
  const names = [...new Set(found.filter((name) => name !== undefined))].toSorted();
  if (names.length === expected) return await openShards(nodes, options, names, found);
  if (names.length < expected && found.includes(undefined))
    throw lost(new Error(`of ${expected} shards only ${names.join(', ')} answer`), 'SHARD_AWAY');
  throw new StartError(
    `the cluster ${cluster} has ${expected} shards, but the nodes of CLICKHOUSE_URL have the macro shard = ${names.join(', ')}: CLICKHOUSE_URL must name all nodes of all shards`,
    { exitCode: EXIT_CONFIG },
  );
}

/** `found`: the shards of the nodes in the order of the urls; undefined for a node that has not answered yet. */
async function openShards(
  nodes: Nodes,
  options: NodesOptions,
  names: readonly string[],
  found: readonly (string | undefined)[],
): Promise<ClickHouse> {
  const { cluster, urls } = options;
  const database = databaseIn(new URL(urls[0]!));
  const over = databaseOfAll(database);
  const all = await openNodes({
    ...options,
    database,
    urls: urls.map((url) => Object.assign(new URL(url), { pathname: encodeURIComponent(over) }).href),
  });
  const duties: ClusterDuties = { ...nodes.cluster, distribute };
  const shards = await Promise.all(
    names.map(async (shard) => {
      const own = urls.filter((_, at) => found[at] === undefined || found[at] === shard);
      return Object.assign(await openNodes({ ...options, urls: own, shard }), { shard, cluster: duties });
    }),
  );

  return {
    shards: shards satisfies readonly Shard[],
    where: nodes.where,
    version: nodes.version,
    writers: nodes.writers,
    read,
    async execute(statement) {
      if (!isForAllShards(statement.sql)) throw ofOneShard(statement.sql);
      await nodes.execute(statement);
    },
    insertRows: ({ table }) => Promise.reject(ofOneShard(`INSERT INTO ${table}`)),
    async killInsert(queryId) {
      await Promise.all(shards.map((shard) => shard.killInsert(queryId)));
    },
    rights: (wanted) => nodes.rights(wanted),
    ping: () => all.ping(),
    cluster: duties,
    async close() {
      await Promise.all([nodes, all, ...shards].map((opened) => opened.close()));
    },
  };

  async function read(wanted: Read): Promise<ReadResult> {
    if (wanted.everyNode === true) return concatenated(await Promise.all(shards.map((shard) => shard.read(wanted))));
    // any replica of a shard may answer the node that is asked: only the shard itself knows which one is fresh
    if (wanted.fresh?.tables.some((table) => !SHARED_TABLES.has(table)) === true) throw ofOneShard(wanted.sql);
    return await all.read(wanted);
  }

  async function distribute(): Promise<void> {
    await nodes.onLiveNodes(async (node) => {
      for (const { found: table } of await select<{ found: string }>(node, NOT_DISTRIBUTED, { all: over })) {
        const engine = SHARED_TABLES.has(table)
          ? `Merge(${quote(database)}, ${quote(`^${table}$`)})`
          : `Distributed(${[cluster, database, table].map(quote).join(', ')})`;
        const sql = `CREATE OR REPLACE TABLE ${identifier(over)}.${identifier(table)} AS ${identifier(database)}.${identifier(table)} ENGINE = ${engine}`;
        await node.execute({ sql }).catch((error: unknown) => {
          // another rollup service was faster
          if (!(error instanceof ClickHouseError) || error.codeName !== 'TABLE_ALREADY_EXISTS') throw error;
        });
      }
    });
  }
}

/** A mistake of ours: it would be done on one shard only. */
function ofOneShard(sql: string): Error {
  return new Error(`this statement is for each shard by itself: ${sql.trim().slice(0, 200)}`);
}
