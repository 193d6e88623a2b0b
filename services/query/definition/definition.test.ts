import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { statementFor } from '../statement/branches.ts';
import { BUILT_IN, readDefinitions } from './definition-files.ts';
import { parseDefinition } from './parse-definition.ts';

const yaml = `id: 00000000-0000-4000-8000-000000000001
name: a.b
description: what it answers
project: { parameter: project, match: exact }
parameters:
  required: [project]
  properties:
    project: { description: the project }
    kind: { description: which, enum: [x, y], default: x }
    since: { description: from when, format: timestamp }
columns:
  - { name: n, render: number, description: how many }
`;
const sql =
  'select count() as n from t where p = @project and k = @kind and (@since is null or at > @since) and at < @now';

const sentOf = (definition: { readonly fragments: Parameters<typeof statementFor>[0] } | undefined): string =>
  statementFor(definition?.fragments ?? [], {});

function parse(y: string, s = sql): { name?: string; boundSql?: string; mistakes: string[] } {
  const parsed = parseDefinition('a.b.yaml', y, 'a.b.sql', s);
  if ('mistakes' in parsed) return { mistakes: parsed.mistakes.map((m) => `${m.file}:${m.line} ${m.message}`) };
  return { name: parsed.definition.name, boundSql: parsed.definition.boundSql, mistakes: [] };
}

describe('what is sent', () => {
  it('lacks the named subqueries that nothing reads: the filters of the eight other sources of logs.all', () => {
    const logs = readDefinitions([BUILT_IN]).find('logs.all');
    expect(logs?.boundSql.match(/FROM \w+_logs/g)).toHaveLength(9);
    expect(sentOf(logs).match(/FROM \w+_logs/g)).toEqual(['FROM edge_logs']);
  });

  it('has all of them where a caller may select from them', () => {
    const statement = 'WITH a AS (SELECT @project AS p, @kind AS k), b AS (SELECT @since AS s) SELECT 1 AS n FROM a';
    const of = (more: string): string => {
      const parsed = parseDefinition('a.b.yaml', yaml + more, 'a.b.sql', statement);
      return 'definition' in parsed ? sentOf(parsed.definition) : JSON.stringify(parsed.mistakes);
    };
    expect(of('')).not.toContain('b AS');
    expect(of('sandboxed: true\n')).toContain('b AS');
    const callers = parseDefinition('a.b.yaml', `${yaml}sandboxed: true\n`, 'a.b.sql', statement);
    expect('definition' in callers && callers.definition.parameters.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['project', 'sql']),
    );
  });
});

