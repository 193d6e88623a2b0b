import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { Ajv } from 'ajv';
import { LineCounter, isNode, parseDocument } from 'yaml';
import { checkOnlyReads, oneStatement } from '../../../common/clickhouse/sql.ts';
import { fragmentsOf } from '../statement/branches.ts';
import {
  NOW_TYPE,
  RESERVED,
  isOfJson,
  parameterType,
  type Column,
  type Definition,
  type Format,
  type Mistake,
  type Parameter,
} from './definition.ts';
import schema from './definition.schema.json' with { type: 'json' };
import { namedSubqueries, withoutUnread } from '../statement/named-subqueries.ts';
import { readValue } from './params.ts';
import { PATTERN_CHARACTERS, refusedPattern } from './pattern.ts';
import { bindPlaceholders, lineOf, placeholders, type Placeholder } from '../statement/placeholders.ts';

/** A name that no parameter may have: parameters become members of an object, and this one would be lost there. */
const NO_MEMBER = '__proto__';
const VALUE_BYTES = 8192;

/** What callers of a sandboxed endpoint may send besides its own parameters. */
export const SANDBOX_SQL: Parameter = {
  name: RESERVED.sql,
  description: 'a SELECT of your own from the named subqueries of the endpoint; absent or empty = its own statement',
  required: false,
  format: 'string',
  maxLength: 8192,
  aliases: {},
  examples: [],
};

/** What a parameter has under the same name. */
type SameInFile = 'default' | 'maxLength' | 'pattern' | 'minimum' | 'maximum' | 'examples';
interface PropertyFile extends Partial<Pick<Parameter, SameInFile>> {
  type?: 'string';
  description: string;
  format?: Exclude<Format, 'string'>;
  enum?: string[];
  'x-otherwise'?: string;
  'x-aliases'?: Record<string, string>;
}

/** A file that the schema accepts, with the schema's defaults. */
interface DefinitionFile extends Pick<Definition, 'id' | 'name' | 'description' | 'sandboxed' | 'project'> {
  max_rows: number;
  max_seconds?: number;
  cache_seconds: number;
  requery_seconds: number;
  few_rows: boolean;
  parameters: { required: string[]; properties: Record<string, PropertyFile> };
  columns: (Omit<Column, 'from'> & Partial<Column>)[];
}

const validate = new Ajv({ allErrors: true, strict: true, useDefaults: true }).compile<DefinitionFile>(schema);

type Path = readonly (string | number)[];
/** Adds a mistake at a path of the YAML file. */
type Wrong = (path: Path, message: string) => void;

/** Returns a definition made of the texts of its two files, or what is wrong with them. */
export function parseDefinition(
  yamlFile: string,
  yaml: string,
  sqlFile: string,
  sql: string,
): { definition: Definition } | { mistakes: Mistake[] } {
  const mistakes: Mistake[] = [];
  const read = readYaml(yaml, (line, message) => mistakes.push({ file: yamlFile, line, message }));
  if (read === undefined) return { mistakes };
  const { file, lineAt } = read;
  const wrong: Wrong = (path, message) => mistakes.push({ file: yamlFile, line: lineAt(path), message });
  const wrongSql = (position: number, message: string): void => {
    mistakes.push({ file: sqlFile, line: lineOf(sql, position), message });
  };
  const { required } = file.parameters;
  const parameters = Object.entries(file.parameters.properties).map(([name, p]) =>
    parameter(name, p, required.includes(name)),
  );
  const names = parameters.map((p) => p.name);

  const stem = basename(sqlFile, '.sql');
  if (file.name !== stem) wrong(['name'], `name is ${file.name}, but the file is called ${stem}`);
  for (const name of required)
    if (!names.includes(name)) wrong(['parameters', 'required'], `required names ${name}, which is not declared`);
  checkProject(file, parameters, wrong);
  if (file.requery_seconds > 0 && file.requery_seconds >= file.cache_seconds)
    wrong(['requery_seconds'], 'requery_seconds must be less than cache_seconds');
  for (const p of parameters) checkParameter(p, wrong);
  checkColumns(file, wrong);

  const types = new Map([[RESERVED.now, NOW_TYPE], ...parameters.map((p) => [p.name, parameterType(p)] as const)]);
  let used: readonly Placeholder[] = [];
  try {
    checkOnlyReads(oneStatement(sql));
    used = placeholders(sql);
    // for its mistakes only: their positions are those of the file, not of the bound text
    fragmentsOf(sql, parameters);
  } catch (error) {
    const { message } = error as Error;
    wrongSql(Number(/position (\d+)/.exec(message)?.[1] ?? 0), message);
    return { mistakes };
  }
  for (const p of used) if (!types.has(p.name)) wrongSql(p.start, `@${p.name} is not a parameter of ${yamlFile}`);
  for (const name of names)
    if (!used.some((u) => u.name === name))
      wrong(['parameters', 'properties', name], `${name} does not occur in ${sqlFile}`);
  checkSandbox(file, sql, sqlFile, wrong);
  if (mistakes.length > 0) return { mistakes };

  const boundSql = bindPlaceholders(sql, types);
  return {
    definition: {
      ...declared(file),
      parameters: file.sandboxed ? [...parameters, SANDBOX_SQL] : parameters,
      boundSql,
      // a caller's own SELECT may read any named subquery
      fragments: fragmentsOf(file.sandboxed ? boundSql : withoutUnread(boundSql), parameters),
      hash: createHash('sha256').update(yaml).update('\0').update(sql).digest('base64url'),
      sqlFile,
      yamlFile,
    },
  };
}

