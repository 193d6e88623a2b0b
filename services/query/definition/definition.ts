import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Ajv } from 'ajv';
import { LineCounter, isNode, parseDocument } from 'yaml';
import { checkReads, oneStatement } from '../../../common/clickhouse/sql.ts';
import type { Settings } from '../../../common/config/settings.ts';
import { EXIT_CONFIG, StartError } from '../../../common/errors.ts';
import { partsOf, type Part } from './branches.ts';
import { compilePattern } from './pattern.ts';
import { namedSubqueries, withoutUnread } from './named-subqueries.ts';
import schema from './definition.schema.json' with { type: 'json' };
import { bindPlaceholders, lineOf, placeholders, type Placeholder } from './placeholders.ts';

/**
 * A saved endpoint is two files: `<name>.sql`, one SELECT with `@name` parameters, and `<name>.yaml`, what callers see
 * (definition.schema.json). `@now` belongs to the engine: one instant per query. Everything here is checked without
 * ClickHouse; check.ts compares the statement's columns with the declared ones.
 */
export const formats = ['string', 'timestamp', 'integer', 'number', 'pattern'] as const;
export type Format = (typeof formats)[number];
export type Render =
  | 'string'
  | 'number'
  | 'integer'
  | 'boolean'
  | 'json'
  | 'unix_microseconds'
  | 'utc'
  | 'text'
  | 'nested_list';

export interface Parameter {
  readonly name: string;
  readonly description: string;
  readonly required: boolean;
  readonly format: Format;
  /** bytes of UTF-8 */
  readonly maxLength: number;
  readonly minLength?: number;
  /** RE2 syntax, found anywhere in the value */
  readonly pattern?: string;
  /** of an integer */
  readonly minimum?: number;
  readonly maximum?: number;
  readonly values?: readonly string[];
  readonly default?: string;
  /** the value that anything outside of `values` stands for */
  readonly otherwise?: string;
  readonly aliases: Readonly<Record<string, string>>;
  readonly examples: readonly string[];
}

export interface Column {
  readonly name: string;
  readonly description: string;
  readonly render: Render;
  /** the column of the statement that it is made from */
  readonly from: string;
  readonly nullable: boolean;
  /** members of `from`, a JSON text; the first one that exists and is not null counts */
  readonly keys?: readonly string[];
}

export interface Definition {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  readonly maxRows: number;
  readonly maxSeconds?: number;
  readonly cacheSeconds: number;
  readonly requerySeconds: number;
  /** planned for a few rows found by primary key */
  readonly fewRows: boolean;
  readonly sandboxed: boolean;
  readonly project?: { readonly parameter: string; readonly match: 'exact' | 'pattern' };
  readonly parameters: readonly Parameter[];
  readonly columns: readonly Column[];
  /** as in the file */
  readonly sql: string;
  /** with `{name:Type}` for `@name` */
  readonly boundSql: string;
  /** of boundSql, for statementFor */
  readonly parts: readonly Part[];
  /** of both files: a changed definition shares no cached answer with the former one */
  readonly hash: string;
  readonly sqlFile: string;
  readonly yamlFile: string;
}

/** Names with a meaning of their own for the service. */
export const RESERVED = { now: 'now', sql: 'sql', apiKey: 'api_key' } as const;
/** A name that no parameter may have: parameters become members of an object, and this one would be lost there. */
const NO_MEMBER = '__proto__';
const NOW_TYPE = "DateTime64(6, 'UTC')";
const VALUE_BYTES = 8192;
const PATTERN_BYTES = 1024;

/** Returns the ClickHouse type that `@name` is bound as. An absent parameter is '' as a string, else NULL. */
export function parameterType(p: Pick<Parameter, 'format' | 'required' | 'default'>): string {
  const type = { string: 'String', pattern: 'String', timestamp: NOW_TYPE, integer: 'Int64', number: 'Float64' }[
    p.format
  ];
  return type === 'String' || p.required || p.default !== undefined ? type : `Nullable(${type})`;
}

interface PropertyFile {
  description: string;
  format?: Exclude<Format, 'string'>;
  enum?: string[];
  default?: string;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  examples?: string[];
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
  columns: { name: string; render: Render; description: string; nullable?: boolean; from?: string; keys?: string[] }[];
}

const validate = new Ajv({ allErrors: true, strict: true }).compile<DefinitionFile>(schema);

/** A mistake in a definition: where, and what. */
export interface Mistake {
  readonly file: string;
  readonly line: number;
  readonly message: string;
}

/** Returns `file:line: message`, one mistake a line. */
export function describe(mistakes: readonly Mistake[]): string {
  return mistakes.map((m) => `  ${m.file}:${m.line}: ${m.message}`).join('\n');
}

