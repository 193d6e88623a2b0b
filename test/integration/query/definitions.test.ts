import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { CommandContext } from '../../../common/command/command.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { endpointsCommand } from '../../../services/query/commands/endpoints.ts';
import { argsOf } from '../../harness/command.ts';
import { openTestFace, temporaryFolder } from '../../harness/clickhouse.ts';
import { API_KEY, call, logger, openEngine, send, startService, store, writeEndpoint, type Engine } from './service.ts';

/** Endpoints of an operator: looked at with ClickHouse's own eyes before they are served. */
let engine: Engine;
let folder = temporaryFolder();
let context: CommandContext;

let server: Engine;

beforeAll(async () => {
  [engine, server] = await Promise.all([openEngine('embedded'), openEngine('server')]);
});
afterAll(async () => {
  await Promise.all([engine?.close(), server?.close()]);
  folder.remove();
});
beforeEach(() => {
  folder.remove();
  folder = temporaryFolder();
  context = { clickhouse: engine.clickhouse, settings: readSettings({ API_KEY, ENDPOINTS_DIR: folder.path }), logger };
});
const start = () => startService(engine.clickhouse, engine.dataDir, { ENDPOINTS_DIR: folder.path });

it('more endpoints are checked than the queue of reads holds', async () => {
  for (let i = 0; i < 90; i++) writeEndpoint(folder.path, `mine${i}`, 'SELECT @project AS n');
  const service = await start();
  await service.ready;
  await service.stop();
  expect(await endpointsCommand.run(context, { action: 'check' })).toMatchObject({ mistakes: '' });
});

describe('a wrong definition stops the start, with file and line', () => {
  it.each([
    ['a syntax error', 'SELECT 1 AS n\nFROM edge_logs\nWHERE WHERE project = @project', /mine\.sql:3: SYNTAX_ERROR/],
    [
      'a table that there is not',
      'SELECT 1 AS n\nFROM nowhere\nWHERE @project = 1',
      /mine\.sql:2: UNKNOWN_TABLE: .*nowhere/,
    ],
    [
      'a column that there is not',
      "SELECT\n  count() AS n\nFROM edge_logs\nWHERE project = @project\n  AND collour = 'red'",
      /mine\.sql:5: UNKNOWN_IDENTIFIER: .*collour/,
    ],
    ['a type that does not fit', 'SELECT\n  toDate(@project, 5, 6) AS n', /mine\.sql:\d: /],
    [
      'a column with another name',
      "SELECT 1 AS m WHERE @project != ''",
      /mine\.yaml:1: column n is made from n, which is no column of the statement/,
    ],
    [
      'a column that is not declared',
      "SELECT 1 AS n, 2 AS m WHERE @project != ''",
      /mine\.yaml:1: the statement's column m is not declared/,
    ],
  ])('%s', async (_, sql, message) => {
    writeEndpoint(folder.path, 'mine', sql);
    for (const { clickhouse, dataDir } of [engine, server]) {
      const service = await startService(clickhouse, dataDir, { ENDPOINTS_DIR: folder.path });
      await expect(service.failed).rejects.toThrow(message);
      await expect(service.ready).rejects.toThrow(message);
      await service.stop();
    }
    const checked = await endpointsCommand.run(context, { action: 'check' });
    expect(endpointsCommand.print(checked)).toMatch(message);
    expect(endpointsCommand.exitCode?.(checked)).toBe(1);
  });

  it('a rendering that the column cannot have', async () => {
    writeEndpoint(folder.path, 'mine', 'SELECT @project AS n', 'max_rows: 5\n');
    const file = join(folder.path, 'mine.yaml');
    writeFileSync(file, readFileSync(file, 'utf8').replace('render: json', 'render: number'));
    const service = await start();
    await expect(service.ready).rejects.toThrow(
      /mine\.yaml:1: column n is rendered as number, but the statement has String/,
    );
    await service.stop();
  });

  it.each(['utc', 'unix_microseconds'])('a time of another zone, which %s would show as UTC', async (render) => {
    writeEndpoint(folder.path, 'mine', "SELECT toDateTime(0, 'Asia/Tokyo') AS n WHERE @project != ''");
    const file = join(folder.path, 'mine.yaml');
    writeFileSync(file, readFileSync(file, 'utf8').replace('render: json', `render: ${render}`));
    const service = await start();
    await expect(service.ready).rejects.toThrow(
      `mine.yaml:1: column n is rendered as ${render}, but the statement has DateTime('Asia/Tokyo')`,
    );
    await service.stop();
  });

  it.each([
    ['that writes', () => 'INSERT INTO edge_logs SELECT @project AS n', 'A read begins with'],
    [
      'that would make a file',
      () => `SELECT * FROM sqlite('${folder.path}/made', 'a') WHERE n = @project`,
      'named sqlite',
    ],
    [
      'that would write its result to a file',
      () => `SELECT @project AS n INTO OUTFILE '${folder.path}/made'`,
      'no INTO OUTFILE',
    ],
  ])('a statement %s, before anything is started', async (_, sql, message) => {
    writeEndpoint(folder.path, 'mine', sql());
    await expect(start()).rejects.toThrow(new RegExp(`mine\\.sql:1: .*${message}`));
    expect(readdirSync(folder.path).toSorted()).toEqual(['mine.sql', 'mine.yaml']);
  });

  it('a file that is no definition, before anything is started', async () => {
    writeFileSync(join(folder.path, 'mine.yaml'), 'id: 1\n');
    writeFileSync(join(folder.path, 'mine.sql'), 'SELECT 1');
    await expect(start()).rejects.toThrow(/mine\.yaml:1: id must be string/);
  });
});

