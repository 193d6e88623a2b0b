import { EXIT_CONFIG, StartError } from '../../errors.ts';
import { select, type Reader, type StatementSettings } from '../clickhouse.ts';
import { ClickHouseError } from '../errors.ts';
import { codeOf, identifier, nameOf, quote, type Token } from '../sql.ts';

/**
 * Tables of which every node of every shard has all rows. They are small and say what is true of the whole cluster. Of
 * every other table, each shard has its own rows.
 */
export const SHARED_TABLES: ReadonlySet<string> = new Set([
  'migrations',
  'partition_owners',
  'paused_partitions',
  'rollups',
  'rollup_periods',
  'rollup_repairs',
  'api_keys',
]);

/** How the name of a table ends that a build fills on one node, which the others do not have: a regular expression. */
export const SIDE_TABLE = '_(build|repair)_[0-9]+_[0-9a-f]{8}$';

/** A table's place in Keeper. Its UUID is the same on all nodes, and unlike its name it never changes. */
const replicaOf = (table: string): string =>
  `'/clickhouse/tables/{uuid}/${SHARED_TABLES.has(table) ? 'all' : '{shard}'}', '{shard}-{replica}'`;
/** How long Keeper holds a token, seconds: a week. The number of tokens is what the table's own window says. */
const WINDOW_SECONDS = 604_800;
const SETTING_COMMANDS = new Set(['MODIFY', 'RESET']);
const PARTITION_COMMANDS = new Set(['DROP', 'MOVE', 'REPLACE', 'ATTACH', 'DETACH']);

/** Settings of every write in a cluster. */
export const CLUSTER_SETTINGS = {
  // a replica that was lost executes the statement when it returns
  distributed_ddl_output_mode: 'throw_only_active',
  distributed_ddl_task_timeout: 60,
  // an insert ends with its session in Keeper: a node that Keeper has lost writes nothing later (node-list.ts)
  insert_keeper_max_retries: 0,
} as const satisfies StatementSettings;

interface Word {
  readonly text: string;
  readonly token: Token;
}

/**
 * Returns a statement as a cluster needs it. What creates, changes or drops a table or a view, or stops merges, happens
 * on every node, MergeTree tables are replicated, and their window of tokens is Keeper's. Everything else stays as it
 * is. With `uuid` the table is the business of one node only: another one has no replica of it.
 */
export function forCluster(statement: string, cluster: string, uuid?: string): string {
  const words = wordsOf(statement);
  const verb = words[0]?.text;
  if (verb === undefined || !isDefinition(words)) return statement;
  const everywhere = ` ON CLUSTER ${identifier(cluster)}`;
  if (isOfMerges(words)) return applied(statement, [{ at: words[2]!.token.end, text: everywhere }]);
  const edits: Edit[] = [];
  const name = words[lastOfName(words, verb)]!.token;
  const table = nameOf(name);
  // a table that has one group of replicas in all shards changes once; each replica has settings of its own
  const isOfSettings = words.some(({ text }, i) => text === 'SETTING' && SETTING_COMMANDS.has(words[i - 1]!.text));
  if (verb === 'ALTER' && SHARED_TABLES.has(table) && !isOfSettings) return statement;
  if (uuid === undefined) edits.push({ at: name.end, text: everywhere });
  else if (verb === 'CREATE') edits.push({ at: name.end, text: ` UUID ${quote(uuid)}` });
  if (verb === 'CREATE' && words[1]?.text === 'TABLE') edits.push(...replicated(words, replicaOf(table)));
  return applied(statement, edits);
}

/** Returns whether a statement is for all shards: it changes the schema, stops merges, or writes a shared table. */
export function isForAllShards(statement: string): boolean {
  const words = wordsOf(statement);
  const inserted = words[words[3]?.text === '.' ? 4 : 2];
  if (words[0]?.text === 'INSERT' && words[1]?.text === 'INTO' && inserted !== undefined)
    return SHARED_TABLES.has(nameOf(inserted.token));
  return isDefinition(words);
}

function wordsOf(statement: string): readonly Word[] {
  return codeOf(statement).map((token): Word => ({ text: token.text.toUpperCase(), token }));
}

function isDefinition(words: readonly Word[]): boolean {
  const verb = words[0]?.text;
  return (
    verb === 'CREATE' ||
    verb === 'DROP' ||
    verb === 'EXCHANGE' ||
    (verb === 'ALTER' && !isOfPartition(words)) ||
    isOfMerges(words)
  );
}