function parameter(name: string, p: PropertyFile, required: boolean): Parameter {
  const format = p.format ?? 'string';
  return {
    name,
    description: p.description.trim(),
    required,
    format,
    maxLength: p.maxLength ?? (format === 'pattern' ? PATTERN_BYTES : VALUE_BYTES),
    aliases: p['x-aliases'] ?? {},
    examples: p.examples ?? [],
    ...(p.minLength !== undefined && { minLength: p.minLength }),
    ...(p.pattern !== undefined && { pattern: p.pattern }),
    ...(p.minimum !== undefined && { minimum: p.minimum }),
    ...(p.maximum !== undefined && { maximum: p.maximum }),
    ...(p.enum !== undefined && { values: p.enum }),
    ...(p.default !== undefined && { default: p.default }),
    ...(p['x-otherwise'] !== undefined && { otherwise: p['x-otherwise'] }),
  };
}

/** Returns a definition made of the texts of its two files, or what is wrong with them. */
export function parseDefinition(
  yamlFile: string,
  yaml: string,
  sqlFile: string,
  sql: string,
): { definition: Definition } | { mistakes: Mistake[] } {
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
  const inYaml = (path: readonly (string | number)[], message: string): Mistake => ({
    file: yamlFile,
    line: lineAt(path),
    message,
  });

  const file: unknown = document.toJS();
  if (!validate(file)) {
    return {
      mistakes: (validate.errors ?? []).map((e) => {
        const path = e.instancePath
          .split('/')
          .slice(1)
          .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
        const what = [e.params['additionalProperty'], e.params['allowedValues']]
          .filter((v) => v !== undefined)
          .map((v) => JSON.stringify(v))
          .join(' ');
        return inYaml(
          path.map((part) => (/^\d+$/.test(part) ? Number(part) : part)),
          [path.join('.'), e.message, what].filter((t) => t !== '' && t !== undefined).join(' '),
        );
      }),
    };
  }

  const mistakes: Mistake[] = [];
  const wrong = (path: readonly (string | number)[], message: string): void => {
    mistakes.push(inYaml(path, message));
  };
  const properties = Object.entries(file.parameters.properties);
  const required = file.parameters.required ?? [];
  const parameters = properties.map(([name, p]) => parameter(name, p, required.includes(name)));

  const stem = basename(sqlFile, '.sql');
  if (file.name !== stem) wrong(['name'], `name is ${file.name}, but the file is called ${stem}`);
  for (const name of required)
    if (!parameters.some((p) => p.name === name))
      wrong(['parameters', 'required'], `required names ${name}, which is not declared`);
  if (file.project !== undefined) {
    const named = parameters.find((p) => p.name === file.project?.parameter);
    if (named?.required !== true)
      wrong(['project', 'parameter'], `project.parameter ${file.project.parameter} must be a required parameter`);
    // a key's rights are checked against the value as sent, so the statement must get exactly that value
    else if (named.otherwise !== undefined || Object.keys(named.aliases).length > 0)
      wrong(['project', 'parameter'], `project.parameter ${named.name} must not stand for another value`);
    else if (named.format !== (file.project.match === 'pattern' ? 'pattern' : 'string'))
      wrong(
        ['project', 'parameter'],
        `project.parameter ${named.name} must have ${file.project.match === 'pattern' ? 'the format pattern' : 'no format'}`,
      );
  }
  if ((file.requery_seconds ?? 0) > 0 && (file.requery_seconds ?? 0) >= (file.cache_seconds ?? 0))
    wrong(['requery_seconds'], 'requery_seconds must be less than cache_seconds');
  for (const p of parameters) {
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
    if (p.pattern !== undefined) {
      try {
        compilePattern(p.pattern);
      } catch (error) {
        wrong([...at, 'pattern'], `the pattern of ${p.name} ${(error as Error).message}`);
      }
    }
    if ((p.minimum !== undefined || p.maximum !== undefined) && p.format !== 'integer')
      wrong(at, `${p.name} has minimum or maximum, but not the format integer`);
  }
  for (const [i, c] of file.columns.entries()) {
    if (file.columns.findIndex((other) => other.name === c.name) !== i)
      wrong(['columns', i], `column ${c.name} is declared twice`);
    if ((c.render === 'text' || c.render === 'nested_list') && c.from === undefined)
      wrong(['columns', i], `${c.render} needs from and keys`);
  }

  const types = new Map(parameters.map((p) => [p.name, parameterType(p)]));
  types.set(RESERVED.now, NOW_TYPE);
  let used: readonly Placeholder[] = [];
  try {
    checkReads(oneStatement(sql));
    used = placeholders(sql);
    partsOf(
      sql,
      parameters.map((p) => p.name),
    );
  } catch (error) {
    return {
      mistakes: [
        ...mistakes,
        {
          file: sqlFile,
          line: lineOf(sql, Number(/position (\d+)/.exec((error as Error).message)?.[1] ?? 0)),
          message: (error as Error).message,
        },
      ],
    };
  }
  for (const p of used)
    if (!types.has(p.name))
      mistakes.push({
        file: sqlFile,
        line: lineOf(sql, p.start),
        message: `@${p.name} is not a parameter of ${yamlFile}`,
      });
  for (const p of parameters)
    if (!used.some((u) => u.name === p.name))
      wrong(['parameters', 'properties', p.name], `${p.name} does not occur in ${sqlFile}`);
  if (file.sandboxed === true && file.project?.match === 'pattern')
    wrong(
      ['sandboxed'],
      "sandboxed, but its project is a pattern: callers' own statements may see the rows of one project only",
    );
  if (file.sandboxed === true && namedSubqueries(sql).names.length === 0)
    wrong(['sandboxed'], `sandboxed, but ${sqlFile} has no named subqueries: WITH name AS (SELECT ...)`);
  if (mistakes.length > 0) return { mistakes };

  const boundSql = bindPlaceholders(sql, types);

  return {
    definition: {
      id: file.id,
      name: file.name,
      description: file.description.trim(),
      maxRows: file.max_rows ?? 1000,
      cacheSeconds: file.cache_seconds ?? 0,
      requerySeconds: file.requery_seconds ?? 0,
      fewRows: file.few_rows ?? false,
      sandboxed: file.sandboxed ?? false,
      parameters,
      columns: file.columns.map((c) => ({
        name: c.name,
        description: c.description.trim(),
        render: c.render,
        from: c.from ?? c.name,
        nullable: c.nullable ?? true,
        ...(c.keys !== undefined && { keys: c.keys }),
      })),
      sql,
      boundSql,
      // a caller's own SELECT may read any of them
      parts: partsOf(
        file.sandboxed === true ? boundSql : withoutUnread(boundSql),
        parameters.map((p) => p.name),
      ),
      hash: createHash('sha256').update(yaml).update('\0').update(sql).digest('base64url'),
      sqlFile,
      yamlFile,
      ...(file.max_seconds !== undefined && { maxSeconds: file.max_seconds }),
      ...(file.project !== undefined && { project: file.project }),
    },
  };
}

