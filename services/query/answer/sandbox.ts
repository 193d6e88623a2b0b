import type { Reader, ReadResult, StatementSettings } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError, refusal } from '../../../common/clickhouse/errors.ts';
import { codeOf, identifier, oneStatement, quote, tokenize, type Token } from '../../../common/clickhouse/sql.ts';
import { ApiError, invalidParameters } from '../../../common/http/errors.ts';
import { members } from '../../../common/json-text.ts';
import { expandedSize, nameOf, nodesOf, parseAst, type Node } from '../statement/ast.ts';
import { passedLimit } from './clickhouse-errors.ts';
import { namedSubqueries } from '../statement/named-subqueries.ts';
import { LARGEST_PATTERN, patternSize } from '../definition/pattern.ts';
import { RESULT_FORMAT } from '../render/render.ts';

/**
 * Runs a caller's own SELECT over the named subqueries of an endpoint's statement (`WITH name AS (SELECT ...)`). There
 * are two walls:
 * - ClickHouse's own parse of the text (EXPLAIN AST) may contain only nodes, functions and tables of closed lists.
 * - The text never runs where tables are. First the named subqueries that it reads run as the endpoint's own. Their
 * rows then go as parameters to an engine without our tables, other callers' statements or any right (`isolated`). Only
 * there the caller's text runs. Such a read also refuses the functions and databases that reveal the engine itself:
 * its version, the name of its host (checkIsolated in sql.ts).
 * docs/security.md says more of them.
 */
const SANDBOX_ROWS = 20_000;
const SANDBOX_BYTES = 16 * 1024 * 1024;
/**
 * Settings of a caller's text on top of its endpoint's limits. sleep() would hold a slot beyond them. max_query_size
 * covers the rows that the text reads: they are sent with it, escaped.
 */
export const ISOLATED_SETTINGS = {
  function_sleep_max_microseconds_per_block: 1,
  function_range_max_elements_in_block: 10_000,
  max_block_size: 1024,
  max_query_size: 16 * SANDBOX_BYTES,
} as const;
/**
 * Numbers that JSON cannot hold go to the text's engine as strings, else one NaN or one integer of 128 bits would empty
 * the whole subquery, and decimals would lose digits.
 */
const EXACT_NUMBERS = {
  output_format_json_quote_64bit_integers: 1,
  output_format_json_quote_decimals: 1,
  output_format_json_quote_denormals: 1,
} as const;
/** Bounds the strings and arrays that a caller's text can build. */
const SANDBOX_MEMORY_BYTES = 256 * 1024 * 1024;
/** Each function may pass once over all this memory within one block. */
const MOST_FUNCTIONS = 100;
/**
 * Nodes that aliases of aliases may add to a statement. ClickHouse replaces them before it reads a row, and looks at no
 * limit of time meanwhile: 18 aliases, each of them twice the one before, took 11 s under a limit of 4 s (25.8).
 */
const MOST_EXPANDED_NODES = 10_000;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The nodes of a SELECT, as EXPLAIN AST prints them. */
const NODES = new Set([
  'SelectWithUnionQuery',
  'SelectQuery',
  'ExpressionList',
  'TablesInSelectQuery',
  'TablesInSelectQueryElement',
  'TableExpression',
  'TableIdentifier',
  'TableJoin',
  'ArrayJoin',
  'Subquery',
  'Identifier',
  'Literal',
  'Function',
  'Asterisk',
  'QualifiedAsterisk',
  'ColumnsTransformerList',
  'ColumnsExceptTransformer',
  'OrderByElement',
  'WindowDefinition',
  'WindowListElement',
]);
/** What callers call some of the other nodes. */
const KEYWORDS: Readonly<Record<string, string>> = { WithElement: 'WITH', Set: 'SETTINGS' };

/**
 * Allowed functions in lower case; aggregates may also have combinators. None of them reads, waits, reveals the server,
 * or costs more than its input.
 */
