import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { Ajv } from 'ajv';
import { LineCounter, isNode, parseDocument } from 'yaml';
import { checkReads, oneStatement } from '../../../common/clickhouse/sql.ts';
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
import { compilePattern } from './pattern.ts';
import { bindPlaceholders, lineOf, placeholders, type Placeholder } from '../statement/placeholders.ts';

/** A name that no parameter may have: parameters become members of an object, and this one would be lost there. */
const NO_MEMBER = '__proto__';
const VALUE_BYTES = 8192;
const PATTERN_BYTES = 1024;

/** What a parameter has under the same name. */
type SameInFile = 'default' | 'minLength' | 'maxLength' | 'pattern' | 'minimum' | 'maximum' | 'examples';
interface PropertyFile extends Partial<Pick<Parameter, SameInFile>> {
  type?: 'string';
  description: string;
  format?: Exclude<Format, 'string'>;
  enum?: string[];
  'x-otherwise'?: string;
  'x-aliases'?: Record<string, string>;
}

interface DefinitionFile {
  id: string;
  name: string;
  description: string;
  max_rows?: number;
  max_seconds?: number;
  cache_seconds?: number;
  requery_seconds?: number;
  few_rows?: boolean;
  sandboxed?: boolean;
  project?: { parameter: string; match: 'exact' | 'pattern' };
  parameters: { required?: string[]; properties: Record<string, PropertyFile> };
  columns: (Pick<Column, 'name' | 'render' | 'description'> & Partial<Column>)[];
}

const validate = new Ajv({ allErrors: true, strict: true }).compile<DefinitionFile>(schema);

/** Adds a mistake at a path of the YAML file. */
type Wrong = (path: readonly (string | number)[], message: string) => void;

/** Returns a definition made of the texts of its two files, or what is wrong with them. */
export function parseDefinition(
  yamlFile: string,
  yaml: string,
  sqlFile: string,
  sql: string,
): { definition: Definition } | { mistakes: Mistake[] } {
  const read = readYaml(yamlFile, yaml);
  if ('mistakes' in read) return read;
  const { file, lineAt } = read;
  const mistakes: Mistake[] = [];
  const wrong: Wrong = (path, message) => mistakes.push({ file: yamlFile, line: lineAt(path), message });
  const wrongSql = (position: number, message: string): void => {
    mistakes.push({ file: sqlFile, line: lineOf(sql, position), message });
  };
  const required = file.parameters.required ?? [];
  const parameters = Object.entries(file.parameters.properties).map(([name, p]) =>
    parameter(name, p, required.includes(name)),
  );
  const names = parameters.map((p) => p.name);

  const stem = basename(sqlFile, '.sql');
  if (file.name !== stem) wrong(['name'], `name is ${file.name}, but the file is called ${stem}`);
  for (const name of required)
    if (!names.includes(name)) wrong(['parameters', 'required'], `required names ${name}, which is not declared`);
  checkProject(file, parameters, wrong);
  if ((file.requery_seconds ?? 0) > 0 && (file.requery_seconds ?? 0) >= (file.cache_seconds ?? 0))
    wrong(['requery_seconds'], 'requery_seconds must be less than cache_seconds');
  for (const p of parameters) checkParameter(p, wrong);
  checkColumns(file, wrong);

  const types = new Map(parameters.map((p) => [p.name, parameterType(p)]));
  types.set(RESERVED.now, NOW_TYPE);
  let used: readonly Placeholder[] = [];
  try {
    checkReads(oneStatement(sql));
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
      parameters,
      boundSql,
      // a caller's own SELECT may read any named subquery
      fragments: fragmentsOf(file.sandboxed === true ? boundSql : withoutUnread(boundSql), parameters),
      hash: createHash('sha256').update(yaml).update('\0').update(sql).digest('base64url'),
      sqlFile,
      yamlFile,
    },
  };
}

