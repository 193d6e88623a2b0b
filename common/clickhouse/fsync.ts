import type { Logger } from '../logger.ts';
import { select, type ClickHouse } from './clickhouse.ts';
import { SIDE_TABLE } from './cluster/cluster.ts';
import { identifier } from './sql.ts';

/**
 * Settings of a MergeTree table with which an insert ends only when its parts are on the disk, and a merge removes its
 * sources only when its part is.
 */
const FSYNC_SETTINGS = { fsync_after_insert: 1, fsync_part_directory: 1, min_rows_to_fsync_after_merge: 1 } as const;

/**
 * Tables of the database with other settings, one row per table. Not those of one node only: `ON CLUSTER` finds none of
 * them elsewhere. Parameters: fsync, settings (as the engine prints them), engines (how their names begin).
 */
const OTHER_TABLES = `
SELECT name
FROM system.tables
WHERE database = currentDatabase() AND startsWith(engine, {engines:String}) AND endsWith(engine, 'MergeTree')
    AND NOT match(name, '${SIDE_TABLE}')
    AND arrayCount(setting -> position(concat(engine_full, ','), concat(' ', setting, ',')) > 0, {settings:Array(String)}) != if({fsync:Bool}, length({settings:Array(String)}), 0)
ORDER BY name`;

/**
 * Makes all tables of the database wait for the disk, or none. Tables that are created like these later (`CREATE TABLE
 * ... AS`) inherit it.
 */
export async function setFsync(clickhouse: ClickHouse, logger: Logger, fsync: boolean): Promise<void> {
  const settings = Object.entries(FSYNC_SETTINGS).map(([name, value]) => `${name} = ${value}`);
  const engines = clickhouse.cluster === undefined ? '' : 'Replicated';
  const others = await select<{ name: string }>(clickhouse, OTHER_TABLES, { fsync, settings, engines });
  for (const { name } of others)
    await clickhouse.execute({
      sql: `ALTER TABLE ${identifier(name)} ${fsync ? `MODIFY SETTING ${settings.join(', ')}` : `RESET SETTING ${Object.keys(FSYNC_SETTINGS).join(', ')}`}`,
    });
  if (others.length > 0) logger.info({ fsync, tables: others.length }, 'fsync_set');
}
