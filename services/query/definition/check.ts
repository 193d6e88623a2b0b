import { rows, select, type Reader } from '../../../common/clickhouse/clickhouse.ts';
import { databaseOf } from '../../../common/clickhouse/database.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { createLimit } from '../../../common/clickhouse/pool.ts';
import { identifier, oneStatement } from '../../../common/clickhouse/sql.ts';
import { statementFor } from '../statement/branches.ts';
import { namedSubqueries } from '../statement/named-subqueries.ts';
import {
  COLUMN_TYPES,
  NOW_TYPE,
  RESERVED,
  isOfJson,
  parameterType,
  type Definition,
  type Mistake,
} from './definition.ts';
import { lineOf } from '../statement/placeholders.ts';
import { readValue, type Params } from './params.ts';
import { PROJECT_SENTINEL, wrongReads } from '../statement/reads.ts';

/** Returns sample values for EXPLAIN, which runs only scalar subqueries. */
function sampleParams(definition: Definition): Params {
  const now = '2026-03-01 09:00:00.000000';
  const samples: Readonly<Record<string, string>> = { String: 'x', [NOW_TYPE]: now, Int64: '1', Float64: '1' };
  return Object.fromEntries([
    ...definition.parameters.map((p): [string, string | null] => {
      const value = p.default ?? p.values?.[0];
      const read = value === undefined ? undefined : readValue(p, [value]);
      // a type without a sample is nullable
      return [p.name, read !== undefined && 'value' in read ? read.value : (samples[parameterType(p)] ?? null)];
    }),
    [RESERVED.now, now],
  ]);
}

/**
 * Returns the line of the statement that a message is about: the line it names, else the line of the first name that it
 * quotes and that the statement has too.
 */
function lineOfMessage(sql: string, message: string): number {
  const said = /\(line (\d+), col \d+\)/.exec(message)?.[1];
  if (said !== undefined) return Number(said);
  for (const [name] of message.matchAll(/(?<=[`'"])[A-Za-z_][A-Za-z0-9_.]*(?=[`'"])/g)) {
    const at = sql.search(new RegExp(`\\b${name.replaceAll('.', '\\.')}\\b`));
    if (at >= 0) return lineOf(sql, at);
  }
  return 1;
}

/** True if ClickHouse itself refuses the statement: a proxy before it, or a lost connection, says nothing of the text. */
function isVerdict(error: unknown): error is ClickHouseError {
  return error instanceof ClickHouseError && error.code !== undefined && error.kind !== 'retry';
}

/**
 * Checks the second wall of sandboxed endpoints (sandbox.ts): a caller's text must run, and must not reach a table.
 * Throws ClickHouseError if the engine is unavailable.
 */
async function checkIsolation(clickhouse: Reader, definition: Definition): Promise<Mistake[]> {
  const wrong = (message: string): Mistake[] => [
    { file: definition.yamlFile, line: 1, message: `sandboxed: ${message}` },
  ];
  const database = identifier(await databaseOf(clickhouse));
  const isRefused = async (sql: string): Promise<boolean> => {
    try {
      await clickhouse.read({ sql, format: 'Null', isolated: true });
      return false;
    } catch (error) {
      // the process that isolates may not start
      if (!isVerdict(error)) throw error;
      return true;
    }
  };
  if (await isRefused('SELECT 1')) return wrong('CLICKHOUSE_SANDBOX_URL must name a user without any right');
  if (await isRefused(`SELECT count() FROM ${database}.edge_logs`)) return [];
  return wrong('the user of CLICKHOUSE_SANDBOX_URL can read tables, and must not have any right');
}

/**
 * Returns what is wrong with the tables that a statement reads. Throws ClickHouseError if the engine is unavailable.
 */
async function checkTables(clickhouse: Reader, definition: Definition, params: Params): Promise<Mistake[]> {
  const { boundSql, project, sandboxed, sqlFile } = definition;
  const database = await databaseOf(clickhouse);
  const tables = await select<{ name: string }>(
    clickhouse,
    'SELECT name FROM system.tables WHERE database = {database:String}',
    { database },
  );
  const { body } = await clickhouse.read({
    sql: `EXPLAIN AST ${boundSql}`,
    params: { ...params, ...(project !== undefined && { [project.parameter]: PROJECT_SENTINEL }) },
    format: 'TSVRaw',
  });
  const wrong = wrongReads({
    printed: body.toString('utf8'),
    database,
    tables: new Set(tables.map(({ name }) => name)),
    subqueries: namedSubqueries(boundSql).names,
    sandboxed,
  });
  return wrong.map((message) => ({ file: sqlFile, line: lineOfMessage(boundSql, message), message }));
}

/** Definitions checked at a time: all at once would fill the queue of reads, which refuses more than it holds. */
const CHECKED_AT_ONCE = 4;

/**
 * Checks definitions with ClickHouse's own analysis: a statement must run and have the declared columns. Throws
 * ClickHouseError if the engine is unavailable.
 */
export async function checkDefinitions(clickhouse: Reader, definitions: readonly Definition[]): Promise<Mistake[]> {
  const few = createLimit(CHECKED_AT_ONCE);
  return (await Promise.all(definitions.map((d) => few.use('', () => checkDefinition(clickhouse, d))))).flat();
}

export async function checkDefinition(clickhouse: Reader, definition: Definition): Promise<Mistake[]> {
  const params = sampleParams(definition);
  const { fewRows } = definition;
  let columns: string[][];
  try {
    await clickhouse.read({ sql: `EXPLAIN ${definition.boundSql}`, params, format: 'Null', fewRows });
    const sql = `DESCRIBE (\n${oneStatement(statementFor(definition.fragments, params))}\n)`;
    columns = rows<string[]>(await clickhouse.read({ sql, params, format: 'JSONCompactEachRow', fewRows }));
  } catch (error) {
    if (!isVerdict(error)) throw error;
    const message = (error.message.split('\n')[0] ?? '').replace(/^Code: \d+\. DB::Exception: /, '').slice(0, 400);
    return [
      {
        file: definition.sqlFile,
        line: lineOfMessage(definition.boundSql, error.message),
        message: `${error.codeName}: ${message}`,
      },
    ];
  }
  const mistakes: Mistake[] = [
    ...(await checkTables(clickhouse, definition, params)),
    ...(definition.sandboxed ? await checkIsolation(clickhouse, definition) : []),
  ];
  const wrong = (message: string): void => void mistakes.push({ file: definition.yamlFile, line: 1, message });
  for (const column of definition.columns) {
    const type = columns.find(([name]) => name === column.from)?.[1];
    if (type === undefined)
      wrong(`column ${column.name} is made from ${column.from}, which is no column of the statement`);
    else if (!COLUMN_TYPES[column.render].test(type.replace(/^(LowCardinality\(|Nullable\()+/, '')))
      wrong(`column ${column.name} is rendered as ${column.render}, but the statement has ${type}`);
    else if (!column.nullable && /^(LowCardinality\()?Nullable\(/.test(type) && !isOfJson(column))
      wrong(`column ${column.name} is not nullable, but the statement has ${type}`);
  }
  for (const [name] of columns)
    if (name !== undefined && !definition.columns.some((c) => c.from === name))
      wrong(`the statement's column ${name} is not declared`);
  return mistakes;
}
