import { select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { assertEmpty, databaseOf } from '../../../common/clickhouse/database.ts';
import { identifier, nameOf, tokenize } from '../../../common/clickhouse/sql.ts';
import { StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { reconcile } from '../reconcile.ts';
import { assertQuiescent } from './quiescence.ts';
import { statements } from '../statements.ts';

/** One read and one insert hold about this much, bytes. */
const CHUNK_BYTES = 16 * 1024 * 1024;
/** rows as they are: nothing merged, nothing taken for a repetition */
const INSERT_SETTINGS = {
  async_insert: 0,
  insert_deduplicate: 0,
  optimize_on_insert: 0,
  max_partitions_per_insert_block: 0,
} as const;
/** Made last: until it is there, services wait for their schema. */
const LAST = 'migrations';

export interface Moved {
  readonly tables: readonly { readonly name: string; readonly rows: number }[];
  readonly rows: number;
}

interface Table {
  readonly name: string;
  readonly engine: string;
  readonly definition: string;
  readonly rows: number;
}

/**
 * Copies every table of one engine to another, the ledger included, into an empty database: first the tables with their
 * rows, then the views, so that no row is counted by a view again, and at last the table of migrations. Ends with the
 * account of the ledger at the new place. No batch may be in flight at the old place, and nobody may write there.
 * Throws StartError.
 */
export async function moveTables(
  from: ClickHouse,
  to: ClickHouse,
  retentionDays: number,
  logger: Logger,
): Promise<Moved> {
  await assertQuiescent(from, 'a move');
  if (to.shards !== undefined)
    throw new StartError(
      `a move goes to a cluster of one shard, and ${to.where} has ${to.shards.length}; move first, and add the other shards afterwards (docs/scale.md)`,
    );
  await assertEmpty(to, `a move to ${to.where}`);
  const [source, target] = [await databaseOf(from), await databaseOf(to)];
  // parts that are read one after the other must stay, and rows must not be merged before they are counted
  await from.execute({ sql: 'SYSTEM STOP MERGES' });
  try {
    const tables = await select<Table>(from, statements.tablesToMove);
    const moved: { name: string; rows: number }[] = [];
    for (const table of [...tables.filter((t) => t.name !== LAST), ...tables.filter((t) => t.name === LAST)]) {
      await to.execute({ sql: inDatabase(table.definition, source, target) });
      if (!table.engine.endsWith('MergeTree')) continue;
      await to.execute({ sql: `SYSTEM STOP MERGES ${identifier(table.name)}` });
      await copyRows(from, to, table.name);
      const [there] = await select<{ rows: number }>(to, `SELECT count() AS rows FROM ${identifier(table.name)}`);
      await to.execute({ sql: `SYSTEM START MERGES ${identifier(table.name)}` });
      if (there?.rows !== table.rows)
        throw new StartError(
          `${table.name} has ${table.rows} rows in ${from.where} and ${there?.rows} in ${to.where}; drop the database there and repeat`,
        );
      moved.push({ name: table.name, rows: table.rows });
      logger.info({ table: table.name, rows: table.rows }, 'table_moved');
    }
    // all partitions are on this shard, also when the cluster gets another one
    if (to.shard !== undefined)
      await to.execute({
        sql: "ALTER TABLE partition_owners UPDATE shard = {shard:String} WHERE shard = ''",
        params: { shard: to.shard },
      });
    const { ok, faults } = await reconcile(to, retentionDays);
    if (!ok) throw new StartError(`the account at ${to.where} does not hold: ${faults[0]}`);
    return { tables: moved, rows: moved.reduce((sum, t) => sum + t.rows, 0) };
  } finally {
    await from.execute({ sql: 'SYSTEM START MERGES' });
  }
}

async function copyRows(from: ClickHouse, to: ClickHouse, table: string): Promise<void> {
  const columns = await select<{ name: string }>(from, statements.columnsToMove, { table });
  const names = columns.map(({ name }) => name);
  for (const part of await select<{ name: string; rows: number; bytes: number }>(from, statements.partsToMove, {
    table,
  })) {
    const step = Math.max(1, Math.floor((CHUNK_BYTES * part.rows) / Math.max(1, part.bytes)));
    for (let first = 0; first < part.rows; first += step) {
      const { body } = await from.read({
        sql: `SELECT ${names.map(identifier).join(', ')} FROM ${identifier(table)} WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64}`,
        params: { part: part.name, first, end: first + step },
        format: 'RowBinary',
      });
      await to.insertRows({ table, columns: names, pieces: [body], settings: INSERT_SETTINGS });
    }
  }
}

/** A definition with its names in another database. */
function inDatabase(definition: string, source: string, target: string): string {
  if (source === target) return definition;
  let text = '';
  let end = 0;
  for (const token of tokenize(definition)) {
    if (nameOf(token) !== source || definition[token.end] !== '.') continue;
    text += definition.slice(end, token.start) + identifier(target);
    end = token.end;
  }
  return text + definition.slice(end);
}