const FUNCTIONS = new Set(
  `and or not xor equals notequals less lessorequals greater greaterorequals in notin between isnull isnotnull ifnull nullif coalesce assumenotnull tonullable if multiif casewithexpression
  isnotdistinctfrom isdistinctfrom exists lambda tuple tupleelement array arrayelement map
  plus minus multiply divide intdiv intdivorzero modulo moduloorzero positivemodulo negate abs gcd lcm sign greatest least round floor ceil trunc sqrt pow exp log log2 log10 isfinite isnan
  bitand bitor bitxor bitnot bittest bitshiftleft bitshiftright bitcount
  length lengthutf8 empty notempty lower upper lowerutf8 upperutf8 concat concatwithseparator substring substringutf8 left right leftutf8 rightutf8 reverse trimboth trimleft trimright
  startswith endswith position positioncaseinsensitive positionutf8 like notlike ilike notilike match extract countsubstrings
  hastoken hastokencaseinsensitive hassubsequence multisearchany multisearchfirstindex replaceone replaceall replaceregexpone splitbychar splitbystring splitbywhitespace arraystringconcat
  format hex unhex base64encode base64decode trybase64decode ascii char translate
  domain domainwithoutwww topleveldomain protocol path pathfull querystring fragment port extracturlparameter extracturlparameters extracturlparameternames cutquerystring cutfragment decodeurlcomponent encodeurlcomponent
  cityhash64 siphash64 xxhash64 md5 sha1 sha256
  cast accuratecast accuratecastornull tostring toint8 toint16 toint32 toint64 touint8 touint16 touint32 touint64 tofloat32 tofloat64 todecimal64 tobool
  toint64ornull toint64orzero touint64ornull touint64orzero tofloat64ornull tofloat64orzero toint32ornull toint32orzero touint32ornull touint32orzero
  todate todate32 todatetime todatetime64 todateornull todatetimeornull todatetime64ornull parsedatetimebesteffort parsedatetimebesteffortornull parsedatetime64besteffort parsedatetime64besteffortornull
  tounixtimestamp tounixtimestamp64milli tounixtimestamp64micro fromunixtimestamp fromunixtimestamp64milli fromunixtimestamp64micro totimezone
  tointervalsecond tointervalminute tointervalhour tointervalday tointervalweek tointervalmonth
  toyear tomonth todayofmonth todayofweek todayofyear tohour tominute tosecond toyyyymm toyyyymmdd tostartofsecond tostartofminute tostartoffiveminutes tostartoftenminutes tostartoffifteenminutes tostartofhour
  tostartofday tostartofweek tostartofmonth tostartofinterval datediff datetrunc dateadd datesub adddays addhours addminutes addseconds subtractdays subtracthours subtractminutes subtractseconds formatdatetime
  jsonextract jsonextractstring jsonextractint jsonextractuint jsonextractfloat jsonextractbool jsonextractraw jsonextractarrayraw jsonextractkeys jsonextractkeysandvalues jsonhas jsonlength jsontype isvalidjson
  json_value json_exists json_query simplejsonextractstring simplejsonextractint simplejsonextractraw simplejsonhas
  arraymap arrayfilter arrayexists arrayall arraycount arrayfirst arraylast arraysum arrayavg arraymin arraymax arraysort arrayreversesort arraydistinct arrayuniq arrayconcat arrayslice arrayflatten arrayzip arrayenumerate
  arraypushback arraypushfront arrayreverse arrayjoin has indexof range countequal mapkeys mapvalues mapcontains
  toipv4 toipv6 toipv4ornull toipv6ornull ipv4numtostring isipaddressinrange isipv4string isipv6string
  count sum avg min max any anylast argmin argmax uniq uniqexact uniqcombined uniqhll12 grouparray groupuniqarray groupconcat topk quantile quantiles quantileexact quantilesexact quantiletdigest quantilestdigest median
  stddevpop stddevsamp varpop varsamp covarpop corr histogram sumcount
  row_number rank dense_rank denserank lag lead laginframe leadinframe first_value last_value nth_value ntile`.split(
    /\s+/,
  ),
);
const COMBINATORS = /^(.+?)(?:if|distinct|ornull|ordefault)+$/;

/** Functions whose second argument may be a table: the only two of their kind that are allowed. */
const IN_FUNCTIONS = new Set(['in', 'notin']);
/** Functions whose second argument is a pattern. */
const PATTERN_FUNCTIONS = new Set(['match', 'extract', 'replaceregexpone']);
const LIKE_FUNCTIONS = new Set(['like', 'notlike', 'ilike', 'notilike']);
/**
 * Functions that search their first argument. If that is a constant and another one is not, they pass over it once for
 * each row: ten million searches of 10,000 numbers, in one block, went on for minutes under a limit of 2 s (25.8).
 */