it('a default of every format is one that the statement gets', async () => {
  writeEndpoint(
    folder.path,
    'mine',
    "SELECT concat(toString(@since), ' ', toString(@hours), ' ', toString(@share), ' ', @kind) AS n WHERE @project != ''",
  );
  const file = join(folder.path, 'mine.yaml');
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace(
      'columns:',
      `    since: { description: from when, format: timestamp, default: "2026-03-01T10:00:00.5+01:00" }
    hours: { description: how many, format: integer, default: "007" }
    share: { description: how much, format: number, default: "0.50" }
    kind: { description: which, default: x }
columns:`,
    ),
  );
  for (const { clickhouse, dataDir } of [engine, server]) {
    const service = await startService(clickhouse, dataDir, { ENDPOINTS_DIR: folder.path });
    await service.ready;
    const reply = await call(service, 'mine', { project: 'p' });
    expect([reply.text, reply.status]).toEqual(['{"result":[{"n":"2026-03-01 09:00:00.500000 7 0.5 x"}]}', 200]);
    await service.stop();
  }
});

describe('a changed definition', () => {
  it('is taken up on demand, and shares no answer with the one before; a wrong one is not', async () => {
    writeEndpoint(folder.path, 'mine', "SELECT concat('one ', @project) AS n", 'cache_seconds: 900\n');
    const service = await start();
    await service.ready;
    const ask = async (): Promise<unknown[]> => {
      const reply = await call(service, 'mine', { project: 'p' });
      return [reply.rows[0]?.['n'], reply.headers['x-cache']];
    };
    expect(await ask()).toEqual(['one p', 'miss']);
    expect(await ask()).toEqual(['one p', 'hit']);
    writeFileSync(join(folder.path, 'mine.sql'), "SELECT concat('two ', @project) AS n");
    expect(await ask()).toEqual(['one p', 'hit']);
    await service.reload();
    expect(await ask()).toEqual(['two p', 'miss']);
    writeFileSync(join(folder.path, 'mine.sql'), 'SELECT nothing AS n WHERE @project = 1');
    await service.reload();
    expect(await ask()).toEqual(['two p', 'hit']);
    writeFileSync(join(folder.path, 'mine.sql'), "SELECT concat('three ', @project) AS n");
    process.emit('SIGHUP');
    await expect.poll(async () => (await ask())[0], { timeout: 5_000 }).toBe('three p');
    expect((await send(service.address, '/openapi.json')).text).toContain('/api/endpoints/mine');
    await service.stop();
  });
});

it('no definition answers before it has been checked: a wrong one could show rows of other projects', async () => {
  const held = Promise.withResolvers<void>();
  writeEndpoint(folder.path, 'mine', "SELECT concat('one ', @project) AS m");
  const service = await startService(
    {
      ...engine.clickhouse,
      read: async (read) => {
        if (read.sql.startsWith('EXPLAIN')) await held.promise;
        return await engine.clickhouse.read(read);
      },
    },
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path },
    { schema: Promise.resolve() },
  );
  const refused = await call(service, 'mine', { project: 'p' });
  expect([refused.status, refused.error.code]).toEqual([503, 'unavailable']);
  held.resolve();
  await expect(service.failed).rejects.toThrow(/mine\.yaml:1: column n is made from n/);
  expect((await call(service, 'mine', { project: 'p' })).status).toBe(503);
  await service.stop();
});