/**
 * Returns the content of the YAML file and the lines of its paths. Undefined if it has mistakes by the schema, which it
 * adds.
 */
function readYaml(
  yaml: string,
  wrong: (line: number, message: string) => void,
): { file: DefinitionFile; lineAt: (path: Path) => number } | undefined {
  const lines = new LineCounter();
  const document = parseDocument(yaml, { lineCounter: lines });
  for (const { linePos, message } of document.errors)
    wrong(linePos?.[0].line ?? 1, (message.split('\n')[0] ?? '').replace(/ at line .*/, ''));
  if (document.errors.length > 0) return undefined;
  const lineAt = (path: Path): number => {
    for (let length = path.length; length > 0; length--) {
      const node: unknown = document.getIn(path.slice(0, length), true);
      if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
    }
    return 1;
  };
  const file: unknown = document.toJS();
  if (validate(file)) return { file, lineAt };
  for (const { instancePath, message, params } of validate.errors ?? []) {
    const path = instancePath.split('/').slice(1);
    const { additionalProperty: extra, allowedValues = extra } = params;
    const said = allowedValues === undefined ? message : `${message} ${JSON.stringify(allowedValues)}`;
    wrong(lineAt(extra === undefined ? path : [...path, String(extra)]), `${path.join('.')} ${said}`.trimStart());
  }
  return undefined;
}

function parameter(name: string, p: PropertyFile, required: boolean): Parameter {
  const { type: _, format = 'string', enum: values, 'x-otherwise': otherwise, 'x-aliases': aliases, ...same } = p;
  return {
    maxLength: format === 'pattern' ? PATTERN_CHARACTERS : VALUE_BYTES,
    examples: [],
    ...same,
    name,
    required,
    format,
    aliases: aliases ?? {},
    ...(values !== undefined && { values }),
    ...(otherwise !== undefined && { otherwise }),
  };
}

function checkProject({ project }: DefinitionFile, parameters: readonly Parameter[], wrong: Wrong): void {
  if (project === undefined) return;
  const named = parameters.find((p) => p.name === project.parameter);
  if (named?.required !== true)
    wrong(['project', 'parameter'], `project.parameter ${project.parameter} must be a required parameter`);
  // a key's rights are checked against the value as sent, so the statement must get exactly that value
  else if (named.otherwise !== undefined || Object.keys(named.aliases).length > 0)
    wrong(['project', 'parameter'], `project.parameter ${named.name} must not stand for another value`);
  else if (named.format !== (project.match === 'pattern' ? 'pattern' : 'string'))
    wrong(
      ['project', 'parameter'],
      `project.parameter ${named.name} must have ${project.match === 'pattern' ? 'the format pattern' : 'no format'}`,
    );
}

function checkParameter(p: Parameter, wrong: Wrong): void {
  const at = ['parameters', 'properties', p.name];
  if (p.name === NO_MEMBER || Object.values<string>(RESERVED).includes(p.name))
    wrong(at, `${p.name} is a reserved name`);
  if (p.required && p.default !== undefined) wrong(at, `${p.name} is required and has a default`);
  for (const value of [p.default, p.otherwise, ...Object.values(p.aliases)]) {
    if (value !== undefined && p.values !== undefined && !p.values.includes(value))
      wrong(at, `${p.name} stands for ${value}, which is not in its enum`);
  }
  if ((p.minimum !== undefined || p.maximum !== undefined) && p.format !== 'integer')
    wrong(at, `${p.name} has minimum or maximum, but not the format integer`);
  const refused = p.pattern === undefined ? undefined : refusedPattern(p.pattern);
  if (refused !== undefined) {
    wrong([...at, 'pattern'], `the pattern of ${p.name} ${refused}`);
    return;
  }
  // A default is one of the enum, if there is an enum. A call that uses a refused value would be a 400.
  for (const value of p.values ?? [p.default]) {
    const read = value === undefined ? undefined : readValue(p, [value]);
    if (read !== undefined && 'message' in read) wrong(at, `${p.name} has the value ${value}, which ${read.message}`);
  }
}

function checkColumns({ columns }: DefinitionFile, wrong: Wrong): void {
  for (const [i, c] of columns.entries()) {
    if (columns.findIndex((other) => other.name === c.name) !== i)
      wrong(['columns', i], `column ${c.name} is declared twice`);
    if (isOfJson(c) !== (c.from !== undefined))
      wrong(['columns', i], `${c.render} ${isOfJson(c) ? 'needs' : 'takes no'} from and keys`);
  }
}

function checkSandbox(file: DefinitionFile, sql: string, sqlFile: string, wrong: Wrong): void {
  if (!file.sandboxed) return;
  if (file.project?.match === 'pattern')
    wrong(
      ['sandboxed'],
      "sandboxed, but its project is a pattern: callers' own statements may see the rows of one project only",
    );
  if (namedSubqueries(sql).names.length === 0)
    wrong(['sandboxed'], `sandboxed, but ${sqlFile} has no named subqueries: WITH name AS (SELECT ...)`);
}

/** Returns what the YAML file alone declares. */
function declared(file: DefinitionFile) {
  return {
    id: file.id,
    name: file.name,
    description: file.description,
    maxRows: file.max_rows,
    maxSeconds: file.max_seconds,
    cacheSeconds: file.cache_seconds,
    requerySeconds: file.requery_seconds,
    fewRows: file.few_rows,
    sandboxed: file.sandboxed,
    project: file.project,
    columns: file.columns.map((c) => ({ from: c.name, ...c })),
  };
}
