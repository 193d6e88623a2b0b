import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../../errors.ts';
import { fresh, select, type ClickHouse, type ClusterDuties, type Reader } from '../clickhouse.ts';
import { checkCluster, SIDE_TABLE } from './cluster.ts';
import { isLost, isRefusal, type NodeList } from './node-list.ts';
import type { ServerOptions } from '../server/server.ts';
import { untilAnswered } from '../server/version.ts';

/** Tables and views with what creates them, in an order in which they can be created. Not those of one node only. */
const DEFINITIONS = `
SELECT name, create_table_query AS definition, if(startsWith(engine, 'Replicated'), uuid, NULL) AS replicated
FROM system.tables
WHERE database = currentDatabase() AND NOT match(name, '${SIDE_TABLE}')
ORDER BY engine = 'View', engine = 'MaterializedView', name`;

/** A migration that has begun and not ended. One that begins again and again does not count for longer than this. */
const MIGRATING = `
SELECT version
FROM migrations
GROUP BY version
HAVING max(state = 'applied') = 0 AND min(at) > now() - INTERVAL 10 MINUTE`;

const MIGRATING_RETRY_MS = 1_000;

interface Table {
  readonly definition: string;
  /** The UUID, which is its place in Keeper (cluster.ts); null if it is not replicated. */
  readonly replicated: string | null;
}

type Tables = ReadonlyMap<string, Table>;

/** `reader` reads on the node that is used. */
export function createDuties(
  nodes: NodeList,
  reader: Reader,
  cluster: string,
  options: Pick<ServerOptions, 'logger' | 'wait' | 'signal'>,
): ClusterDuties {
  const { logger } = options;
  let wasComplete = false;
  let waits = 0;
  return { check, complete };

  async function check(): Promise<void> {
    await untilAnswered(nodes.where, options, () => nodes.onLive((node) => checkCluster(node, cluster)));
  }

  async function complete(): Promise<void> {
    const held = await nodes.onLive(tablesOn);
    const most = held.reduce((best, of, at) => ((of?.size ?? 0) > (held[best]?.size ?? 0) ? at : best), 0);
    const wanted = held[most] ?? (new Map() as Tables);
    if (wanted.size === 0 && held.includes(undefined))
      throw new StartError(
        `the cluster ${cluster} has no tables on the nodes that answer; to create them, every node of CLICKHOUSE_URL must answer`,
      );
    for (const [at, tables] of held.entries()) {
      const name = tables && findStranger(tables, wanted);
      if (name === undefined) continue;
      const reason = `the table ${name} of ${nodes.hosts[at]} is no replica of that of ${nodes.hosts[most]}: their UUIDs differ`;
      if (!wasComplete) throw new StartError(`${reason}; replace the node that was unavailable (docs/scale.md)`);
      logger.error({ node: nodes.hosts[at], reason }, 'clickhouse_node_not_ready');
      // nobody knows which of them others should have
      return;
    }
    const lacks = held.map((tables) => (tables === undefined ? [] : missing(tables, wanted)));
    // Its statement may be on its way to this node, and would find a table there that no migration has created. It is
    // recorded before it begins, and read after the tables: whose table was seen, is seen here.
    const mayMigrate = wanted.has('migrations') && lacks.some((definitions) => definitions.length > 0);
    if (mayMigrate && (await select(fresh(reader, ['migrations']), MIGRATING)).length > 0) {
      if (wasComplete) return;
      // the caller migrates next: that would create tables on this node that are no replicas of the others
      if (waits++ % 10 === 0) logger.warn({ where: nodes.where, reason: 'MIGRATING' }, 'waiting_for_clickhouse');
      await sleep(MIGRATING_RETRY_MS, undefined, { signal: options.signal });
      await complete();
      return;
    }
    for (const [at, definitions] of lacks.entries()) await create(at, definitions);
    wasComplete = true;
  }

  async function create(at: number, definitions: readonly string[]): Promise<void> {
    let created = 0;
    for (const sql of definitions)
      try {
        await (await nodes.openNow(at)).execute({ sql });
        created++;
      } catch (error) {
        if (isLost(error)) break;
        if (!isRefusal(error)) throw error;
        // a statement that was in flight on all nodes has created it
        if (error.codeName === 'TABLE_ALREADY_EXISTS') continue;
        logger.error({ node: nodes.hosts[at], reason: error.message }, 'clickhouse_node_not_ready');
      }
    if (created > 0) logger.info({ node: nodes.hosts[at], tables: created }, 'clickhouse_node_completed');
  }
}

/** What creates the replicas and views that a node lacks. Other tables belong to one node, and are not ours. */
function missing(tables: Tables, wanted: Tables): string[] {
  // a node that was away may not have dropped the view of a retired rollup yet, whose table is a view elsewhere
  const isRetired = (name: string): boolean =>
    tables.get(name.replace(/_mv$/, ''))?.definition.startsWith('CREATE VIEW') === true;
  return [...wanted]
    .filter(([name, { definition, replicated }]) => {
      const isShared = replicated !== null || /^CREATE (MATERIALIZED )?VIEW /.test(definition);
      return isShared && !tables.has(name) && !isRetired(name);
    })
    .map(([, { definition }]) => definition);
}

/** The name of a replicated table that is another one elsewhere. */
function findStranger(tables: Tables, elsewhere: Tables): string | undefined {
  for (const [name, { replicated }] of tables) {
    const other = elsewhere.get(name)?.replicated ?? null;
    if (replicated !== null && other !== null && replicated !== other) return name;
  }
  return undefined;
}

/** By name, in an order in which they can be created. */
async function tablesOn(node: ClickHouse): Promise<Tables> {
  const settings = { show_table_uuid_in_table_create_query_if_not_nil: 1 };
  const found = await select<Table & { name: string }>(node, DEFINITIONS, {}, settings);
  return new Map(found.map((table) => [table.name, table]));
}
