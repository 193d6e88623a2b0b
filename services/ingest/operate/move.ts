import {
  everywhere,
  fresh,
  select,
  shardsOf,
  type ClickHouse,
  type Read,
  type Reader,
} from '../../../common/clickhouse/clickhouse.ts';
import { SIDE_TABLE } from '../../../common/clickhouse/cluster/cluster.ts';
import { assertEmpty, databaseOf } from '../../../common/clickhouse/database.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { identifier, nameOf, tokenize } from '../../../common/clickhouse/sql.ts';
import { StartError } from '../../../common/errors.ts';
import type { Logger } from '../../../common/logger.ts';
import { sources } from '../../../common/sources.ts';
import { reconcile } from './reconcile.ts';
import { chosenShardSql } from '../store/shard.ts';
import { assertQuiescent, assertQuiescentSince } from './quiescence.ts';
import { CLAIMS, LAST, readShares, shardNames, type Share } from './shares.ts';
import { statements } from '../store/statements.ts';

/** One read and one insert hold about this much, bytes, and at most twice as much unless it is one row. */
const CHUNK_BYTES = 16 * 1024 * 1024;
/** rows as they are: nothing merged, nothing taken for a repetition */
const INSERT_SETTINGS = { insert_deduplicate: 0, optimize_on_insert: 0 } as const;

/** What a build of a rollup fills (services/rollup/period/build.ts). */
const BUILT = new RegExp(SIDE_TABLE);

export type Moved = Awaited<ReturnType<typeof moveTables>>;

interface Table {
  readonly name: string;
  readonly engine: string;
  readonly definition: string;
  readonly rows: number;
}

interface StoredTable extends Table {
  readonly columns: readonly string[];
  readonly shares: readonly Share[];
}

/**
 * Copies every table of one engine to another, or to a cluster, into an empty database, the ledger included: first the
 * tables with their rows, then the views, so that no row is counted by a view again, and at last the table of
 * migrations. Each of several shards gets the partitions of Kafka that are its own, and views make its rollups
 * (shares.ts). Ends with the account of the ledger at the new place. No batch may be in flight at the old place, and
 * nobody may write there. Throws StartError.
 */
export async function moveTables(from: ClickHouse, to: ClickHouse, retentionDays: number, logger: Logger) {
  const before = await assertQuiescent(from, 'a move');
  for (const place of shardsOf(to)) await assertEmpty(everywhere(place), `a move to ${to.where}`);
  const [source, target] = [await databaseOf(from), await databaseOf(shardsOf(to)[0]!)];
  const create = (table: Table): Promise<void> => to.execute({ sql: inDatabase(table.definition, source, target) });
  // raw rows stay as many as they are, and a day of them without merges would be too many parts
  const isUnmerged = ({ name, rows }: Table): boolean => rows > 0 && !sources.some((s) => s.name === name);
  const moved: { name: string; rows: number }[] = [];
  const finish = async (table: StoredTable): Promise<void> => {
    for (const share of table.shares.filter((s) => s.isViewed)) await copyRows(from, to, table, share);
    await assertMoved(from, to, table);
    if (isUnmerged(table)) await merges('START', to, target, table.name);
    moved.push({ name: table.name, rows: table.rows });
    logger.info({ table: table.name, rows: table.rows }, 'table_moved');
  };
  // parts that are read one after the other must stay, and rows must not be merged before they are counted
  const merging = (await readTables(from)).filter(isStored);
  try {
    for (const { name } of merging) await merges('STOP', from, source, name);
    const tables = await readTables(from);
    const stored = await storedTables(from, to, tables);
    const viewed = stored.filter(({ shares }) => shares.some((s) => s.isViewed));
    const begin = async (table: StoredTable): Promise<void> => {
      await create(table);
      if (isUnmerged(table)) await merges('STOP', to, target, table.name);
      for (const share of table.shares.filter((s) => !s.isViewed)) await copyRows(from, to, table, share);
      if (!viewed.includes(table)) await finish(table);
    };
    for (const table of stored.filter((t) => t.name !== LAST)) await begin(table);
    for (const view of tables.filter((t) => !isStored(t))) await create(view);
    for (const table of viewed) await finish(table);
    for (const table of stored.filter((t) => t.name === LAST)) await begin(table);
    await assertQuiescentSince(from, before, 'the move');
    await to.cluster?.distribute?.();
    const { ok, faults } = await reconcile(to, retentionDays);
    if (!ok) throw new StartError(`the account at ${to.where} does not hold: ${faults[0]}`);
    return { tables: moved, rows: moved.reduce((sum, t) => sum + t.rows, 0) };
  } finally {
    // each of them, although another one fails, and without hiding why the move has failed
    const start = ({ name }: Table): Promise<void> =>
      merges('START', from, source, name).catch((error: unknown) =>
        logger.warn({ table: name, err: error }, 'merges_not_started'),
      );
    await Promise.all(merging.map(start));
  }
}