describe('parseDefinition', () => {
  it('binds every parameter by its type', () => {
    expect(parse(yaml)).toEqual({
      name: 'a.b',
      boundSql:
        "select count() as n from t where p = {project:String} and k = {kind:String} and ({since:Nullable(DateTime64(6, 'UTC'))} is null or at > {since:Nullable(DateTime64(6, 'UTC'))}) and at < {now:DateTime64(6, 'UTC')}",
      mistakes: [],
    });
  });

  it.each<[string, string, string, string]>([
    [
      'a name that is not the file name',
      yaml.replace('name: a.b', 'name: a.c'),
      sql,
      'a.b.yaml:2 name is a.c, but the file is called a.b',
    ],
    [
      'a statement with an undeclared parameter',
      yaml,
      `${sql}\nand @other`,
      'a.b.sql:2 @other is not a parameter of a.b.yaml',
    ],
    ['a string that is not closed', yaml, `${sql}\n and '`, "a.b.sql:2 Syntax error: ' at position 116 is not closed"],
    [
      'a branch for a value that the parameter cannot have: the canonical ones of its enum count',
      yaml.replace('default: x', 'default: x, x-aliases: { first: x }'),
      sql.replace('from t', 'from (\n-- only kind: x, first\nselect 1 union all -- only kind: y\nselect 2)'),
      'a.b.sql:2 Syntax error: "-- only kind: x, first": first is not in the enum of kind, at position 28',
    ],
    ['two statements', yaml, `${sql}; select 1`, 'a.b.sql:1 Syntax error: the text contains more than one statement'],
    [
      'a parameter that the statement lacks',
      yaml,
      sql.replaceAll('@kind', "'x'"),
      'a.b.yaml:9 kind does not occur in a.b.sql',
    ],
    [
      'a required name that is not declared',
      yaml.replace('required: [project]', 'required: [project, other]'),
      sql,
      'a.b.yaml:6 required names other, which is not declared',
    ],
    [
      'a project parameter that is optional',
      yaml.replace('  required: [project]\n', ''),
      sql,
      'a.b.yaml:4 project.parameter project must be a required parameter',
    ],
    [
      'a project parameter that is not bound as it is sent',
      yaml.replace('project: { description: the project }', 'project: { description: the project, format: integer }'),
      sql,
      'a.b.yaml:4 project.parameter project must have no format',
    ],
    [
      'a project pattern without the format',
      yaml.replace('match: exact', 'match: pattern'),
      sql,
      'a.b.yaml:4 project.parameter project must have the format pattern',
    ],
    [
      'a project parameter that stands for another',
      yaml.replace(
        'project: { description: the project }',
        'project: { description: the project, enum: [p, q], x-aliases: { r: q } }',
      ),
      sql,
      'a.b.yaml:4 project.parameter project must not stand for another value',
    ],
    [
      'a pattern that is none as it is run',
      yaml.replace('kind: { description: which,', "kind: { description: which, pattern: '(?=a)',"),
      sql,
      'a.b.yaml:9 the pattern of kind is not a pattern in RE2 syntax',
    ],
    [
      'a pattern that is too large as it is run',
      yaml.replace('kind: { description: which,', "kind: { description: which, pattern: '^(a{100}b{101})',"),
      sql,
      'a.b.yaml:9 the pattern of kind is too large a pattern: it has 204 parts with repetitions multiplied out, more than 200',
    ],
    [
      'a name that an object does not keep',
      yaml.replace('kind:', '__proto__:'),
      sql.replace('@kind', '@__proto__'),
      'a.b.yaml:9 __proto__ is a reserved name',
    ],
    [
      'a default outside of the enum',
      yaml.replace('default: x', 'default: z'),
      sql,
      'a.b.yaml:9 kind stands for z, which is not in its enum',
    ],
    [
      'a default that its own parameter refuses',
      yaml.replace('enum: [x, y], default: x', "format: integer, pattern: '^[1-9]$$', default: '10'"),
      sql,
      'a.b.yaml:9 kind has the value 10, which must match ^[1-9]$',
    ],
    [
      'a value of an enum that its own parameter refuses',
      yaml.replace('enum: [x, y]', 'maxLength: 1, enum: [x, yy]'),
      sql,
      'a.b.yaml:9 kind has the value yy, which is longer than 1 bytes',
    ],
    [
      'a key that is none of a definition',
      `${yaml}max_row: 5\n`,
      sql,
      'a.b.yaml:13 must NOT have additional properties "max_row"',
    ],
    [
      'a wrong type',
      yaml.replace('description: what it answers', 'description: [1]'),
      sql,
      'a.b.yaml:3 description must be string',
    ],
    [
      'an unknown rendering',
      yaml.replace('render: number', 'render: float'),
      sql,
      'a.b.yaml:12 columns.0.render must be equal to one of the allowed values ["string","number","integer","boolean","json","unix_microseconds","utc","text","nested_list"]',
    ],
    [
      'a column twice',
      `${yaml}  - { name: n, render: number, description: again }\n`,
      sql,
      'a.b.yaml:13 column n is declared twice',
    ],
    [
      'a rendering without its source',
      yaml.replace('render: number', 'render: text'),
      sql,
      'a.b.yaml:12 text needs from and keys',
    ],
    [
      'a source for what is rendered without one',
      yaml.replace('render: number', 'render: string, from: message, keys: [n]'),
      sql,
      'a.b.yaml:12 string takes no from and keys',
    ],
    ...['now', 'sql', 'api_key'].map((name): [string, string, string, string] => [
      `a reserved name, ${name}`,
      yaml.replace('kind:', `${name}:`),
      sql.replace('@kind', `@${name}`),
      `a.b.yaml:9 ${name} is a reserved name`,
    ]),
    [
      'requerying without a cache',
      `${yaml}requery_seconds: 300\n`,
      sql,
      'a.b.yaml:13 requery_seconds must be less than cache_seconds',
    ],
    [
      'a cache that outlives the answers in it',
      `${yaml}cache_seconds: 3601\n`,
      sql,
      'a.b.yaml:13 cache_seconds must be <= 3600',
    ],
    [
      'broken YAML',
      yaml.replace('enum: [x, y]', 'enum: [x, y'),
      sql,
      expect.stringMatching(/^a\.b\.yaml:(9|10) Flow /) as string,
    ],
  ])('names file and line of %s', (_, y, s, mistake) => {
    expect(parse(y, s).mistakes).toContainEqual(mistake);
  });

  it('lists every mistake at once', () => {
    expect(
      parse(yaml.replace('default: x', 'default: z').replace('name: a.b', 'name: c'), `${sql} and @b`).mistakes,
    ).toHaveLength(3);
  });
});