const SEARCH_FUNCTIONS =
  /^(has|indexof|countequal|mapcontains|position\w*|countsubstrings|hassubsequence|multisearch\w+|replace\w+|(substring|left|right)utf8|json\w+)$/;
/** Ten million searches of a literal of so many characters took 0.1 to 0.6 s (26.7, one thread, ten functions). */
const SHORT_LITERAL = 1_000;
const isLiteral = (node: Node | undefined): boolean => node?.type === 'Literal';
/** Functions whose last argument is a type. */
const TYPED_FUNCTIONS = /^(cast|accuratecast(ornull)?|jsonextract(keysandvalues)?)$/;
const BOUND = String.raw`(current row|\d{1,3} (preceding|following))`;
/**
 * Frames of windows: all rows so far, all rows, or few rows. In any other frame each row adds up all rows of the frame,
 * and no limit of time ends that within a block: a million rows went on for 12 s under a limit of 6 s (25.8).
 */
const FRAME = new RegExp(
  `(^| )((rows|range) (between )?unbounded preceding( and (current row|unbounded following))?|rows (between ${BOUND} and )?${BOUND})$`,
  'i',
);

/** True if a call may make a Map: `arrayElement` passes over a constant one for each row. */
function mayMakeMap(name: string, type: Node | undefined): boolean {
  return name === 'map' || (TYPED_FUNCTIONS.test(name) && !(isLiteral(type) && !/\bmap\b/i.test(type!.rest)));
}

/** Throws ApiError for a pattern in the caller's text that is not a literal, or too large. */
function checkPattern(name: string, pattern: Node | undefined): void {
  const isLike = LIKE_FUNCTIONS.has(name);
  if (!isLike && !PATTERN_FUNCTIONS.has(name)) return;
  const literal =
    pattern?.type === 'Literal' ? /^'(.*)'$/s.exec(nameOf(pattern.rest))?.[1]?.replaceAll(/\\(.)/gs, '$1') : undefined;
  if (literal === undefined) throw wrongSql(`must have a literal pattern in ${name}`);
  const size = isLike ? literal.length : (patternSize(literal) ?? 0);
  if (size > LARGEST_PATTERN) throw wrongSql(`must have a pattern of at most ${LARGEST_PATTERN} parts in ${name}`);
}

function mayCall(name: string): boolean {
  const lower = name.toLowerCase();
  const plain = COMBINATORS.exec(lower)?.[1];
  return FUNCTIONS.has(lower) || (plain !== undefined && FUNCTIONS.has(plain));
}