/** SYSTEM STOP MERGES or START MERGES: what one replica merges, all get. */
function isOfMerges(words: readonly Word[]): boolean {
  return words[0]?.text === 'SYSTEM' && words[2]?.text === 'MERGES';
}

interface Edit {
  readonly at: number;
  /** default: `at` */
  readonly to?: number;
  readonly text: string;
}

function isOfPartition(words: readonly Word[]): boolean {
  return words.some(({ text }, i) => PARTITION_COMMANDS.has(text) && words[i + 1]?.text === 'PARTITION');
}

/** The index of the name: the last of two in EXCHANGE TABLES a AND b. A name may have a database before it. */
function lastOfName(words: readonly Word[], verb: string): number {
  const kind = words.findIndex(({ text }) => text === 'TABLE' || text === 'TABLES' || text === 'VIEW');
  let at = kind + 1;
  if (words[at]?.text === 'IF') at += words[at + 1]?.text === 'NOT' ? 3 : 2;
  if (verb === 'EXCHANGE') at = words.findIndex(({ text }) => text === 'AND') + 1;
  if (words[at + 1]?.text === '.') at += 2;
  return at;
}

/** The engine and its window of tokens, replicated. */
function replicated(words: readonly Word[], replica: string): Edit[] {
  const edits: Edit[] = [];
  for (const [i, { text, token }] of words.entries()) {
    if (text === 'ENGINE' && words[i + 1]?.text === '=') {
      const engine = words[i + 2]!;
      const opening = words[i + 3];
      edits.push({ at: engine.token.start, text: 'Replicated' });
      edits.push(
        opening?.text === '('
          ? { at: opening.token.end, text: `${replica}, ` }
          : { at: engine.token.end, text: `(${replica})` },
      );
    } else if (text === 'NON_REPLICATED_DEDUPLICATION_WINDOW')
      edits.push({
        at: token.start,
        to: token.end,
        text: `replicated_deduplication_window_seconds = ${WINDOW_SECONDS}, replicated_deduplication_window`,
      });
  }
  return edits;
}

function applied(statement: string, edits: readonly Edit[]): string {
  let [text, from] = ['', 0];
  for (const { at, to = at, text: added } of edits) {
    text += statement.slice(from, at) + added;
    from = to;
  }
  return text + statement.slice(from);
}

/** Returns how many shards a cluster has; 0 if the node does not know it. */
export async function countShards(node: Reader, cluster: string): Promise<number> {
  const sql = 'SELECT toUInt32(uniqExact(shard_num)) AS shards FROM system.clusters WHERE cluster = {cluster:String}';
  return (await select<{ shards: number }>(node, sql, { cluster }))[0]!.shards;
}

/**
 * Throws StartError, one line with everything that the cluster lacks, if a node of it cannot hold replicated tables, and
 * ClickHouseError if only its Keeper does not answer.
 */
export async function checkCluster(node: Reader & { readonly where: string }, cluster: string): Promise<void> {
  const missing: string[] = [];
  let unavailable: ClickHouseError | undefined;
  if ((await countShards(node, cluster)) === 0) missing.push(`remote_servers has no cluster ${cluster}`);
  const macros = await select<{ macro: string }>(node, 'SELECT macro FROM system.macros');
  for (const name of ['shard', 'replica'])
    if (!macros.some(({ macro }) => macro === name)) missing.push(`macros has no ${name}`);
  for (const [what, sql] of [
    ['Keeper (section zookeeper) does not answer', "SELECT 1 FROM system.zookeeper WHERE path = '/' LIMIT 1"],
    ['section distributed_ddl is absent', 'SELECT 1 FROM system.distributed_ddl_queue LIMIT 1'],
  ] as const)
    try {
      await select(node, sql);
    } catch (error) {
      if (!(error instanceof ClickHouseError) || error.code === undefined) throw error;
      if (error.kind === 'retry') unavailable = error;
      else missing.push(`${what} (${error.codeName})`);
    }
  if (missing.length > 0)
    throw new StartError(
      `ClickHouse at ${node.where} cannot be a node of CLICKHOUSE_CLUSTER=${cluster}: ${missing.join('; ')}`,
      { exitCode: EXIT_CONFIG },
    );
  if (unavailable !== undefined) throw unavailable;
}