it('definitions that are read twice at once: those read last are served', async () => {
  const checked = Promise.withResolvers<void>();
  writeEndpoint(folder.path, 'mine', "SELECT concat('first ', @project) AS n");
  const service = await startService(
    {
      ...engine.clickhouse,
      read: async (read) => {
        if (read.sql.includes('slowly')) await checked.promise;
        return await engine.clickhouse.read(read);
      },
    },
    engine.dataDir,
    { ENDPOINTS_DIR: folder.path },
  );
  await service.ready;
  writeFileSync(join(folder.path, 'mine.sql'), "SELECT concat('slowly ', @project) AS n");
  const slow = service.reload();
  writeFileSync(join(folder.path, 'mine.sql'), "SELECT concat('last ', @project) AS n");
  const last = service.reload();
  await Promise.race([
    last,
    new Promise((resolve) => {
      setTimeout(resolve, 500);
    }),
  ]);
  checked.resolve();
  await Promise.all([slow, last]);
  expect((await call(service, 'mine', { project: 'p' })).rows).toEqual([{ n: 'last p' }]);
  await service.stop();
});

describe('the schema of this build', () => {
  it('is waited for, also where tables of an older one are there: callers get 503', async () => {
    // as a version had published it that knew nothing of periods
    for (const table of ['api_requests'])
      await engine.clickhouse.execute({
        sql: `CREATE OR REPLACE VIEW ${table} AS SELECT * EXCEPT (period) FROM ${table}_v1`,
      });
    const migrated = Promise.withResolvers<void>();
    const service = await startService(engine.clickhouse, engine.dataDir, {}, { schema: migrated.promise });
    const ask = () => call(service, 'usage.api-counts', { project: 'abcdefghijklmnopqrst', interval: 'daily' });
    const refused = await ask();
    expect([refused.status, refused.error.code]).toEqual([503, 'unavailable']);
    for (const table of ['api_requests'])
      await engine.clickhouse.execute({ sql: `CREATE OR REPLACE VIEW ${table} AS SELECT * FROM ${table}_v1` });
    migrated.resolve();
    await service.ready;
    expect((await ask()).status).toBe(200);
    await service.stop();
  });
});

describe('npm run endpoints', () => {
  it('says that there is no schema yet, not that the definitions are wrong', async () => {
    const empty = await openTestFace();
    await expect(
      endpointsCommand.run({ ...context, clickhouse: empty.clickhouse }, { action: 'check' }),
    ).rejects.toMatchObject({ codeName: 'UNKNOWN_TABLE' });
    await empty.close();
  });

  it('checks and runs', async () => {
    const now = Date.now();
    await store(
      engine.clickhouse,
      'edge_logs',
      [
        JSON.stringify({ id: 'x', timestamp: now * 1000, project: 'p', metadata: { n: 1 } }).replace(
          '"n":1',
          '"n":12345678901234567890',
        ),
      ],
      { now },
    );
    const command = endpointsCommand;
    expect(command.print(await command.run(context, argsOf(command, 'check')))).toMatch(/^3 endpoints are fine/);
    const ran = await command.run(context, argsOf(command, 'run', 'logs.all', '--project', 'p'));
    expect(command.print(ran)).toBe(
      `{"id":"x","timestamp":${now * 1000},"event_message":"","metadata":[{"n":12345678901234567890}]}\n`,
    );
    expect(command.json?.(ran)).toBe(
      `{"result":[{"id":"x","timestamp":${now * 1000},"event_message":"","metadata":[{"n":12345678901234567890}]}],"truncated":false}`,
    );
    await expect(command.run(context, { action: 'run', endpoint: 'logs.all', parameters: {} })).rejects.toThrow(
      'project is required',
    );
    await expect(
      command.run(context, {
        action: 'run',
        endpoint: 'usage.api-counts',
        parameters: { project: '(', interval: 'daily' },
      }),
    ).rejects.toThrow('project is not a pattern');
    await expect(command.run(context, { action: 'run', endpoint: 'nothing', parameters: {} })).rejects.toThrow(
      'there is no endpoint nothing',
    );
    for (const words of [[], ['check', 'x'], ['run'], ['run', 'a', 'b'], ['run', '--project', 'p']])
      expect(() => argsOf(command, ...words)).toThrow('Expected one of: check, run NAME');
  });
});
