import { randomUUID } from 'node:crypto';
import {
  select,
  type ClickHouse,
  type ClusterDuties,
  type Read,
  type Reader,
  type ReadResult,
  type StatementSettings,
} from '../clickhouse.ts';
import { createDuties } from './duties.ts';
import { CLUSTER_SETTINGS, forCluster } from './cluster.ts';
import { ClickHouseError } from '../errors.ts';
import { asLoss, createNodeList, isLost, lost } from './node-list.ts';
import type { NodeList, NodeListOptions } from './node-list.ts';
import { databaseIn } from '../server/connection.ts';
import { untilAnswered } from '../server/version.ts';
import { identifier } from '../sql.ts';

/**
 * Several nodes of a ClickHouse cluster, used as one ClickHouse. Every statement goes to one node, the first of the
 * list that answers, until that node is lost: then the next one takes its place. A read that fails because its node is
 * lost is repeated there at once, and so is a statement that certainly did nothing. An insert is repeated by its caller
 * under the same token, which Keeper holds for all replicas.
 */
export interface ClusterOptions extends Omit<NodeListOptions, 'shard'> {
  /** its name in the servers' remote_servers */
  readonly cluster: string;
}

export interface NodesOptions extends ClusterOptions, NodeListOptions {
  /** where the replicated tables are, if the database of the urls has tables that read them on all shards */
  readonly database?: string;
  /** Throws if no statement may run any more. */
  readonly guard?: () => void;
}

export interface Nodes extends ClickHouse {
  readonly cluster: ClusterDuties;
  /** The results in the order of the urls; undefined for a lost node. */
  onLiveNodes<T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<(T | undefined)[]>;
}

/** A replica that takes longer to fetch what others acknowledged is left for another one, milliseconds. */
const LAG_MS = 3_000;
/** Another node, which the asked one reads from, is lost. */
const WITHOUT_OTHER_NODE = new Set([
  'ATTEMPT_TO_READ_AFTER_EOF',
  'SOCKET_TIMEOUT',
  'NETWORK_ERROR',
  'ALL_CONNECTION_TRIES_FAILED',
]);

/** Resolves when a node has answered. Throws StartError as openServer does, if waiting cannot help. */
export async function openNodes({
  urls,
  cluster,
  shard,
  database,
  guard = () => {},
  ...options
}: NodesOptions): Promise<Nodes> {
  const { logger } = options;
  const tablesIn = database ?? databaseIn(new URL(urls[0]!));
  const nodes = createNodeList({ ...options, urls, shard });
  const { at: first, used } = await untilAnswered(nodes.where, options, () => firstAnswer(nodes));
  let current = first;
  let isClosed = false;

  return {
    where: nodes.where,
    version: used.version,
    writers: used.writers,
    read,
    execute: ({ ofNode, ...statement }) => {
      const sql = forCluster(statement.sql, cluster, ofNode === true ? randomUUID() : undefined);
      return use((clickhouse) => clickhouse.execute({ ...inCluster(statement), sql }), statement);
    },
    insertRows: (rows) => use((clickhouse) => clickhouse.insertRows(inCluster(rows)), {}, 'once'),
    async killInsert(queryId) {
      await nodes.onEvery((clickhouse) => clickhouse.killInsert(queryId));
    },
    rights: (wanted) => untilAnswered(nodes.where, options, () => use((clickhouse) => clickhouse.rights(wanted))),
    ping: () => use((clickhouse) => clickhouse.ping()),
    cluster: createDuties(nodes, { read }, cluster, options),
    onLiveNodes: (work) => nodes.onLive(work),
    async close() {
      isClosed = true;
      await nodes.close();
    },
  };

  async function read({ everyNode, ...one }: Read): Promise<ReadResult> {
    // another address answers, whose faults are none of the node
    if (one.isolated === true) return await (await use((clickhouse) => Promise.resolve(clickhouse))).read(one);
    if (everyNode !== true) return await use((clickhouse) => readOn(clickhouse, one), one);
    const answers = await nodes.onEvery(async (clickhouse) => {
      await sync(clickhouse, tablesIn, one.fresh?.tables, one.fresh?.withinMs ?? 0);
      return await clickhouse.read(one);
    });
    return concatenated(answers);
  }

  /**
   * Runs a statement on the current node, which has fetched all rows of the tables in `fresh` by then. If the node is
   * lost, the next one becomes the current one. It gets the statement too, unless the statement may have run, or
   * can be sent only once.
   */
  async function use<T>(
    work: (clickhouse: ClickHouse) => Promise<T>,
    { fresh }: Pick<Read, 'fresh'> = {},
    sent: 'once' | 'again' = 'again',
  ): Promise<T> {
    guard();
    const lagMs = Math.min(LAG_MS, (fresh?.withinMs ?? 0) / nodes.hosts.length);
    for (let tried = 1; ; tried++) {
      const at = current;
      const isLast = tried >= nodes.hosts.length;
      // where all of them lag, the last one is waited for
      const patienceMs = isLast ? Math.max(lagMs, (fresh?.withinMs ?? 0) - lagMs * (tried - 1)) : lagMs;
      try {
        const clickhouse = await nodes.openNow(at);
        await sync(clickhouse, tablesIn, fresh?.tables, patienceMs);
        return await work(clickhouse);
      } catch (caught) {
        const error = asLoss(caught);
        if (isClosed || (!isLost(error) && !(database !== undefined && isOfOtherNode(error)))) throw error;
        leave(at, error);
        if (isLast || sent === 'once' || error.outcome !== 'not_written') throw error;
      }
    }
  }

  function leave(at: number, { codeName }: ClickHouseError): void {
    if (current !== at) return;
    current = (at + 1) % nodes.hosts.length;
    logger.warn({ left: nodes.hosts[at], now: nodes.hosts[current], reason: codeName }, 'clickhouse_node_changed');
  }
}

