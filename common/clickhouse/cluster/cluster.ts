import { EXIT_CONFIG, StartError } from '../../errors.ts';
import { select, type Reader, type StatementSettings } from '../clickhouse.ts';
import { ClickHouseError } from '../errors.ts';
import { identifier, isCode, nameOf, quote, tokenize, type Token } from '../sql.ts';

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
const DEFINING = new Set(['CREATE', 'DROP', 'EXCHANGE']);
const SETTING_COMMANDS = new Set(['MODIFY', 'RESET']);
const PARTITION_COMMANDS = new Set(['DROP', 'MOVE', 'REPLACE', 'ATTACH', 'DETACH']);

/** Settings of every write in a cluster. */
export const CLUSTER_SETTINGS = {
  // a replica that was lost executes the statement when it returns
  distributed_ddl_output_mode: 'throw_only_active',
  distributed_ddl_task_timeout: 60,
  // No insert is repeated in a later session: Keeper may have ended the node's session meanwhile, and others may have
  // gone on without the node (node-list.ts).
  insert_keeper_max_retries: 0,
} as const satisfies StatementSettings;

/** A token of a statement. What its text becomes, the statement gets. */
interface Part {
  readonly token: Token;
  /** in upper case */
  readonly word: string;
  text: string;
}

/**
 * Returns a statement as a cluster needs it. What creates, changes or drops a table or a view, or stops merges, happens
 * on every node, MergeTree tables are replicated, and their window of tokens is Keeper's. Everything else stays as it
 * is. With `uuid` the table is the business of one node only: another one has no replica of it.
 */
export function forCluster(statement: string, cluster: string, uuid?: string): string {
  const parts = partsOf(statement);
  const words = parts.filter(({ token }) => isCode(token));
  if (!isDefinition(words)) return statement;
  const verb = words[0]!.word;
  const everywhere = ` ON CLUSTER ${identifier(cluster)}`;
  const last = isOfMerges(words) ? words[2]! : words[lastOfName(words, verb)]!;
  const table = nameOf(last.token);
  // a table that has one group of replicas in all shards changes once; each replica has settings of its own
  const isOfSettings = words.some(({ word }, i) => word === 'SETTING' && SETTING_COMMANDS.has(words[i - 1]!.word));
  if (verb === 'ALTER' && SHARED_TABLES.has(table) && !isOfSettings) return statement;
  if (uuid === undefined) last.text += everywhere;
  else if (verb === 'CREATE') last.text += ` UUID ${quote(uuid)}`;
  if (verb === 'CREATE' && words[1]?.word === 'TABLE') replicate(words, replicaOf(table));
  return parts.map(({ text }) => text).join('');
}

/** Returns whether a statement is for all shards: it changes the schema, stops merges, or writes a shared table. */
export function isForAllShards(statement: string): boolean {
  const words = partsOf(statement).filter(({ token }) => isCode(token));
  const inserted = words[words[3]?.word === '.' ? 4 : 2];
  if (words[0]?.word === 'INSERT' && words[1]?.word === 'INTO' && inserted !== undefined)
    return SHARED_TABLES.has(nameOf(inserted.token));
  return isDefinition(words);
}

function partsOf(statement: string): readonly Part[] {
  return tokenize(statement).map((token) => ({ token, word: token.text.toUpperCase(), text: token.text }));
}

function isDefinition(words: readonly Part[]): boolean {
  const verb = words[0]?.word ?? '';
  return DEFINING.has(verb) || (verb === 'ALTER' && !isOfPartition(words)) || isOfMerges(words);
}

/** SYSTEM STOP MERGES or START MERGES: what one replica merges, all get. */
function isOfMerges(words: readonly Part[]): boolean {
  return words[0]?.word === 'SYSTEM' && words[2]?.word === 'MERGES';
}

function isOfPartition(words: readonly Part[]): boolean {
  return words.some(({ word }, i) => PARTITION_COMMANDS.has(word) && words[i + 1]?.word === 'PARTITION');
}

/** The index of the name: the last of two in EXCHANGE TABLES a AND b. A name may have a database before it. */
function lastOfName(words: readonly Part[], verb: string): number {
  const kind = words.findIndex(({ word }) => word === 'TABLE' || word === 'TABLES' || word === 'VIEW');
  let at = kind + 1;
  if (words[at]?.word === 'IF') at += words[at + 1]?.word === 'NOT' ? 3 : 2;
  if (verb === 'EXCHANGE') at = words.findIndex(({ word }) => word === 'AND') + 1;
  if (words[at + 1]?.word === '.') at += 2;
  return at;
}

/** Makes the engine and its window of tokens replicated. */
function replicate(words: readonly Part[], replica: string): void {
  for (const [i, part] of words.entries()) {
    if (part.word === 'ENGINE' && words[i + 1]?.word === '=') {
      const [engine, opening] = [words[i + 2]!, words[i + 3]];
      engine.text = `Replicated${engine.text}`;
      if (opening?.word === '(') opening.text += `${replica}, `;
      else engine.text += `(${replica})`;
    } else if (part.word === 'NON_REPLICATED_DEDUPLICATION_WINDOW')
      part.text = `replicated_deduplication_window_seconds = ${WINDOW_SECONDS}, replicated_deduplication_window`;
  }
}

/** Returns how many shards a cluster has; 0 if the node does not know it. */
export async function countShards(node: Reader, cluster: string): Promise<number> {
  const sql = 'SELECT toUInt32(uniqExact(shard_num)) AS shards FROM system.clusters WHERE cluster = {cluster:String}';
  return (await select<{ shards: number }>(node, sql, { cluster }))[0]!.shards;
}

/**
 * Throws StartError, one line with everything that the cluster lacks, if a node of it cannot hold replicated tables,
 * and ClickHouseError if only its Keeper does not answer.
 */
export async function checkCluster(node: Reader & { readonly where: string }, cluster: string): Promise<void> {
  const missing: string[] = [];
  let unavailable: ClickHouseError | undefined;
  if ((await countShards(node, cluster)) === 0) missing.push(`remote_servers has no cluster ${cluster}`);
  for (const [what, sql] of [
    ['macros has no shard', "SELECT getMacro('shard')"],
    ['macros has no replica', "SELECT getMacro('replica')"],
    ['Keeper (section zookeeper) does not answer', "SELECT 1 FROM system.zookeeper WHERE path = '/' LIMIT 1"],
    ['section distributed_ddl is absent', 'SELECT 1 FROM system.distributed_ddl_queue LIMIT 1'],
  ] as const)
    try {
      await select(node, sql);
    } catch (error) {
      if (!(error instanceof ClickHouseError) || error.code === undefined) throw error;
      if (error.kind === 'retry') unavailable = error;
      // the rollup service's rights are checked apart
      else if (error.codeName !== 'ACCESS_DENIED') missing.push(`${what} (${error.codeName})`);
    }
  if (missing.length > 0)
    throw new StartError(
      `ClickHouse at ${node.where} cannot be a node of CLICKHOUSE_CLUSTER=${cluster}: ${missing.join('; ')}`,
      { exitCode: EXIT_CONFIG },
    );
  if (unavailable !== undefined) throw unavailable;
}
