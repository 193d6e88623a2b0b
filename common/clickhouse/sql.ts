import { refusal } from './errors.ts';

/**
 * SQL text as ClickHouse's lexer sees it (src/Parsers/Lexer.cpp): enough to tell code from strings, quoted identifiers
 * and comments. `word`: bare word or number; `symbol`: one character of anything else.
 */
export interface Token {
  readonly kind: 'space' | 'comment' | 'string' | 'quoted' | 'word' | 'symbol';
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** The kinds of token by what they match: the first that does. A word that begins with `$` may be a string. */
const PATTERNS: readonly (readonly [Token['kind'], RegExp])[] = [
  ['space', /[\s\u00a0\u1680\u180e\u2000-\u200d\u2060\u3000\ufeff]+/y],
  ['word', /[A-Za-z0-9_][A-Za-z0-9_$]*/y],
  ['comment', /(?:--|\/\/|#[ !])[^\n]*/y],
  // a quote that stands twice, or behind a backslash, is no end
  ['string', /'[^'\\]*(?:(?:''|\\[^])[^'\\]*)*'(?!')/y],
  ['quoted', /"[^"\\]*(?:(?:""|\\[^])[^"\\]*)*"(?!")/y],
  ['quoted', /`[^`\\]*(?:(?:``|\\[^])[^`\\]*)*`(?!`)/y],
  ['string', /‘[^’]*’/y],
  ['quoted', /“[^”]*”/y],
  ['string', /\$([^$]*)\$[^]*?\$\1\$/y],
  ['word', /\$[A-Za-z0-9_$]*/y],
];
const OPENING = /['"`‘“]/;

/**
 * Returns tokens in order, covering the whole text. Throws 62 SYNTAX_ERROR if a string, quoted identifier or comment is
 * not closed, and at a NUL (ClickHouse may end the text there).
 */
export function tokenize(sql: string): Token[] {
  if (sql.includes('\0')) throw refusal(62, 'Syntax error: the text contains a NUL character');
  const tokens: Token[] = [];
  for (let start = 0; start < sql.length;) {
    const [kind, end] = tokenAt(sql, start);
    tokens.push({ kind, start, end, text: sql.slice(start, end) });
    start = end;
  }
  return tokens;
}

function tokenAt(sql: string, start: number): [Token['kind'], end: number] {
  if (sql.startsWith('/*', start)) return ['comment', blockCommentEnd(sql, start)];
  for (const [kind, pattern] of PATTERNS) {
    pattern.lastIndex = start;
    if (pattern.test(sql)) return [kind, pattern.lastIndex];
  }
  if (OPENING.test(sql[start]!)) throw unclosed(sql[start]!, start);
  return ['symbol', start + 1];
}

/** Block comments may contain others. */
function blockCommentEnd(sql: string, start: number): number {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = start;
  let depth = 0;
  do {
    const found = edge.exec(sql);
    if (found === null) throw unclosed('/*', start);
    depth += found[0] === '/*' ? 1 : -1;
  } while (depth > 0);
  return edge.lastIndex;
}

function unclosed(what: string, at: number): Error {
  return refusal(62, `Syntax error: ${what} at position ${at + 1} is not closed`);
}

/** Whether a token is neither space nor comment. */
export function isCode({ kind }: Token): boolean {
  return kind !== 'space' && kind !== 'comment';
}

/** Returns the tokens without spaces and comments. Throws as tokenize does. */
export function codeOf(sql: string): Token[] {
  return tokenize(sql).filter(isCode);
}

/** Returns the text of a token, without the quotes of a quoted identifier. */
export function nameOf({ kind, text }: Token): string {
  return kind === 'quoted' ? text.slice(1, -1) : text;
}

/** Returns the statements of a text, split at semicolons that are code, without those that contain only comments. */
export function splitStatements(sql: string): string[] {
  const statements: string[] = [];
  let start = 0;
  let hasCode = false;
  for (const token of tokenize(sql)) {
    if (token.text === ';') {
      if (hasCode) statements.push(sql.slice(start, token.start).trim());
      start = token.end;
      hasCode = false;
    } else if (isCode(token)) hasCode = true;
  }
  if (hasCode) statements.push(sql.slice(start).trim());
  return statements;
}

const MOST_REMEMBERED = 200;
const LONGEST_REMEMBERED = 16_384;

/**
 * Remembers what a function returned for a text, because most statements come again and again: reading one took 0.5 ms
 * at each call. What it throws is not remembered.
 */
function remembered<T>(compute: (text: string) => T): (text: string) => T {
  const results = new Map<string, { readonly result: T }>();
  return (text) => {
    const found = results.get(text);
    if (found !== undefined) return found.result;
    const result = compute(text);
    if (results.size === MOST_REMEMBERED) results.clear();
    if (text.length <= LONGEST_REMEMBERED) results.set(text, { result });
    return result;
  };
}

/**
 * Returns the one statement of the text, without its semicolon. Throws 62 SYNTAX_ERROR if there are several, or none.
 */
export const oneStatement = remembered((sql): string => {
  const [statement, ...more] = splitStatements(sql);
  if (statement === undefined) throw refusal(62, 'Syntax error: the text contains no statement');
  if (more.length > 0) throw refusal(62, 'Syntax error: the text contains more than one statement');
  return statement;
});

const READ_KEYWORDS = new Set(['SELECT', 'WITH', 'EXPLAIN', 'SHOW', 'DESCRIBE', 'DESC', 'EXISTS', 'FROM']);

/** The only functions of the engine that touch a file before it checks grants: `file` reads it, `sqlite` creates it. */
const FILE_FUNCTIONS = new Set(['file', 'sqlite']);

/**
 * Throws 164 READONLY unless the statement only reads tables. The engine itself enforces most of that (readonly,
 * grants), except INTO OUTFILE (written by the client part of the embedded engine) and FILE_FUNCTIONS. Quoted
 * identifiers with escapes are refused because they could spell one of these.
 */
export const checkOnlyReads = remembered((statement): void => {
  const code = codeOf(statement);
  const keyword = code.find(({ text }) => text !== '(')?.text.toUpperCase() ?? '';
  if (!READ_KEYWORDS.has(keyword)) throw refusal(164, `A read begins with one of ${[...READ_KEYWORDS].join(', ')}`);
  for (const token of code) {
    if (token.kind !== 'word' && token.kind !== 'quoted') continue;
    if (token.kind === 'quoted' && token.text.includes('\\'))
      throw refusal(164, 'A read has no quoted identifier with an escape');
    const name = nameOf(token).toLowerCase();
    if (FILE_FUNCTIONS.has(name)) throw refusal(164, `A read has no function or identifier named ${name}`);
    if (token.kind === 'word' && (name === 'outfile' || name === 'infile'))
      throw refusal(164, 'A read has no INTO OUTFILE and no FROM INFILE');
  }
});

/**
 * Databases that reveal the engine: it grants some of their tables to everybody, including other statements and their
 * errors.
 */
const TELLING_DATABASES = new Set(['system', 'information_schema']);
/**
 * Functions that reveal the engine, its host or its user, and table functions; `format` and `null`, which are more than
 * table functions, have inline data only.
 */
const TELLING_FUNCTIONS = new Set(
  `addresstoline addresstolinewithinlines addresstosymbol authenticateduser authuser buildid connection_id connectionid current_query_id current_user currentprofiles currentqueryid currentroles
  currentuser defaultprofiles defaultroles displayname enabledprofiles enabledroles filesystemavailable filesystemcapacity filesystemunreserved fqdn fullhostname getclienthttpheader getmacro
  getmergetreesetting getoskernelversion getserverport getserversetting getsetting getsettingordefault globalvariable hostname initial_query_id initialqueryid query_id queryid servertimezone
  serveruuid session_user showcertificate tcpport uptime user version zookeepersessionuptime catboostevaluate evalmlmethod
  arrowstream azureblobstorage azureblobstoragecluster cluster clusterallreplicas cosn deltalake deltalakeazure deltalakeazurecluster deltalakecluster deltalakelocal deltalakes3 deltalakes3cluster
  dictionary eval executable file filecluster filesystem fuzzjson fuzzquery gcs generaterandom hdfs hdfscluster hudi hudicluster iceberg icebergazure icebergazurecluster icebergcluster iceberghdfs
  iceberghdfscluster iceberglocal iceberglocalcluster icebergs3 icebergs3cluster input jdbc loop merge mergetreeanalyzeindexes mergetreeanalyzeindexesuuid mergetreeindex mergetreeprojection
  mergetreetextindex mongodb mysql odbc oss paimon paimonazure paimonazurecluster paimoncluster paimonhdfs paimonhdfscluster paimonlocal paimons3 paimons3cluster postgresql prometheusquery
  prometheusqueryrange redis remote remotesecure s3 s3cluster sqlite timeseriesdata timeseriesmetrics timeseriessamples timeseriesselector timeseriestags url urlcluster view viewexplain
  viewifpermitted ytsaurus`.split(/\s+/),
);

/**
 * Throws 497 ACCESS_DENIED unless the statement is a SELECT, or EXPLAIN AST of one, that asks nothing about the engine
 * itself. The engine would answer even a user without rights: `system.errors` contains texts of other statements, and
 * `hostName()` needs no grant.
 */
function checkIsolated(statement: string): void {
  const code = codeOf(statement);
  const texts = code.map((token) => nameOf(token).toLowerCase());
  const denied = (what: string): Error => refusal(497, `An isolated read has no ${what}`);
  const begins = texts.filter((text) => text !== '(');
  const [first = '', second = ''] = begins;
  if (!['select', 'with'].includes(first) && !(first === 'explain' && second === 'ast')) throw denied(first);
  for (const [i, { kind }] of code.entries()) {
    const [text = '', next] = [texts[i], texts[i + 1]];
    if (kind === 'symbol' && text === '@') throw denied('@');
    if (kind !== 'word' && kind !== 'quoted') continue;
    if (TELLING_DATABASES.has(text) && next === '.') throw denied(text);
    // a quoted name may contain both
    if ([...TELLING_DATABASES].some((database) => text.startsWith(`${database}.`))) throw denied(text);
    if (TELLING_FUNCTIONS.has(text) && (next === '(' || text.startsWith('current_') || text.startsWith('session_')))
      throw denied(text);
  }
}

/** Returns the names of the parameters `{name:Type}` in the statement. */
export const parameterNames = remembered((statement): ReadonlySet<string> => {
  const code = codeOf(statement);
  const names = code.filter(({ kind }, i) => kind === 'word' && code[i - 1]?.text === '{' && code[i + 1]?.text === ':');
  return new Set(names.map(({ text }) => text));
});

/** Throws 456 UNKNOWN_QUERY_PARAMETER if the statement names a parameter that is not given. */
export function checkParameters(statement: string, given: Readonly<Record<string, unknown>>): void {
  for (const name of parameterNames(statement)) {
    if (!Object.hasOwn(given, name)) throw refusal(456, `The parameter ${name} has no value`);
  }
}

/** Returns the one statement of the text, for a write. Throws 62 or 456. */
export function statementToRun(sql: string, params: Readonly<Record<string, unknown>>): string {
  const statement = oneStatement(sql);
  checkParameters(statement, params);
  return statement;
}

/** Returns the one statement of the text, for a read. Throws 62, 164, 456, or 497 if it is isolated. */
export function statementToRead(
  sql: string,
  params: Readonly<Record<string, unknown>>,
  isolated: boolean | undefined,
): string {
  const statement = oneStatement(sql);
  checkOnlyReads(statement);
  if (isolated === true) checkIsolated(statement);
  checkParameters(statement, params);
  return statement;
}

/**
 * Writes the texts that are longer than `longest` characters into the statement, where it has `{name:String}`. Returns
 * it with the remaining parameters. It works by tokens: braces in strings and comments are text.
 */
export function writeLongValues<T>(
  statement: string,
  params: Readonly<Record<string, T>>,
  longest: number,
): { sql: string; params: Readonly<Record<string, T>> } {
  const isLong = (value: T | undefined): value is T & string => typeof value === 'string' && value.length > longest;
  const entries = Object.entries(params);
  if (!entries.some(([, value]) => isLong(value))) return { sql: statement, params };
  const code = codeOf(statement);
  let sql = '';
  let from = 0;
  for (const [i, brace] of code.entries()) {
    const [opening, name = '', colon, type, closing] = code.slice(i, i + 5).map(({ text }) => text);
    const value = params[name];
    if (opening !== '{' || colon !== ':' || type !== 'String' || closing !== '}' || !isLong(value)) continue;
    sql += statement.slice(from, brace.start) + quote(value);
    from = code[i + 4]!.end;
  }
  return {
    sql: sql + statement.slice(from),
    params: Object.fromEntries(entries.filter(([, value]) => !isLong(value))),
  };
}

const ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  "'": "\\'",
  '`': '\\`',
  '\0': '\\0',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\b': '\\b',
  '\f': '\\f',
};

/** Returns a string literal of ClickHouse's SQL. */
export function quote(text: string): string {
  return `'${text.replace(/[\\'\0\n\r\t\b\f]/g, (c) => ESCAPES[c]!)}'`;
}

/** Returns a name as an identifier of ClickHouse's SQL. */
export function identifier(name: string): string {
  return `\`${name.replace(/[\\`\0\n\r\t\b\f]/g, (c) => ESCAPES[c]!)}\``;
}

/** Returns the beginning of an INSERT into these columns. */
export function insertInto(table: string, columns: readonly string[]): string {
  return `INSERT INTO ${identifier(table)} (${columns.map(identifier).join(', ')})`;
}
