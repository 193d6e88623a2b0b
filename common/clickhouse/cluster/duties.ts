import { StartError } from '../../errors.ts';
import type { Logger } from '../../logger.ts';
import { select, type ClickHouse, type ClusterDuties } from '../clickhouse.ts';
import { checkCluster } from './cluster.ts';
import { ClickHouseError } from '../errors.ts';
import { isLost, type NodeList } from './node-list.ts';

/** Tables and views with what creates them, in an order in which they can be created. Not those of one node only. */
const DEFINITIONS = `
SELECT name, create_table_query AS definition
FROM system.tables
WHERE database = currentDatabase() AND NOT match(name, '_(build|repair)_[0-9]+_[0-9a-f]{8}$')
ORDER BY engine = 'View', engine = 'MaterializedView', name`;

export function createDuties(nodes: NodeList, cluster: string, logger: Logger): ClusterDuties {
  return { check, complete };

  async function check(): Promise<void> {
    for (const at of nodes.hosts.keys()) {
      const node = await nodes.open(at).catch((error: unknown) => {
        if (isLost(error)) return undefined;
        throw error;
      });
      if (node !== undefined) await checkCluster(node, cluster);
    }
  }

  async function complete(): Promise<void> {
    const held = await nodes.onLive(definitionsOn);
    const answered = held.filter((definitions) => definitions !== undefined);
    const wanted = answered.reduce((most, of) => (of.size > most.size ? of : most), new Map<string, string>());
    if (wanted.size === 0 && answered.length < nodes.hosts.length)
      throw new StartError(
        `the cluster ${cluster} has no tables on the nodes that answer; to create them, every node of CLICKHOUSE_URL must answer`,
      );
    for (const [at, definitions] of held.entries()) {
      // a node that was away may not have dropped the view of a retired rollup yet, whose table is a view elsewhere
      const isRetired = (name: string): boolean =>
        definitions?.get(name.replace(/_mv$/, ''))?.startsWith('CREATE VIEW') === true;
      const missing = [...wanted].filter(([name]) => definitions?.has(name) === false && !isRetired(name));
      try {
        for (const [, sql] of missing) await (await nodes.open(at)).execute({ sql });
        if (missing.length > 0)
          logger.info({ node: nodes.hosts[at], tables: missing.length }, 'clickhouse_node_completed');
      } catch (error) {
        // else a statement that was in flight on all nodes has created it
        if (!isLost(error) && !(error instanceof ClickHouseError && error.codeName === 'TABLE_ALREADY_EXISTS'))
          throw error;
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