/** The definitions that are served, by id and by name. */
export interface Definitions {
  readonly all: readonly Definition[];
  find(idOrName: string): Definition | undefined;
}

/** The folder of the endpoints that come with the service. */
export const BUILT_IN = join(import.meta.dirname, '..', 'endpoints');

/** Returns the folders of definitions. */
export function foldersOf({ ENDPOINTS_DIR }: Pick<Settings, 'ENDPOINTS_DIR'>): string[] {
  return ENDPOINTS_DIR === undefined ? [BUILT_IN] : [BUILT_IN, ENDPOINTS_DIR];
}

/**
 * Reads every definition of the folders and ignores other files (`<name>.cases.yaml` has an endpoint's tests). Throws
 * one StartError (exit code 78) that lists every mistake with file and line, also a name or an id used twice.
 */
export function readDefinitions(folders: readonly string[]): Definitions {
  const mistakes: Mistake[] = [];
  const all: Definition[] = [];
  for (const folder of folders) {
    let files: string[];
    try {
      files = readdirSync(folder).toSorted();
    } catch (error) {
      throw new StartError(`cannot read the folder of endpoints ${folder}: ${(error as NodeJS.ErrnoException).code}`, {
        cause: error,
        exitCode: EXIT_CONFIG,
      });
    }
    const stems = new Set(
      files
        .filter((f) => /\.(sql|yaml)$/.test(f) && !f.endsWith('.cases.yaml'))
        .map((f) => f.replace(/\.(sql|yaml)$/, '')),
    );
    for (const stem of stems) {
      const [yamlFile, sqlFile] = [join(folder, `${stem}.yaml`), join(folder, `${stem}.sql`)];
      const missing = [yamlFile, sqlFile].find((f) => !files.includes(basename(f)));
      if (missing !== undefined) {
        mistakes.push({
          file: missing,
          line: 1,
          message: 'is missing: an endpoint is a .sql and a .yaml file of one name',
        });
        continue;
      }
      const parsed = parseDefinition(yamlFile, readFileSync(yamlFile, 'utf8'), sqlFile, readFileSync(sqlFile, 'utf8'));
      if ('mistakes' in parsed) mistakes.push(...parsed.mistakes);
      else {
        const { definition } = parsed;
        for (const other of all) {
          if (other.id === definition.id || other.id === definition.name || other.name === definition.id)
            mistakes.push({ file: yamlFile, line: 1, message: `has the id of ${other.yamlFile}` });
          if (other.name === definition.name)
            mistakes.push({ file: yamlFile, line: 1, message: `has the name of ${other.yamlFile}` });
        }
        all.push(definition);
      }
    }
  }
  if (mistakes.length > 0)
    throw new StartError(`the endpoint definitions have mistakes:\n${describe(mistakes)}`, {
      exitCode: EXIT_CONFIG,
    });
  const [byName, byId] = [new Map(all.map((d) => [d.name, d])), new Map(all.map((d) => [d.id, d]))];
  return { all, find: (idOrName) => byName.get(idOrName) ?? byId.get(idOrName.toLowerCase()) };
}
