import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Reader } from '../../../common/clickhouse/clickhouse.ts';
import { ClickHouseError } from '../../../common/clickhouse/errors.ts';
import { checkDefinition } from '../../../services/query/definition/check.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition-files.ts';
import { parseDefinition } from '../../../services/query/definition/parse-definition.ts';
import { readParams } from '../../../services/query/definition/params.ts';
import { temporaryFolder } from '../../harness/clickhouse.ts';
import { modes, openEngine, type Engine } from '../query/service.ts';

/** A definition that is wrong is refused with file and line before anybody can call it. */
const folder = temporaryFolder();
const examples = join(import.meta.dirname, '../../../examples/endpoints');
let engine: Engine;
afterAll(() => folder.remove());

function definitionOf(
  sql: string,
  more: string,
  column = '{ name: n, render: json, description: n }',
): ReturnType<typeof parseDefinition> {
  const [yamlFile, sqlFile] = [join(folder.path, 'own.yaml'), join(folder.path, 'own.sql')];
  const yaml = `id: 00000000-0000-4000-8000-00000000abcd\nname: own\ndescription: own\n${more}\ncolumns:\n  - ${column}\n`;
  return parseDefinition(yamlFile, yaml, sqlFile, sql);
}
const PROJECT =
  'project: { parameter: project, match: exact }\nparameters: { required: [project], properties: { project: { description: the project } } }';

async function mistakesOf(sql: string, sandboxed: boolean): Promise<string[]> {
  const parsed = definitionOf(sql, `${PROJECT}\nsandboxed: ${sandboxed}`);
  if ('mistakes' in parsed) return parsed.mistakes.map((m) => m.message);
  const mistakes = await checkDefinition(engine.clickhouse, parsed.definition);
  for (const m of mistakes) expect([m.file.startsWith(folder.path), m.line > 0]).toEqual([true, true]);
  return mistakes.map((m) => m.message);
}
const own = (edge: string): string => `WITH edge AS (${edge})\nSELECT count() AS n FROM edge WHERE @project != ''`;

