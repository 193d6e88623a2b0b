import { StartError } from '../../errors.ts';
import { isCertificateError } from '../../tls.ts';
import { select, type ClickHouse, type Reader } from '../clickhouse.ts';
import { SHARED_TABLES } from './cluster.ts';
import { ClickHouseError, type Failure } from '../errors.ts';
import { openServer, type ServerOptions } from '../server/server.ts';

export type NodeList = ReturnType<typeof createNodeList>;

export interface NodeListOptions extends Omit<ServerOptions, 'url' | 'unreachablePatienceMs' | 'firstAnswerMs'> {
  readonly urls: readonly string[];
  /** A node of another shard counts as lost: nobody knew its shard before it answered. */
  readonly shard?: string | undefined;
}

interface Node {
  readonly url: string;
  readonly host: string;
  opened?: Promise<ClickHouse>;
  /** it could not be opened then, and to ask again would take long or be logged again */
  failed?: { readonly at: number; readonly error: unknown };
}

/** The node is lost, or refuses. */
interface Failed {
  readonly host: string;
  readonly error: ClickHouseError;
}

type Outcome<T> = { readonly clickhouse: ClickHouse; readonly answer: T } | Failed;

/** The node has lost Keeper, and another may not have. */
const WITHOUT_KEEPER = new Set(['TABLE_IS_READ_ONLY', 'NO_ZOOKEEPER', 'KEEPER_EXCEPTION']);

/** The node refuses every statement before it begins: another server without our user or database took its place. */
const UNUSABLE = new Set([
  'UNKNOWN_DATABASE',
  'UNKNOWN_USER',
  'WRONG_PASSWORD',
  'REQUIRED_PASSWORD',
  'AUTHENTICATION_FAILED',
]);
const OTHER_SHARD = 'OTHER_SHARD';
const isOfOtherShard = (error: unknown): boolean => error instanceof ClickHouseError && error.codeName === OTHER_SHARD;

/** A node that refuses a connection does so at once, and may be asked again at once, milliseconds. */
const REFUSED_MS = 1_000;
/** How long a node may take for its first answer, milliseconds: others may serve instead. */
const OPEN_MS = 5_000;
/** How long another node that could not be opened is left alone while statements run, milliseconds. */
const OPEN_AGAIN_MS = 10_000;

/** Its replicas that have a session in Keeper, and its own name. One row per table that its shard has alone. */
const REPLICAS = `
SELECT replica_name AS own, mapKeys(mapFilter((name, active) -> active = 1, replica_is_active)) AS active
FROM system.replicas
WHERE database = currentDatabase() AND table NOT IN {shared:Array(String)}`;