/**
 * Throws StartError if a build of a rollup has left its side table. It runs, or it was killed, and the rollup may lack
 * rows or have them twice: the side table tells that to the build that repeats it, and only where it is.
 */
async function readTables(from: ClickHouse): Promise<Table[]> {
  const tables = await select<Table>(from, statements.tablesToMove);
  const side = tables.find(({ name }) => BUILT.test(name));
  if (side === undefined) return tables;
  throw new StartError(
    `a build of a rollup has not ended (table ${side.name}): let npm start or the rollup service run until npm run rollup -- status shows no pending period and no repair, and this table is gone, stop it, and repeat`,
  );
}

/** Of one table at a time: a server may have other databases, which go on merging. */
async function merges(verb: 'STOP' | 'START', clickhouse: ClickHouse, database: string, table: string): Promise<void> {
  await clickhouse.execute({ sql: `SYSTEM ${verb} MERGES ${identifier(database)}.${identifier(table)}` });
}

const isStored = ({ engine }: Table): boolean => engine.endsWith('MergeTree');

async function storedTables(from: ClickHouse, to: ClickHouse, tables: readonly Table[]): Promise<StoredTable[]> {
  const sharesOf = await readShares(from, to);
  return await Promise.all(
    tables.filter(isStored).map(async (table) => {
      const found = await select<{ name: string }>(from, statements.columnsToMove, { table: table.name });
      const columns = found.map(({ name }) => name);
      return { ...table, columns, shares: sharesOf(table.name, columns) };
    }),
  );
}

/** Throws StartError if a place does not have exactly the rows of its shares. */
async function assertMoved(from: ClickHouse, to: ClickHouse, { name, shares }: StoredTable): Promise<void> {
  const count = async (reader: Reader, where: string, params: Share['params'] = {}): Promise<number> =>
    (
      await select<{ rows: number }>(reader, `SELECT count() AS rows FROM ${identifier(name)} WHERE ${where}`, params)
    )[0]!.rows;
  for (const place of new Set(shares.map((share) => share.to))) {
    let wanted = 0;
    for (const { where, params } of shares.filter((share) => share.to === place))
      wanted += await count(from, where, { ...params, shards: shardNames(to) });
    const found = await count(fresh(place, [name]), 'true');
    if (found !== wanted)
      throw new StartError(
        `${name} has ${wanted} rows in ${from.where} and ${found} in ${place.where}; drop the database there and repeat`,
      );
  }
}

async function copyRows(from: ClickHouse, to: ClickHouse, { name, columns }: StoredTable, share: Share): Promise<void> {
  const shards = shardNames(to);
  // the first claim at the new place: who has the partition, and which shard
  const selected = columns.map((column) =>
    name === CLAIMS && column === 'shard' ? chosenShardSql('topic', 'partition') : identifier(column),
  );
  for (const part of await select<{ name: string; rows: number; bytes: number }>(from, statements.partsToMove, {
    table: name,
  })) {
    const average = Math.max(1, Math.floor((CHUNK_BYTES * part.rows) / Math.max(1, part.bytes)));
    for (let [first, step] = [0, average]; first < part.rows;) {
      const chunk = await readWithin(step === 1 ? 0 : 2 * CHUNK_BYTES, from, {
        sql: `SELECT ${selected.join(', ')} FROM ${identifier(name)} WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64} AND ${share.where}`,
        params: { ...share.params, shards, part: part.name, first, end: first + step },
        format: 'RowBinary',
      });
      // large rows stand together
      if (chunk === undefined) {
        step = Math.ceil(step / 2);
        continue;
      }
      if (chunk.length > 0)
        await share.to.insertRows({ table: name, columns, pieces: [chunk], settings: INSERT_SETTINGS });
      first += step;
      step = Math.min(2 * step, average);
    }
  }
}

/** Undefined if the answer has more than that many bytes; 0 = it may have any number. */
async function readWithin(bytes: number, from: Reader, read: Read): Promise<Buffer | undefined> {
  try {
    return (await from.read({ ...read, settings: { max_result_bytes: bytes } })).body;
  } catch (error) {
    if (error instanceof ClickHouseError && error.codeName === 'TOO_MANY_ROWS_OR_BYTES') return undefined;
    throw error;
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