/** Throws ApiError for what is wrong with a caller's text before ClickHouse parses it. */
function checkText(sql: string): void {
  let tokens: Token[];
  try {
    oneStatement(sql);
    tokens = tokenize(sql);
  } catch {
    throw wrongSql('must be one whole statement');
  }
  for (const { kind, text } of tokens) {
    if (kind === 'symbol' && /[{}@;]/.test(text)) throw wrongSql(`must not contain ${text}`);
    if (kind === 'quoted' && !/^[`"][A-Za-z0-9_. -]+[`"]$/.test(text))
      throw wrongSql('must not contain this kind of quoted name');
    if (kind === 'symbol' && !/^[\x20-\x7e]$/.test(text))
      throw wrongSql('must contain only ASCII characters outside of strings');
  }
}

/**
 * Returns a SELECT with the expressions of all windows of a text that ClickHouse can read: EXPLAIN AST of 25.8 prints
 * nothing of them. Undefined if there is no window. Throws ApiError for a frame that may cost too much.
 */
function windowsOf(sql: string): string | undefined {
  const code = codeOf(sql);
  // `OVER (...)`, and `WINDOW a AS (...), b AS (...)`
  const before = code.some((t) => /^window$/i.test(t.text)) ? /^(over|as)$/i : /^over$/i;
  const windows = code.flatMap(({ text, end }, at) => {
    if (text !== '(' || !before.test(code[at - 1]?.text ?? '')) return [];
    let depth = 0;
    const close = code.findIndex((t, i) => i >= at && (depth += Number(t.text === '(') - Number(t.text === ')')) === 0);
    const inside = code.slice(at + 1, close);
    const said = inside.map((t) => t.text).join(' ');
    const frame = FRAME.exec(said)?.[0];
    const ofFrame = frame?.trim().split(' ').length ?? 0;
    const rest = inside.slice(0, inside.length - ofFrame).map((t) => (t.kind === 'word' ? t.text : ''));
    if (/\b(preceding|following|current row)\b/i.test(rest.join(' ')))
      throw wrongSql('must have window frames of all rows so far, or of rows at most 999 away');
    const [first] = inside;
    const isDivided = first !== undefined && /^partition$/i.test(first.text);
    return [
      `(SELECT 1 ${isDivided ? 'GROUP' : ''} ${sql.slice(isDivided ? first.end : end, code[close - ofFrame]!.start)}\n)`,
    ];
  });
  return windows.length === 0 ? undefined : `SELECT ${windows.join(', ')}`;
}

/**
 * Checks what EXPLAIN AST prints for a caller's text and for its windows. Returns the subqueries that it reads.
 * Throws ApiError.
 */
function checkAst(printed: readonly string[], names: readonly string[]): ReadonlySet<string> {
  const roots = printed.map(parseAst).filter((r) => r?.type === 'SelectWithUnionQuery' && r.children.length === 1);
  if (roots.length < printed.length) throw wrongSql('must be a SELECT and nothing else');
  const root: Node = { type: 'SelectWithUnionQuery', rest: '', children: roots.map((r) => r!) };
  const reads = new Set<string>();
  let functions = 0;
  let nodes = 0;
  let makesMap = false;
  let looksUp = false;
  for (const node of nodesOf(root)) {
    nodes++;
    if (!NODES.has(node.type)) throw wrongSql(`must not have ${KEYWORDS[node.type] ?? node.type}`);
    const name = nameOf(node.rest);
    if (node.type === 'TableIdentifier') {
      if (!names.includes(name)) throw wrongSql(`may select from ${names.join(', ')} only`);
      reads.add(name);
    } else if (node.type === 'TableExpression') {
      if (node.children.some((c) => c.type !== 'TableIdentifier' && c.type !== 'Subquery'))
        throw wrongSql(`may select from ${names.join(', ')} only`);
    } else if (node.type === 'Function') {
      if (!mayCall(name)) throw wrongSql(`must not call ${NAME.test(name) ? name : 'that function'}`);
      if (++functions > MOST_FUNCTIONS) throw wrongSql(`must not call more than ${MOST_FUNCTIONS} functions`);
      const [first, ...others] = node.children[0]?.children ?? [];
      const isShort = isLiteral(first) && first!.rest.length <= SHORT_LITERAL;
      if (SEARCH_FUNCTIONS.test(name.toLowerCase()) && !isShort && !others.every(isLiteral))
        throw wrongSql(`must have only literals after the first argument of ${name}`);
      makesMap ||= mayMakeMap(name.toLowerCase(), others.at(-1));
      const [second] = others;
      looksUp ||= name.toLowerCase() === 'arrayelement' && !isLiteral(second);
      checkPattern(name.toLowerCase(), second);
      // `x IN name` reads the table of that name
      if (IN_FUNCTIONS.has(name.toLowerCase()) && !['Literal', 'Subquery', 'Function'].includes(second?.type ?? ''))
        throw wrongSql('must have a list or a SELECT after IN');
    }
  }
  if (makesMap && looksUp) throw wrongSql('must have only literals in the brackets of [] if it makes a Map');
  if (expandedSize(root) > nodes + MOST_EXPANDED_NODES)
    throw wrongSql('must not use aliases inside other aliases so often');
  return reads;
}

const wrongSql = (message: string, cause?: unknown): ApiError =>
  invalidParameters([{ parameter: 'sql', message }], cause);

/** Returns what EXPLAIN AST prints for a caller's text, and for its windows if it has some. */
async function printAsts(clickhouse: Reader, sql: string, signal: AbortSignal): Promise<string[]> {
  const print = async (text: string): Promise<string> =>
    (await clickhouse.read({ sql: `EXPLAIN AST ${text}`, format: 'TSVRaw', isolated: true, signal })).body.toString(
      'utf8',
    );
  try {
    const printed = await print(sql);
    const windows = windowsOf(sql);
    return windows === undefined ? [printed] : [printed, await print(windows)];
  } catch (error) {
    throw error instanceof ClickHouseError && error.kind !== 'retry'
      ? wrongSql('is not a SELECT that can be read', error)
      : error;
  }
}

/** No ClickHouseError: for one, the query would run again as one with a large answer, under the same limits. */
const tooLarge = (name: string, cause: unknown): ApiError =>
  new ApiError(
    'timeout',
    `the query exceeded its limit of size of the answer: ${name} has more than ${SANDBOX_ROWS} rows or 16 MiB`,
    { cause },
  );

/**
 * Starts the limit of time that several statements share. Returns what makes the setting for the next one, in whole
 * seconds: the embedded engine opens a session for each value. It throws ClickHouseError 159 once the time is over.
 */
function startTimeLimit(settings: StatementSettings): () => { readonly max_execution_time: number } {
  const until = performance.now() + Number(settings['max_execution_time']) * 1000;
  return () => {
    const seconds = Math.ceil((until - performance.now()) / 1000);
    if (seconds <= 0) throw refusal(159, 'Timeout exceeded: the subqueries took all of the time');
    return { max_execution_time: seconds };
  };
}

interface SandboxRun {
  readonly sql: string;
  /** the endpoint's own statement, with `{name:Type}` */
  readonly statement: string;
  readonly params: Readonly<Record<string, string | null>>;
  readonly settings: StatementSettings;
  readonly signal: AbortSignal;
}

/**
 * Runs a caller's statement; the result is in RESULT_FORMAT. Throws ApiError for what the caller can fix,
 * ClickHouseError for the rest.
 */
export async function runSandboxed(
  clickhouse: Reader,
  { sql, statement, params, settings, signal }: SandboxRun,
): Promise<ReadResult> {
  const subqueries = namedSubqueries(statement);
  checkText(sql);
  const reads = checkAst(await printAsts(clickhouse, sql, signal), subqueries.names);

  // the first wall is passed: fetch what the text reads, as the endpoint's own statement
  const remaining = startTimeLimit(settings);
  const data: Record<string, string> = {};
  const tables: string[] = [];
  let readRows = 0;
  let readBytes = 0;
  for (const [i, name] of [...reads].entries()) {
    const read = clickhouse.read({
      sql: `${subqueries.with}\nSELECT * FROM ${name}`,
      params,
      format: RESULT_FORMAT,
      settings: {
        ...settings,
        ...EXACT_NUMBERS,
        ...remaining(),
        limit: SANDBOX_ROWS + 1,
        max_result_rows: SANDBOX_ROWS,
        max_result_bytes: SANDBOX_BYTES,
      },
      signal,
    });
    const result = await read.catch((error: unknown) => {
      throw passedLimit(error) === 'size of the answer' ? tooLarge(name, error) : error;
    });
    const { columns, rows } = tableOf(result.body.toString('utf8'));
    const row = `row_${i}`;
    data[`rows_${i}`] = rows;
    tables.push(
      `${name} AS (SELECT ${columns.map((c, n) => `tupleElement(${row}, ${n + 1}) AS ${c.name}`).join(', ')} FROM (SELECT arrayJoin(JSONExtract({rows_${i}:String}, ${quote(`Array(Tuple(${columns.map((c) => c.type).join(', ')}))`)})) AS ${row}))`,
    );
    readRows += result.readRows ?? 0;
    readBytes += result.readBytes ?? 0;
  }

  try {
    const { body } = await clickhouse.read({
      sql: `${tables.length > 0 ? `WITH ${tables.join(', ')}\n` : ''}SELECT * FROM (\n${sql}\n)`,
      params: data,
      format: RESULT_FORMAT,
      settings: {
        ...settings,
        ...ISOLATED_SETTINGS,
        ...remaining(),
        max_memory_usage: Math.min(Number(settings['max_memory_usage'] ?? SANDBOX_MEMORY_BYTES), SANDBOX_MEMORY_BYTES),
      },
      isolated: true,
      signal,
    });
    return { body, readRows, readBytes };
  } catch (error) {
    throw error instanceof ClickHouseError && error.kind !== 'retry' && passedLimit(error) === undefined
      ? wrongSql('cannot be run', error)
      : error;
  }
}

/** Returns the columns with plain types, and the rows as a JSON list of lists. */
function tableOf(result: string): { columns: { name: string; type: string }[]; rows: string } {
  const found = members(result, ['meta', 'data']);
  const meta = JSON.parse(found.get('meta') ?? '[]') as { name: string; type: string }[];
  return {
    columns: meta.map(({ name, type }) => ({
      name: identifier(name),
      type: type.replaceAll(/LowCardinality\((Nullable\(\w+\)|\w+)\)/g, '$1'),
    })),
    rows: found.get('data') ?? '[]',
  };
}