/** Returns the content of the YAML file and the lines of its paths, or what is wrong with it by the schema. */
function readYaml(
  yamlFile: string,
  yaml: string,
): { file: DefinitionFile; lineAt: (path: readonly (string | number)[]) => number } | { mistakes: Mistake[] } {
  const lines = new LineCounter();
  const document = parseDocument(yaml, { lineCounter: lines });
  if (document.errors.length > 0) {
    return {
      mistakes: document.errors.map((e) => ({
        file: yamlFile,
        line: e.linePos?.[0].line ?? 1,
        message: (e.message.split('\n')[0] ?? '').replace(/ at line .*/, ''),
      })),
    };
  }
  const lineAt = (path: readonly (string | number)[]): number => {
    for (let length = path.length; length > 0; length--) {
      const node: unknown = document.getIn(path.slice(0, length), true);
      if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
    }
    return 1;
  };
  const file: unknown = document.toJS();
  if (!validate(file)) {
    return {
      mistakes: (validate.errors ?? []).map((e) => {
        const path = e.instancePath
          .split('/')
          .slice(1)
          .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
        const unknown: unknown = e.params['additionalProperty'];
        const at = typeof unknown === 'string' ? [...path, unknown] : path;
        const what = [unknown, e.params['allowedValues']]
          .filter((v) => v !== undefined)
          .map((v) => JSON.stringify(v))
          .join(' ');
        return {
          file: yamlFile,
          line: lineAt(at.map((part) => (/^\d+$/.test(part) ? Number(part) : part))),
          message: [path.join('.'), e.message, what].filter((t) => t !== '' && t !== undefined).join(' '),
        };
      }),
    };
  }
  return { file, lineAt };
}

function parameter(name: string, p: PropertyFile, required: boolean): Parameter {
  const { type: _, format = 'string', enum: values, 'x-otherwise': otherwise, 'x-aliases': aliases, ...same } = p;
  return {
    maxLength: format === 'pattern' ? PATTERN_BYTES : VALUE_BYTES,
    examples: [],
    ...same,
    name,
    description: p.description.trim(),
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
  if ((p.otherwise !== undefined || Object.keys(p.aliases).length > 0) && p.values === undefined)
    wrong(at, `${p.name} has x-otherwise or x-aliases, but no enum`);
  if ((p.minimum !== undefined || p.maximum !== undefined) && p.format !== 'integer')
    wrong(at, `${p.name} has minimum or maximum, but not the format integer`);
  try {
    if (p.pattern !== undefined) compilePattern(p.pattern);
  } catch (error) {
    wrong([...at, 'pattern'], `the pattern of ${p.name} ${(error as Error).message}`);
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
    if (isOfJson(c) && c.from === undefined) wrong(['columns', i], `${c.render} needs from and keys`);
  }
}

function checkSandbox(file: DefinitionFile, sql: string, sqlFile: string, wrong: Wrong): void {
  if (file.sandboxed !== true) return;
  if (file.project?.match === 'pattern')
    wrong(
      ['sandboxed'],
      "sandboxed, but its project is a pattern: callers' own statements may see the rows of one project only",
    );
  if (namedSubqueries(sql).names.length === 0)
    wrong(['sandboxed'], `sandboxed, but ${sqlFile} has no named subqueries: WITH name AS (SELECT ...)`);
}

/** Returns what the YAML file alone declares, with its defaults. */
function declared(
  file: DefinitionFile,
): Omit<Definition, 'parameters' | 'boundSql' | 'fragments' | 'hash' | 'sqlFile' | 'yamlFile'> {
  return {
    id: file.id,
    name: file.name,
    description: file.description.trim(),
    maxRows: file.max_rows ?? 1000,
    cacheSeconds: file.cache_seconds ?? 0,
    requerySeconds: file.requery_seconds ?? 0,
    fewRows: file.few_rows ?? false,
    sandboxed: file.sandboxed ?? false,
    columns: file.columns.map((c) => ({ from: c.name, nullable: true, ...c, description: c.description.trim() })),
    ...(file.max_seconds !== undefined && { maxSeconds: file.max_seconds }),
    ...(file.project !== undefined && { project: file.project }),
  };
}
