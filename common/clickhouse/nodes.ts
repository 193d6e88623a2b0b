import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.ts';
import {
  select,
  type ClickHouse,
  type ClusterDuties,
  type Read,
  type Reader,
  type ReadResult,
  type StatementSettings,
} from './clickhouse.ts';
import { checkCluster, CLUSTER_SETTINGS, forCluster, SHARED_TABLES } from './cluster.ts';
import { ClickHouseError } from './errors.ts';
import { openServer, type ServerOptions } from './server.ts';
import { identifier } from './sql.ts';

/**
 * Several nodes of a ClickHouse cluster, used as one ClickHouse. Every statement goes to one node, the first of the
 * list that answers, until that node is lost: then the next one takes its place. A read that fails because its node is
 * lost is repeated there at once, and so is a statement that certainly did nothing. An insert is repeated by its caller
 * under the same token, which Keeper holds for all replicas.
 */
export interface ClusterOptions extends Omit<ServerOptions, 'url' | 'unreachablePatienceMs'> {
  readonly urls: readonly string[];
  /** its name in the servers' remote_servers */
  readonly cluster: string;
}

export interface NodesOptions extends ClusterOptions {
  /** A node of another shard counts as lost: nobody knew its shard before it answered. */
  readonly shard?: string;
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

const CONNECT_RETRY_MS = 1_000;
/** A replica that takes longer to fetch what others acknowledged is left for another one, milliseconds. */
const LAG_MS = 3_000;
/** TABLE_IS_READ_ONLY, NO_ZOOKEEPER, KEEPER_EXCEPTION: the node has lost Keeper, and another may not have. */
const WITHOUT_KEEPER = new Set<number | undefined>([242, 225, 999]);
/**
 * ATTEMPT_TO_READ_AFTER_EOF, SOCKET_TIMEOUT, NETWORK_ERROR, ALL_CONNECTION_TRIES_FAILED: a node that read for the asked
 * one is lost.
 */
const WITHOUT_OTHER_NODE = new Set<number | undefined>([32, 209, 210, 279]);
const TABLE_ALREADY_EXISTS = 57;
const NO_ELEMENTS_IN_CONFIG = 139;
/** a replica that has just joined and has no tables yet */
const UNKNOWN_TABLE = 60;
/** also of our own questions to a node that does not answer in time */
const QUERY_WAS_CANCELLED = 394;

/** Its replicas that have a session in Keeper, and its own name. One row per table that its shard has alone. */
const REPLICAS = `
SELECT replica_name AS own, mapKeys(mapFilter((name, active) -> active = 1, replica_is_active)) AS active
FROM system.replicas
WHERE database = currentDatabase() AND table NOT IN {shared:Array(String)}`;

/** Tables and views with what creates them, in an order in which they can be created. Not those of one node only. */
const DEFINITIONS = `
SELECT name, create_table_query AS definition
FROM system.tables
WHERE database = currentDatabase() AND NOT match(name, '_(build|repair)_[0-9a-f]{8}$')
ORDER BY engine = 'View', engine = 'MaterializedView', name`;

/** Resolves when a node has answered. Throws StartError as openServer does, if waiting cannot help. */
export async function openNodes({
  urls,
  cluster,
  shard,
  database,
  guard = () => {},
  ...options
}: NodesOptions): Promise<Nodes> {
  const { logger, wait = true, signal } = options;
  const tablesIn = identifier(database ?? databaseIn(urls[0]!));
  const nodes = urls.map((url): { readonly url: string; readonly host: string; opened?: Promise<ClickHouse> } => ({
    url,
    host: new URL(url).host,
  }));
  let current = 0;
  let used = await firstAnswer();

  return {
    where: nodes.map(({ host }) => host).join(','),
    get version() {
      return used.version;
    },
    get writers() {
      return used.writers;
    },
    read: ({ everyNode, ...read }) =>
      everyNode === true ? readEverywhere(read) : use((clickhouse) => clickhouse.read(read), read),
    execute: ({ ofNode, ...statement }) => {
      const sql = forCluster(statement.sql, cluster, ofNode === true ? randomUUID() : undefined);
      return use((clickhouse) => clickhouse.execute({ ...inCluster(statement), sql }), statement);
    },
    insertRows: (rows) => use((clickhouse) => clickhouse.insertRows(inCluster(rows)), {}, 'once'),
    async killInsert(queryId) {
      await onEveryNode((clickhouse) => clickhouse.killInsert(queryId));
    },
    rights: (wanted) => use((clickhouse) => clickhouse.rights(wanted)),
    ping: () => use((clickhouse) => clickhouse.ping()),
    cluster: { check, complete },
    onLiveNodes,
    async close() {
      await Promise.all(nodes.map(async ({ opened }) => (await opened?.catch(() => undefined))?.close()));
    },
  };

  /** Opens a node, once it can be. Throws ClickHouseError if it does not answer, StartError if it cannot be used. */
  function open(at: number): Promise<ClickHouse> {
    const node = nodes[at]!;
    node.opened ??= openServer({ ...options, url: node.url, wait: false, unreachablePatienceMs: 0 })
      .then(ofOurShard)
      .catch((error: unknown) => {
        delete node.opened;
        throw error instanceof StartError && isLost(error.cause) ? error.cause : error;
      });
    return node.opened;
  }

  async function ofOurShard(opened: ClickHouse): Promise<ClickHouse> {
    if (shard === undefined || (await shardOfNode(opened)) === shard) return opened;
    await opened.close();
    throw lost(new Error(`it is no node of the shard ${shard}`), 'OTHER_SHARD');
  }

  function onLiveNodes<T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<(T | undefined)[]> {
    return Promise.all(
      nodes.map(async (_, at) => {
        try {
          return await work(await openNow(at));
        } catch (error) {
          if (!isLost(error)) throw error;
          return undefined;
        }
      }),
    );
  }

  /** The same while statements run: a node that cannot be used, such as an empty one without the database, is lost. */
  async function openNow(at: number): Promise<ClickHouse> {
    try {
      return await open(at);
    } catch (error) {
      throw error instanceof StartError ? lost(error, 'NODE_UNUSABLE') : error;
    }
  }

  async function firstAnswer(): Promise<ClickHouse> {
    for (let attempt = 0; ; attempt++) {
      let reason = '';
      for (current = 0; current < nodes.length; current++) {
        try {
          return await open(current);
        } catch (error) {
          if (!isLost(error)) throw error;
          reason = error.codeName;
        }
      }
      const where = nodes.map(({ host }) => host).join(', ');
      if (!wait) throw new StartError(`ClickHouse does not answer at any of ${where}: ${reason}`);
      if (attempt % 10 === 0) logger.warn({ where, reason }, 'waiting_for_clickhouse');
      await sleep(CONNECT_RETRY_MS, undefined, signal === undefined ? {} : { signal });
    }
  }

  /**
   * Runs a statement on the current node, which has fetched all rows of the tables in `fresh` by then. If the node is
   * lost, the next one becomes the current one. It gets the statement too, unless the statement may have run, or
   * can be sent only once.
   */
  async function use<T>(
    work: (clickhouse: ClickHouse) => Promise<T>,
    { fresh, signal: ofCaller }: Pick<Read, 'fresh' | 'signal'> = {},
    sent: 'once' | 'again' = 'again',
  ): Promise<T> {
    guard();
    const lagMs = Math.min(LAG_MS, (fresh?.withinMs ?? 0) / nodes.length);
    for (let tried = 1; ; tried++) {
      const at = current;
      const isLast = tried >= nodes.length;
      // where all of them lag, the last one is waited for
      const patienceMs = isLast ? Math.max(lagMs, (fresh?.withinMs ?? 0) - lagMs * (tried - 1)) : lagMs;
      try {
        const clickhouse = await openNow(at);
        await sync(clickhouse, fresh?.tables ?? [], patienceMs);
        return await work(clickhouse);
      } catch (error) {
        if (!isLost(error, ofCaller) && !isOfOtherNode(error)) throw error;
        await leave(at, error);
        if (isLast || sent === 'once' || error.outcome !== 'not_written') throw error;
      }
    }
  }

  function isOfOtherNode(error: unknown): error is ClickHouseError {
    return database !== undefined && error instanceof ClickHouseError && WITHOUT_OTHER_NODE.has(error.code);
  }

  async function leave(at: number, { codeName }: ClickHouseError): Promise<void> {
    if (current !== at) return;
    current = (at + 1) % nodes.length;
    logger.warn({ left: nodes[at]!.host, now: nodes[current]!.host, reason: codeName }, 'clickhouse_node_changed');
    used = await open(current).catch(() => used);
  }

  /** Resolves when the node has every row of these tables that any node acknowledged before. */
  async function sync(clickhouse: ClickHouse, tables: readonly string[], withinMs: number): Promise<void> {
    try {
      await Promise.all(
        tables.map((table) =>
          clickhouse.execute({
            sql: `SYSTEM SYNC REPLICA ${tablesIn}.${identifier(table)} LIGHTWEIGHT`,
            settings: { receive_timeout: Math.ceil(withinMs) / 1000 },
          }),
        ),
      );
    } catch (error) {
      if (!(error instanceof ClickHouseError) || (error.kind !== 'retry' && error.code !== UNKNOWN_TABLE)) throw error;
      throw lost(error, error.code === undefined ? error.codeName : 'REPLICA_LAGS');
    }
  }

  /**
   * Runs `work` on all nodes. A lost one may be left out as soon as Keeper has ended its session, because an insert on
   * it can no longer be committed. Throws if it has not.
   */
  async function onEveryNode<T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<T[]> {
    type Outcome = { readonly clickhouse: ClickHouse; readonly answer: T } | { readonly error: ClickHouseError };
    const outcomes = await Promise.all(
      nodes.map(async (_, at): Promise<Outcome> => {
        try {
          const clickhouse = await openNow(at);
          return { clickhouse, answer: await work(clickhouse) };
        } catch (error) {
          if (!isLost(error)) throw error;
          return { error };
        }
      }),
    );
    const [failure] = outcomes.flatMap((o) => ('error' in o ? [o.error] : []));
    const answered = outcomes.filter((o) => 'answer' in o);
    if (failure !== undefined) {
      const replicas = await Promise.all(
        answered.map(({ clickhouse }) =>
          select<{ own: string; active: string[] }>(clickhouse, REPLICAS, { shared: [...SHARED_TABLES] }),
        ),
      );
      const own = new Set(replicas.flat().map((r) => r.own));
      if (answered.length === 0 || replicas.flat().some((r) => r.active.some((name) => !own.has(name)))) throw failure;
    }
    return answered.map((o) => o.answer);
  }

  async function readEverywhere(read: Read): Promise<ReadResult> {
    const answers = await onEveryNode((clickhouse) => clickhouse.read(read));
    return { body: Buffer.concat(answers.map((a) => a.body)), readRows: undefined, readBytes: undefined };
  }

  function inCluster<S extends { readonly settings?: StatementSettings }>(statement: S): S {
    return { ...statement, settings: { ...CLUSTER_SETTINGS, ...statement.settings } };
  }

  async function check(): Promise<void> {
    for (const [at] of nodes.entries()) {
      const node = await open(at).catch((error: unknown) => {
        if (isLost(error)) return undefined;
        throw error;
      });
      if (node !== undefined) await checkCluster(node, cluster);
    }
  }

  async function complete(): Promise<void> {
    const held = await onLiveNodes(definitionsOn);
    const answered = held.filter((definitions) => definitions !== undefined);
    const wanted = answered.reduce((most, of) => (of.size > most.size ? of : most), new Map<string, string>());
    if (wanted.size === 0 && answered.length < nodes.length)
      throw new StartError(
        `the cluster ${cluster} has no tables on the nodes that answer; to create them, every node of CLICKHOUSE_URL must answer`,
      );
    for (const [at, definitions] of held.entries()) {
      const missing = [...wanted].filter(([name]) => definitions?.has(name) === false);
      try {
        for (const [, sql] of missing) await (await open(at)).execute({ sql });
        if (missing.length > 0)
          logger.info({ node: nodes[at]!.host, tables: missing.length }, 'clickhouse_node_completed');
      } catch (error) {
        // else a statement that was in flight on all nodes has created it
        if (!isLost(error) && !(error instanceof ClickHouseError && error.code === TABLE_ALREADY_EXISTS)) throw error;
      }
    }
  }
}

/** By name, in an order in which they can be created. */
async function definitionsOn(node: ClickHouse): Promise<ReadonlyMap<string, string>> {
  const found = await select<{ name: string; definition: string }>(
    node,
    DEFINITIONS,
    {},
    { show_table_uuid_in_table_create_query_if_not_nil: 1 },
  );
  return new Map(found.map(({ name, definition }) => [name, definition]));
}

/** The macro `shard` of a node; '' if it has none (checkCluster says so). */
export async function shardOfNode(node: Reader): Promise<string> {
  try {
    return (await select<{ shard: string }>(node, "SELECT getMacro('shard') AS shard"))[0]!.shard;
  } catch (error) {
    if (error instanceof ClickHouseError && error.code === NO_ELEMENTS_IN_CONFIG) return '';
    throw error;
  }
}

export const databaseIn = (url: string): string => decodeURIComponent(new URL(url).pathname.slice(1)) || 'default';

function lost(error: Error, codeName: string): ClickHouseError {
  return new ClickHouseError(`The node cannot be used: ${error.message}`, {
    code: undefined,
    codeName,
    kind: 'retry',
    outcome: 'not_written',
    cause: error,
  });
}

/** True unless the statement itself failed. `signal`: of its caller, who ended it and not the node. */
function isLost(error: unknown, signal?: AbortSignal): error is ClickHouseError {
  return (
    error instanceof ClickHouseError &&
    ((error.code === undefined && error.kind === 'retry') ||
      WITHOUT_KEEPER.has(error.code) ||
      (error.code === QUERY_WAS_CANCELLED && signal?.aborted !== true))
  );
}