describe('readDefinitions', () => {
  let folder = '';
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'definitions-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const put = (name: string, id = '1'): void => {
    writeFileSync(
      join(folder, `${name}.yaml`),
      yaml.replace('name: a.b', `name: ${name}`).replace('000000000001', `00000000000${id}`),
    );
    writeFileSync(join(folder, `${name}.sql`), sql);
  };

  it('finds an endpoint by name and by id', () => {
    put('a.b');
    writeFileSync(join(folder, 'a.b.cases.yaml'), 'x');
    writeFileSync(join(folder, 'README.md'), 'x');
    const definitions = readDefinitions([BUILT_IN, folder]);
    const builtIn = readdirSync(BUILT_IN).filter((file) => file.endsWith('.sql'));
    expect(builtIn).toContain('logs.all.sql');
    expect(definitions.all.map((d) => d.name)).toEqual([
      ...builtIn.map((file) => basename(file, '.sql')).sort(),
      'a.b',
    ]);
    expect(definitions.find('a.b')).toBe(definitions.find('00000000-0000-4000-8000-000000000001'));
    expect(definitions.find('8E1D2B4C-0d3f-4a0b-b6a5-6a9c2f5d7e02')?.name).toBe('logs.all');
    expect(definitions.find('a')).toBeUndefined();
  });

  it('refuses a name or an id used twice', () => {
    put('a.b');
    put('c');
    expect(() => readDefinitions([folder])).toThrow(/c\.yaml:1: has the id of .*a\.b\.yaml/);
    expect(() => readDefinitions([BUILT_IN, BUILT_IN])).toThrow(/logs\.all\.yaml:1: has the name of/);
    rmSync(join(folder, 'c.yaml'));
    rmSync(join(folder, 'c.sql'));
    put('d0a7c3e9-5b21-4c6f-8f0e-2b8e4d9c1f03', '2');
    expect(() => readDefinitions([BUILT_IN, folder])).toThrow(
      /d0a7c3e9.*\.yaml:1: has the id of .*usage\.api-counts\.yaml/,
    );
  });

  it('refuses half an endpoint and a folder that is not there', () => {
    writeFileSync(join(folder, 'x.sql'), 'select 1');
    mkdirSync(join(folder, 'y.sql'));
    writeFileSync(join(folder, 'y.yaml'), '');
    writeFileSync(join(folder, 'z.sql'), 'select 1');
    expect(() => readDefinitions([folder])).toThrow(
      /x\.yaml:1: cannot be read \(ENOENT\).*\n.*y\.sql:1: cannot be read \(EISDIR\).*\n.*z\.yaml:1: cannot be read \(ENOENT\)/,
    );
    expect(() => readDefinitions([join(folder, 'none')])).toThrow(/none:1: cannot be read \(ENOENT\)/);
  });

  it('gives another hash to other content', () => {
    put('a.b');
    const before = readDefinitions([folder]).find('a.b')?.hash;
    writeFileSync(join(folder, 'a.b.sql'), `${sql} `);
    const after = readDefinitions([folder]).find('a.b')?.hash;
    expect(after).not.toBe(before);
    writeFileSync(
      join(folder, 'a.b.yaml'),
      readFileSync(join(folder, 'a.b.yaml'), 'utf8').replace('render: number', 'render: json'),
    );
    expect(readDefinitions([folder]).find('a.b')?.hash).not.toBe(after);
  });
});