describe.each(modes)('%s', (mode) => {
  beforeAll(async () => {
    engine = await openEngine(mode, { sandbox: 'without rights' });
  });
  afterAll(() => engine?.close());

  it.each([
    'SELECT id FROM edge_logs WHERE project = @project',
    'SELECT id FROM edge_logs AS e WHERE @project = e.project AND (status_code > 1 OR status_code < 1)',
    'SELECT id FROM edge_logs PREWHERE project = @project WHERE status_code > 1',
    'SELECT e.id FROM (SELECT id FROM edge_logs WHERE project = @project) AS e JOIN (SELECT id FROM auth_logs WHERE project = @project) AS a ON e.id = a.id',
    'SELECT number AS id FROM numbers(3)',
    'SELECT id FROM edge_logs WHERE project = @project UNION ALL SELECT id FROM auth_logs WHERE project = @project',
    'SELECT id FROM (WITH inside AS (SELECT id FROM edge_logs WHERE project = @project) SELECT id FROM inside)',
  ])('a sandboxed definition may have the subquery %s', async (edge) => {
    expect(await mistakesOf(own(edge), true)).toEqual([]);
  });

  it.each([
    ['has no WHERE', 'SELECT id FROM edge_logs'],
    ['filters outside only', 'SELECT id FROM (SELECT id, project FROM edge_logs) WHERE project = @project'],
    ['has a way round', 'SELECT id FROM edge_logs WHERE project = @project OR status_code > 0'],
    ['has it in NOT', 'SELECT id FROM edge_logs WHERE NOT project = @project'],
    ['compares otherwise', 'SELECT id FROM edge_logs WHERE project >= @project'],
    ['matches a part', "SELECT id FROM edge_logs WHERE project LIKE concat(@project, '%')"],
    ['compares the parameter with itself', 'SELECT id FROM edge_logs WHERE @project = @project'],
    ['names another column project', 'SELECT id, @project AS project FROM edge_logs WHERE project = @project'],
    [
      'names another column project, quoted',
      'SELECT id, @project AS `project` FROM edge_logs WHERE project = @project',
    ],
    [
      'names it project by ARRAY JOIN',
      'SELECT id FROM edge_logs ARRAY JOIN [@project] AS project WHERE project = @project',
    ],
    [
      'filters one of two tables',
      'SELECT a.id AS id FROM edge_logs AS a JOIN auth_logs AS b ON a.id = b.id WHERE a.project = @project',
    ],
    [
      'filters one of two branches',
      'SELECT id FROM edge_logs WHERE project = @project UNION ALL SELECT id FROM auth_logs',
    ],
    ['looks elsewhere in IN', 'SELECT id FROM edge_logs WHERE project = @project AND id IN (SELECT id FROM auth_logs)'],
    [
      'looks elsewhere for a scalar',
      'SELECT (SELECT max(id) FROM auth_logs) AS id FROM edge_logs WHERE project = @project',
    ],
    ['filters after grouping', 'SELECT max(id) AS id FROM edge_logs GROUP BY project HAVING project = @project'],
    ['compares with a copy', 'SELECT id FROM edge_logs WHERE project = lower(@project)'],
    [
      'filters in the condition of a join',
      'SELECT a.id AS id FROM edge_logs AS a JOIN (SELECT 1 AS one) AS o ON a.project = @project',
    ],
    ['has a table where the project is in the reference', 'SELECT toString(ref) AS id FROM api_requests'],
    ['calls a table function', "SELECT id FROM merge('^sluice$', '^edge_logs$') WHERE project = @project"],
    [
      'has a subquery in place of a table',
      'WITH edge_logs AS (SELECT id, project FROM edge_logs) SELECT id FROM edge_logs WHERE project = @project',
    ],
  ])('a sandboxed definition is refused whose subquery %s', async (_, edge) => {
    expect(await mistakesOf(own(edge), true)).not.toEqual([]);
  });

  it('a sandboxed definition is refused whose subquery, which callers read unfiltered, is named like a table', async () => {
    const edge = 'SELECT id, project FROM edge_logs WHERE project = @project';
    const sql = `WITH edge_logs AS (${edge})\nSELECT count() AS n FROM edge_logs WHERE project = @project`;
    expect(await mistakesOf(sql, true)).toEqual(["the subquery 'edge_logs' has the name of a table"]);
  });

  it.each([
    'api_keys',
    'batches',
    'dead_letters',
    'stored_rows',
    'rollups',
    'rollup_repairs',
    'api_requests_v1',
    'canary',
    'partition_owners',
    'paused_partitions',
    'system.processes',
    'system.query_log',
    'information_schema.tables',
  ])('no definition may read %s', async (table) => {
    const messages = await mistakesOf(`SELECT count() AS n FROM ${table} WHERE @project != ''`, false);
    expect(messages.some((message) => /is internal|ACCESS_DENIED|UNKNOWN_TABLE/.test(message))).toBe(true);
    if (!table.includes('.')) expect(messages).toContain(`'${table}' is internal: read a log or a rollup`);
    if (!table.includes('.'))
      expect(
        await mistakesOf(`SELECT count() AS n FROM edge_logs WHERE id IN ${table} AND project = @project`, false),
      ).not.toEqual([]);
  });

  it('a nullable LowCardinality column is refused where nullable is false', async () => {
    const column = '{ name: method, render: string, nullable: false, description: m }';
    const parsed = definitionOf('SELECT method FROM edge_logs WHERE project = @project', PROJECT, column);
    if (!('definition' in parsed)) throw new Error(JSON.stringify(parsed));
    const [mistake, ...more] = await checkDefinition(engine.clickhouse, parsed.definition);
    expect(more).toEqual([]);
    expect(mistake?.message).toMatch(/^column method is not nullable, but the statement has LowCardinality\(Nullable/);
  });

  it('the statement may end in a semicolon and a comment', async () => {
    expect(await mistakesOf("SELECT 1 AS n WHERE @project != '';\n-- the end", false)).toEqual([]);
  });

  it('an error that is not of ClickHouse itself is no mistake of the file', async () => {
    const parsed = definitionOf("SELECT 1 AS n WHERE @project != ''", PROJECT);
    if (!('definition' in parsed)) throw new Error(JSON.stringify(parsed));
    const failure = new ClickHouseError('403 Forbidden', {
      code: undefined,
      codeName: 'HTTP_403',
      kind: 'fatal',
      outcome: 'not_written',
    });
    const behindProxy: Reader = { ...engine.clickhouse, read: () => Promise.reject(failure) };
    await expect(checkDefinition(behindProxy, parsed.definition)).rejects.toBe(failure);
  });

  it('those that come with the service and the examples are fine', async () => {
    for (const definition of readDefinitions([BUILT_IN, examples]).all)
      expect([definition.name, await checkDefinition(engine.clickhouse, definition)]).toEqual([definition.name, []]);
  });
});

describe('the pattern of a parameter', () => {
  const withPattern = (pattern: string): ReturnType<typeof parseDefinition> =>
    definitionOf(
      'SELECT @project AS n, @p AS p',
      `project: { parameter: project, match: exact }\nparameters: { required: [project], properties: { project: { description: p }, p: { description: p, pattern: '${pattern}' } } }`,
    );

  it.each(['^(a+)+$', '^(a|a)*$', '(a*)*b', '^([a-z]+)*[0-9]$', '(.*a){20}'])('%s takes linear time', (pattern) => {
    const parsed = withPattern(pattern);
    if (!('definition' in parsed)) throw new Error(JSON.stringify(parsed));
    const milliseconds = (length: number): number => {
      const from = process.cpuUsage();
      readParams(parsed.definition, new URLSearchParams({ project: 'p', p: `${'a'.repeat(length - 1)}!` }));
      const { user, system } = process.cpuUsage(from);
      return (user + system) / 1000;
    };
    milliseconds(8192);
    expect(milliseconds(8192)).toBeLessThan(500);
  });

  it.each(['(?=a)b', '(a)\\1', 'a{500}'])('%s is refused with file and line', (pattern) => {
    const parsed = withPattern(pattern);
    expect(
      'mistakes' in parsed
        ? parsed.mistakes.map((m) => [
            m.file.endsWith('own.yaml'),
            m.line,
            m.message.startsWith('the pattern of p is '),
          ])
        : [],
    ).toEqual([[true, 5, true]]);
  });

  it('of a condition in a statement takes linear time too, or is refused with file and line', () => {
    const sql = (pattern: string): string =>
      `SELECT n FROM (\n-- only project ~ ${pattern}\nSELECT @project AS n\nUNION ALL\nSELECT 'x' AS n)`;
    const parsed = definitionOf(sql('(?=a)'), PROJECT);
    expect('mistakes' in parsed ? parsed.mistakes.map((m) => [m.file.endsWith('own.sql'), m.line]) : []).toEqual([
      [true, 2],
    ]);
    const good = definitionOf(sql('^(a+)+$'), PROJECT);
    if (!('definition' in good)) throw new Error(JSON.stringify(good));
    const [, branches] = good.definition.fragments;
    const from = performance.now();
    expect(typeof branches === 'object' && branches[0]?.conditions[0]?.holds(`${'a'.repeat(8000)}!`)).toBe(false);
    expect(performance.now() - from).toBeLessThan(2_000);
  });
});