/** True if another node that this one read from is lost. A node that stops kills what it reads for others, too. */
function isOfOtherNode(error: unknown): error is ClickHouseError {
  if (!(error instanceof ClickHouseError)) return false;
  const { codeName, message } = error;
  return (codeName === 'QUERY_WAS_CANCELLED' && message.includes('Received from')) || WITHOUT_OTHER_NODE.has(codeName);
}

/** A node that stops ends its reads with the number of one that was killed, and answers nothing more. */
async function readOn(clickhouse: ClickHouse, read: Read): Promise<ReadResult> {
  try {
    return await clickhouse.read(read);
  } catch (error) {
    const isKilled = error instanceof ClickHouseError && error.codeName === 'QUERY_WAS_CANCELLED';
    if (isKilled && read.signal?.aborted !== true) await clickhouse.ping();
    throw error;
  }
}

/** Returns the rows of several answers as one. */
export function concatenated(answers: readonly ReadResult[]): ReadResult {
  return { body: Buffer.concat(answers.map((a) => a.body)), readRows: undefined, readBytes: undefined };
}

/**
 * Resolves when the node has every row of these tables of a database that any node acknowledged before, and Keeper has
 * every part that the node shows.
 */
async function sync(
  clickhouse: ClickHouse,
  database: string,
  tables: readonly string[] = [],
  withinMs: number,
): Promise<void> {
  if (tables.length === 0) return;
  const settings = { receive_timeout: Math.ceil(withinMs) / 1000 };
  const fetch = (table: string): Promise<void> =>
    clickhouse.execute({
      sql: `SYSTEM SYNC REPLICA ${identifier(database)}.${identifier(table)} LIGHTWEIGHT`,
      settings,
    });
  try {
    await Promise.all([...tables.map(fetch), assertCommitted(clickhouse, database, tables)]);
  } catch (error) {
    if (!(error instanceof ClickHouseError)) throw error;
    // a replica that has just joined has no tables yet
    const isNew = error.codeName === 'UNKNOWN_TABLE';
    if (error.kind !== 'retry' && !isNew) throw error;
    throw lost(error, error.code === undefined || isNew ? error.codeName : 'REPLICA_LAGS');
  }
}

interface Part {
  readonly name: string;
}

/** Tables of which ClickHouse suspects a part, and where Keeper lists the parts of this replica. */
const SUSPECTED = `
  SELECT table, concat(replica_path, '/parts') AS path
  FROM system.replicas
  WHERE database = {database:String} AND table IN {tables:Array(String)} AND parts_to_check > 0`;
const SHOWN = 'SELECT name FROM system.parts WHERE active AND database = {database:String} AND table = {table:String}';
const IN_KEEPER = 'SELECT name FROM system.zookeeper WHERE path = {path:String}';

/**
 * Throws while the node shows a part that Keeper does not have. An insert leaves one if the answer to its commit is lost
 * (UNKNOWN_STATUS_OF_INSERT). ClickHouse suspects it, and detaches it after five minutes. Whoever counts its rows as
 * stored loses them. Keeper has every other part before its node shows it, so the node is asked first.
 */
async function assertCommitted(clickhouse: Reader, database: string, tables: readonly string[]): Promise<void> {
  const suspected = await select<{ table: string; path: string }>(clickhouse, SUSPECTED, { database, tables });
  for (const { table, path } of suspected) {
    const shown = await select<Part>(clickhouse, SHOWN, { database, table });
    const committed = new Set((await select<Part>(clickhouse, IN_KEEPER, { path })).map(({ name }) => name));
    const other = shown.find(({ name }) => !committed.has(name));
    if (other !== undefined)
      throw lost(new Error(`Keeper does not have its part ${path}/${other.name}`), 'PART_NOT_IN_KEEPER');
  }
}

function inCluster<S extends { readonly settings?: StatementSettings }>(statement: S): S {
  return { ...statement, settings: { ...CLUSTER_SETTINGS, ...statement.settings } };
}

/** Throws StartError if a node cannot be used and no other one can; waiting would not help. */
async function firstAnswer(nodes: NodeList): Promise<{ readonly at: number; readonly used: ClickHouse }> {
  const failures: unknown[] = [];
  for (const at of nodes.hosts.keys())
    try {
      return { at, used: await nodes.open(at) };
    } catch (error) {
      failures.push(error);
    }
  throw failures.find((error) => !isLost(error)) ?? failures[0];
}