/** The nodes of one list of urls. Each is opened when it is first needed, and again after it could not be opened. */
export function createNodeList({ urls, shard, ...options }: NodeListOptions) {
  const nodes = urls.map((url): Node => ({ url, host: new URL(url).host }));
  return {
    hosts: nodes.map(({ host }) => host),
    where: nodes.map(({ host }) => host).join(', '),
    open,
    openNow,
    /**
     * The results in the order of the urls; undefined for a lost node, and for one that refuses the work, which is
     * logged. Throws if no node does it: the refusal, unless one is lost.
     */
    onLive: async <T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<(T | undefined)[]> =>
      (await onNodes(work)).map((o) => ('answer' in o ? o.answer : undefined)),
    onEvery,
    async close(): Promise<void> {
      await Promise.all(nodes.map(async ({ opened }) => (await opened?.catch(() => undefined))?.close()));
    },
  };

  /** Opens a node, once it can be. Throws ClickHouseError if it does not answer, StartError if it cannot be used. */
  function open(at: number): Promise<ClickHouse> {
    const node = nodes[at]!;
    const since = performance.now();
    const own = { url: node.url, wait: false, unreachablePatienceMs: 0, firstAnswerMs: OPEN_MS };
    node.opened ??= openServer({ ...options, ...own })
      .then(ofOurShard)
      .catch((failure: unknown) => {
        // what waiting cannot help stays what it is, with its advice
        const error = failure instanceof StartError && isRefusal(failure.cause) ? failure : asLoss(failure);
        delete node.opened;
        const now = performance.now();
        if (error instanceof StartError || isOfOtherShard(error) || now - since > REFUSED_MS)
          node.failed = { at: now, error };
        if (error instanceof StartError) notReady(node.host, error);
        throw error;
      });
    return node.opened;
  }

  async function ofOurShard(opened: ClickHouse): Promise<ClickHouse> {
    if (shard === undefined || (await shardOfNode(opened)) === shard) return opened;
    await opened.close();
    throw lost(new Error(`it is no node of the shard ${shard}`), OTHER_SHARD);
  }

  /**
   * Opens a node while statements run: one that cannot be used, such as an empty one without the database, is lost, and
   * one that did not answer is not asked again for some seconds.
   */
  async function openNow(at: number): Promise<ClickHouse> {
    const { opened, failed } = nodes[at]!;
    try {
      if (opened === undefined && failed !== undefined && performance.now() - failed.at < OPEN_AGAIN_MS)
        throw failed.error;
      return await open(at);
    } catch (error) {
      throw error instanceof StartError ? lost(error, 'NODE_UNUSABLE') : error;
    }
  }

  function notReady(host: string, { message }: Error): void {
    options.logger.error({ node: host, reason: message }, 'clickhouse_node_not_ready');
  }

  async function onNodes<T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<Outcome<T>[]> {
    const outcomes = await Promise.all(
      nodes.map(async ({ host }, at): Promise<Outcome<T>> => {
        try {
          const clickhouse = await openNow(at);
          return { clickhouse, answer: await work(clickhouse) };
        } catch (error) {
          if (!isLost(error) && !isRefusal(error)) throw error;
          return { host, error };
        }
      }),
    );
    const failures = outcomes.filter((o) => 'error' in o);
    if (failures.length === nodes.length) throw (failures.find((f) => isLost(f.error)) ?? failures[0]!).error;
    for (const { host, error } of failures) if (!isLost(error)) notReady(host, error);
    return outcomes;
  }

  /**
   * The results of all nodes. One that is lost, or refuses, may be left out as soon as Keeper has ended its session:
   * then only a node that was suspended, and goes on, can still commit an insert (docs/scale.md). Throws if it has not.
   */
  async function onEvery<T>(work: (clickhouse: ClickHouse) => Promise<T>): Promise<T[]> {
    const outcomes = await onNodes(work);
    const failure = outcomes.find((o) => 'error' in o);
    const answered = outcomes.filter((o) => 'answer' in o);
    if (failure !== undefined)
      await assertEnded(
        answered.map((o) => o.clickhouse),
        failure,
      );
    return answered.map((o) => o.answer);
  }
}

/** Throws if the session of a node in Keeper may go on. `answered`: all of its shard that answer. */
async function assertEnded(answered: readonly Reader[], { host, error }: Failed): Promise<void> {
  const replicas = await Promise.all(
    answered.map((node) => select<{ own: string; active: string[] }>(node, REPLICAS, { shared: [...SHARED_TABLES] })),
  );
  const rows = replicas.flat();
  const own = new Set(rows.map((r) => r.own));
  // a node without Keeper sees no session, not even its own, and one without tables sees none at all
  const isBlind = !rows.some((r) => r.active.includes(r.own));
  if (isBlind || rows.some((r) => r.active.some((name) => !own.has(name))))
    throw lost(new Error(`${host}: ${error.message}`, { cause: error }), error.codeName);
}

/** The macro `shard` of a node; '' if it has none (checkCluster says so). */
export async function shardOfNode(node: Reader): Promise<string> {
  try {
    return (await select<{ shard: string }>(node, "SELECT getMacro('shard') AS shard"))[0]!.shard;
  } catch (error) {
    if (error instanceof ClickHouseError && error.codeName === 'NO_ELEMENTS_IN_CONFIG') return '';
    throw error;
  }
}

export function lost(error: Error, codeName: string): ClickHouseError {
  const failure: Failure = { code: undefined, codeName, kind: 'retry', outcome: 'not_written' };
  return new ClickHouseError(`The node cannot be used: ${error.message}`, failure, error);
}

/** Returns an error of a node that refuses every statement, or answers no question of the start yet, as its loss. */
export function asLoss(error: unknown): unknown {
  const ofStart = error instanceof StartError;
  const cause = ofStart ? error.cause : error;
  if (!(cause instanceof ClickHouseError)) return error;
  if (ofStart && isLost(cause)) return cause;
  const isUnusable = UNUSABLE.has(cause.codeName) || isCertificateError(cause.codeName);
  return isUnusable || (ofStart && cause.kind === 'retry') ? lost(cause, cause.codeName) : error;
}

/** The same fails on this node again. If others do it, this one is not ready: it lacks rights or the database. */
export function isRefusal(error: unknown): error is ClickHouseError {
  return error instanceof ClickHouseError && error.kind === 'fatal';
}

/** True unless the statement itself failed. */
export function isLost(error: unknown): error is ClickHouseError {
  return (
    error instanceof ClickHouseError &&
    ((error.code === undefined && error.kind === 'retry') || WITHOUT_KEEPER.has(error.codeName))
  );
}
