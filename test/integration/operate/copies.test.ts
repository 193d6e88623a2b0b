import { renameSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows, select, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { waitForSchema } from '../../../common/clickhouse/migrations.ts';
import { openServer } from '../../../common/clickhouse/server/server.ts';
import { backupPlaces } from '../../../common/config/backup-places.ts';
import { createKafka } from '../../../common/kafka/client.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { createBackup, destinationOf, restoreBackup } from '../../../services/ingest/operate/backup.ts';
import { statements } from '../../../services/ingest/store/statements.ts';
import { announceReplay } from '../../../services/ingest/operate/dead-letters.ts';
import { startIngest } from '../../../services/ingest/service.ts';
import { moveTables } from '../../../services/ingest/operate/move.ts';
import { BUILT_IN, readDefinitions } from '../../../services/query/definition/definition-files.ts';
import { readParams } from '../../../services/query/definition/params.ts';
import { RESULT_FORMAT, RESULT_SETTINGS } from '../../../services/query/render/render.ts';
import { writeRollup } from '../../../services/rollup/period/catalogue.ts';
import { readOpenRepairs, requestRepair } from '../../../services/rollup/repairs.ts';
import { startRollup } from '../../../services/rollup/service.ts';
import { createWorld, type World } from '../../faults/ledger.ts';
import { startFace, type Face } from '../../harness/clickhouse-face.ts';
import { temporaryFolder, testLogger } from '../../harness/clickhouse.ts';
import { openTestStore } from '../../harness/ingest-store.ts';
import { kafkaBrokers } from '../../harness/kafka.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: a copy of the tables (a backup restored, the embedded engine moved to a server) is taken up by ingest
// where its ledger ends:
// what came after it is taken from Kafka again, once, in every table and rollup. No copy is made while a batch is under
// way.

const folders: { remove: () => void }[] = [];
const newFolder = (): string => {
  const folder = temporaryFolder();
  folders.push(folder);
  return folder.path;
};
const backups = newFolder();
const [full, increment] = ['local/full', 'local/increment'];
const places = backupPlaces(`local=${backups}`);

let world: World;
let embedded: ClickHouse;
let face: Face;
/** a server of the embedded engine's version: a backup belongs to the version that made it */
let twin: Face;
let server: ClickHouse;
/** how far the first backup goes */
let evaluatedAt: number;

beforeAll(async () => {
  world = await createWorld();
  [embedded, face, twin] = await Promise.all([
    openEmbedded({ dataDir: newFolder(), logger: testLogger }),
    startFace({ dataDir: newFolder(), password: 'secret' }),
    startFace({ dataDir: newFolder(), engine: '26.7', profile: 'plain', password: 'secret' }),
  ]);
  await withRollup(embedded, () => Promise.resolve());
});
afterAll(async () => {
  await server?.close();
  await embedded.close();
  await face.stop();
  await twin.stop();
  for (const folder of folders) folder.remove();
});

async function withRollup(clickhouse: ClickHouse, work: () => Promise<void>): Promise<void> {
  const rollup = await startRollup({
    clickhouse,
    settings: world.settings,
    logger: testLogger,
    registry: createRegistry(),
  });
  await work();
  await rollup.stop();
}

/** Ingests all there is in Kafka, and stops. */
async function ingestAll(clickhouse: ClickHouse): Promise<void> {
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'copies',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  const ingest = await startIngest({
    clickhouse,
    kafka,
    settings: world.settings,
    logger: testLogger,
    registry: createRegistry(),
    sessionTimeoutMs: 6_000,
  });
  try {
    await world.finished(clickhouse);
  } finally {
    await ingest.stop();
  }
}

/**
 * The rows of every endpoint at one moment. Sums of fractions depend on the order of their parts in the last digits.
 */
async function answersOf(clickhouse: ClickHouse, now: Date): Promise<unknown[][]> {
  const definitions = readDefinitions([BUILT_IN]);
  const [busiest] = rows<{ project: string }>(
    await clickhouse.read({
      sql: 'SELECT project FROM function_edge_logs GROUP BY project ORDER BY count() DESC, project LIMIT 1',
      format: 'JSONEachRow',
    }),
  );
  const project = busiest!.project;
  const calls: [string, Record<string, string>][] = [
    ['functions.invocation-stats', { project, interval: '7day' }],
    ['functions.invocation-stats', { project, interval: '1hr' }],
    ['logs.all', { project, project_tier: 'PRO' }],
    ['usage.api-counts', { project, interval: 'daily' }],
    ['usage.api-counts', { project: '.', interval: 'daily' }],
  ];
  return await Promise.all(
    calls.map(async ([name, given]) => {
      const definition = definitions.find(name)!;
      const read = readParams(definition, new URLSearchParams(given));
      if (!('params' in read)) throw new Error(name);
      const params = { ...read.params, now: now.toISOString().replace('T', ' ').replace('Z', '000') };
      const { body } = await clickhouse.read({
        sql: definition.boundSql,
        params,
        format: RESULT_FORMAT,
        settings: RESULT_SETTINGS,
      });
      return (
        JSON.parse(body.toString('utf8'), (_, value: unknown) =>
          typeof value === 'number' ? Number(value.toPrecision(9)) : value,
        ) as { data: unknown[] }
      ).data;
    }),
  );
}

/** The views count what comes next: a request and an invocation once in each of their three widths. */
async function expectCounted(clickhouse: ClickHouse): Promise<void> {
  const counted = async (): Promise<{ requests: number; invocations: number }> => {
    const sql =
      'SELECT (SELECT toUInt32(sum(requests)) FROM api_requests) AS requests, (SELECT toUInt32(sum(count)) FROM function_invocations) AS invocations';
    return rows<{ requests: number; invocations: number }>(await clickhouse.read({ sql, format: 'JSONEachRow' }))[0]!;
  };
  const before = await counted();
  const now = Date.now();
  for (const [source, metadata] of [
    ['edge_logs', { request: { url: 'https://abcdefghijklmnopqrst.example.com/rest/v1' } }],
    ['function_edge_logs', { project_ref: 'p', response: { status_code: 200 } }],
  ] as const) {
    const store = openTestStore(clickhouse, { source, topic: `counted.${source}`, partition: 0 });
    await store.claim(1);
    const value = Buffer.from(JSON.stringify({ project: 'p', timestamp: now * 1000, metadata }));
    await store.writeBatch({ evaluatedAt: now, records: [{ offset: 0, time: now, key: null, headers: [], value }] });
  }
  expect(await counted()).toEqual({ requests: before.requests + 3, invocations: before.invocations + 3 });
}

describe('backups', () => {
  test('of the embedded engine, whole and as an increment; not over one that is there', async () => {
    await world.produce({ edge_logs: 200, function_edge_logs: 100, auth_logs: 30 });
    await ingestAll(embedded);
    const made = await createBackup({ clickhouse: embedded, places, logger: testLogger }, { place: full });
    expect(made.bytes).toBeGreaterThan(0);
    evaluatedAt = made.last_evaluated_at;
    await world.produce({ edge_logs: 100, function_edge_logs: 50 });
    await ingestAll(embedded);
    const written = await createBackup(
      { clickhouse: embedded, places, logger: testLogger },
      { place: increment, base: full },
    );
    // what it has itself, without its base
    expect(written.files).toBeLessThan(made.files);
    expect(written.bytes).toBeLessThan(made.bytes);
    await expect(createBackup({ clickhouse: embedded, places, logger: testLogger }, { place: full })).rejects.toThrow(
      'local/full: there is a backup of this name already (BACKUP_FAILED)',
    );
  });

  test('one whose files were cut short, as on a full disk, is refused although the engine says that it is created', async () => {
    const cut = { ...embedded };
    let isCut = false;
    cut.read = async (read) => {
      const result = await embedded.read(read);
      if (result.body.includes('BACKUP_CREATED')) {
        truncateSync(join(backups, 'cut', '.backup'), 0);
        isCut = true;
      }
      return result;
    };
    const backup = createBackup({ clickhouse: cut, places, logger: testLogger }, { place: 'local/cut' });
    await expect(backup).rejects.toThrow(
      /^the backup local\/cut is unusable: its folder has \d+ of \d+ bytes, as on a full disk\. Delete it, free space and repeat\.$/,
    );
    expect(isCut).toBe(true);
  });

  test('a node that has neither a backup nor its disk says nothing of it', async () => {
    expect(await select(embedded, statements.backupState, { id: 'nothing', disk: 'nowhere' })).toEqual([]);
  });

  test('one in an archive', async () => {
    const made = await createBackup(
      { clickhouse: embedded, places, logger: testLogger },
      { place: 'local/full.tar.gz' },
    );
    expect(statSync(join(backups, 'full.tar.gz')).size).toBe(made.bytes);
  });

  test('an increment, restored by a server under another name, and backed up there', async () => {
    const home = await openServer({ url: twin.url, logger: testLogger });
    await home.execute({ sql: 'CREATE DATABASE restored' });
    await home.close();
    const restored = await openServer({ url: twin.url.replace(/\/sluice$/, '/restored'), logger: testLogger });
    try {
      await restoreBackup(
        { clickhouse: restored, places, logger: testLogger },
        { place: increment, database: 'sluice' },
        world.settings.RAW_RETENTION_DAYS,
      );
      const now = new Date();
      await world.expectExact(restored);
      expect(await answersOf(restored, now)).toEqual(await answersOf(embedded, now));
      expect(
        (await createBackup({ clickhouse: restored, places, logger: testLogger }, { place: 'local/of-the-server' }))
          .files,
      ).toBeGreaterThan(0);
      await expectCounted(restored);
    } finally {
      await restored.close();
    }
  });

  test('an increment whose backups were moved needs the new place of its base', async () => {
    const moved = `${backups}-moved`;
    renameSync(backups, moved);
    try {
      await inDatabase('moved', async (clickhouse) => {
        const context = { clickhouse, places: backupPlaces(`local=${moved}`), logger: testLogger };
        const restore = (base?: string): Promise<unknown> =>
          restoreBackup(
            context,
            { place: increment, database: 'sluice', ...(base && { base }) },
            world.settings.RAW_RETENTION_DAYS,
          );
        await expect(restore()).rejects.toThrow(
          'local/increment: there is no backup of this name, or its base is not where it was when the increment was created (--base) (RESTORE_FAILED)',
        );
        await expect(restore('local/cut')).rejects.toThrow('local/increment: ');
        await restore(full);
        await world.expectExact(clickhouse);
      });
    } finally {
      renameSync(moved, backups);
    }
  });

  test('a destination is a folder in a place of the operator, and nothing else', () => {
    const of = backupPlaces("local=/var/it's,disk=Disk('backups'),s3=S3('https://b.example/x','k','s')");
    expect(destinationOf(of, 'local/monday')).toBe("File('/var/it\\'s/monday')");
    expect(destinationOf(of, 'disk/monday')).toBe("Disk('backups', 'monday')");
    expect(destinationOf(of, 's3/2026-03-01.full')).toBe("S3('https://b.example/x/2026-03-01.full', 'k', 's')");
    expect(destinationOf(of, 'local/monday', 's1')).toBe("File('/var/it\\'s/monday/s1')");
    expect(destinationOf(of, 's3/monday', 's2')).toBe("S3('https://b.example/x/monday/s2', 'k', 's')");
    for (const wrong of [
      'monday',
      '/tmp/monday',
      'local/',
      'local/..',
      'local/.x',
      'local/a/b',
      'local/a\n',
      "local/a'",
      "Disk('backups', 'monday')",
      "url('http://x')",
    ])
      expect(() => destinationOf(of, wrong), wrong).toThrow('a backup is named PLACE/NAME');
    for (const unknown of ['other/monday', 'constructor/monday', '__proto__/x'])
      expect(() => destinationOf(of, unknown), unknown).toThrow('BACKUP_PLACES has local, disk, s3');
    expect(() => destinationOf({}, 'local/monday')).toThrow('set BACKUP_PLACES');
  });
});

describe('from the embedded engine to a server', () => {
  test('every table with its rows, the account, every answer; ingest goes on there exactly once', async () => {
    server = await openServer({ url: face.url, logger: testLogger });
    const said: string[] = [];
    const execute: ClickHouse['execute'] = async (statement) => {
      if (statement.sql.startsWith('SYSTEM')) said.push(statement.sql);
      await embedded.execute(statement);
    };
    const { tables } = await moveTables(
      { ...embedded, execute },
      server,
      world.settings.RAW_RETENTION_DAYS,
      testLogger,
    );
    // other databases of a server that is moved from go on merging
    for (const verb of ['STOP', 'START'])
      expect(
        said.flatMap((sql) => new RegExp(`^SYSTEM ${verb} MERGES .+\\.\`(\\w+)\`$`).exec(sql)?.[1] ?? []).toSorted(),
      ).toEqual(tables.map((t) => t.name).toSorted());
    expect(said).toHaveLength(2 * tables.length);
    await world.expectExact(server);
    const now = new Date();
    const answers = await answersOf(embedded, now);
    expect(await answersOf(server, now)).toEqual(answers);
    expect(answers.every((found) => found.length > 0)).toBe(true);

    await waitForSchema(server, testLogger);
    await world.produce({ edge_logs: 100, function_edge_logs: 50, auth_logs: 10 });
    await withRollup(server, () => ingestAll(server));
    await world.expectExact(server);
  });

  test('not while a build of a rollup has left its side table, which a backup has', async () => {
    const side = 'api_requests_v1_repair_1709596800_0123abcd';
    await embedded.execute({ sql: `CREATE TABLE ${side} AS api_requests_v1` });
    try {
      await expect(inDatabase('side', (empty) => moveTables(embedded, empty, 90, testLogger))).rejects.toThrow(
        `a build of a rollup has not ended (table ${side})`,
      );
      await createBackup({ clickhouse: embedded, places, logger: testLogger }, { place: 'local/side' });
    } finally {
      await embedded.execute({ sql: `DROP TABLE ${side}` });
    }
    await inDatabase('with_side', async (empty) => {
      await restoreBackup(
        { clickhouse: empty, places, logger: testLogger },
        { place: 'local/side', database: 'sluice' },
        world.settings.RAW_RETENTION_DAYS,
      );
      expect(await empty.read({ sql: `SELECT count() FROM ${side}`, format: 'TSV' })).toMatchObject({
        body: Buffer.from('0\n'),
      });
    });
  });

  test('not into a database that has tables', async () => {
    await expect(moveTables(embedded, server, 90, testLogger)).rejects.toThrow('empty database');
  });
});

/** Runs `work` on an empty database of the embedded engine's version. */
async function inDatabase(name: string, work: (clickhouse: ClickHouse) => Promise<unknown>): Promise<void> {
  const home = await openServer({ url: twin.url, logger: testLogger });
  await home.execute({ sql: `CREATE DATABASE ${name}` });
  await home.close();
  const clickhouse = await openServer({ url: twin.url.replace(/\/sluice$/, `/${name}`), logger: testLogger });
  try {
    await work(clickhouse);
  } finally {
    await clickhouse.close();
  }
}

describe('what is recorded while tables are copied', () => {
  /** Does `work` when the engine has read the tables of a backup, or before any table is moved. */
  function whileCopied(work: () => Promise<void>): ClickHouse {
    const copying = { ...embedded };
    let isDone = false;
    copying.execute = async (statement) => {
      await embedded.execute(statement);
      if (isDone || !/^BACKUP|^SYSTEM STOP MERGES/.test(statement.sql)) return;
      isDone = true;
      await work();
    };
    return copying;
  }

  async function repair(): Promise<void> {
    await withRollup(embedded, async () => {
      await waitFor(async () => (await readOpenRepairs(embedded)).length === 0, 60_000, 'the repair is done');
    });
  }

  const step = (): Promise<void> =>
    writeRollup(embedded, {
      name: 'other',
      version: 1,
      source: 'edge_logs',
      widest: 3600,
      from_raw: 3600,
      state: 'new',
      pending: [],
    });

  const replay = (): Promise<void> =>
    announceReplay(
      embedded,
      { topic: 'edge_logs', incarnation: 0, partition: 0, offset: '0' },
      { evaluatedAt: Date.now(), version: 1, period: 0 },
      undefined,
    );

  const dropDay = (): Promise<void> =>
    embedded.execute({ sql: "INSERT INTO expired_days SELECT 'edge_logs', toDateTime(86400), toDateTime(86400)" });

  test('a step of a replay, a repair that is done, a period of a new version, or a day that retention drops: the copy is unusable', async () => {
    const home = await openServer({ url: twin.url, logger: testLogger });
    await home.execute({ sql: 'CREATE DATABASE refused' });
    await home.close();
    const refused = await openServer({ url: twin.url.replace(/\/sluice$/, '/refused'), logger: testLogger });
    const back = (place: string, work: () => Promise<void>): Promise<unknown> =>
      createBackup({ clickhouse: whileCopied(work), places, logger: testLogger }, { place });
    const now = Math.floor(Date.now() / 1000);
    const request = (): Promise<void> =>
      requestRepair(
        { clickhouse: embedded },
        {
          source: 'edge_logs',
          period: now - (now % 86_400),
          from: now - 60,
          to: now,
          reason: 'recovery',
          accept_loss: false,
        },
      );
    try {
      await request();
      // an open repair alone does not stop anybody: its span is repaired again after a restore
      await back('local/open', () => Promise.resolve());
      await expect(back('local/repaired', repair)).rejects.toThrow('the rollup service built something while it ran');
      await request();
      await expect(moveTables(whileCopied(repair), refused, 90, testLogger)).rejects.toThrow(
        'the rollup service built something while it ran',
      );
      await expect(back('local/replayed', replay)).rejects.toThrow('a dead letter was replayed while it ran');
      await expect(back('local/built', step)).rejects.toThrow('the rollup service built something while it ran');
      await expect(back('local/dropped', dropDay)).rejects.toThrow('the rollup service dropped a day while it ran');
    } finally {
      await refused.close();
    }
  });

  test('a batch whose rows the copy lacks: its restore says so too', async () => {
    const raced = { ...embedded };
    raced.execute = async (statement) => {
      const columns = 'source, topic, partition, incarnation, first, last, stored, evaluated_at';
      if (statement.sql.startsWith('BACKUP'))
        await embedded.execute({
          sql: `INSERT INTO batches (${columns}) VALUES ('edge_logs', 'late', 0, 0, 0, 0, 1, now64(3))`,
        });
      await embedded.execute(statement);
    };
    const place = 'local/written';
    await expect(createBackup({ clickhouse: raced, places, logger: testLogger }, { place })).rejects.toThrow(
      'the backup local/written is unusable: ingest wrote while it ran',
    );
    await embedded.execute({ sql: "ALTER TABLE batches DELETE WHERE topic = 'late' SETTINGS mutations_sync = 1" });
    await inDatabase('written', async (clickhouse) => {
      const context = { clickhouse, places, logger: testLogger };
      await expect(restoreBackup(context, { place, database: 'sluice' }, 90)).rejects.toThrow(
        'local/written is restored, but its account does not hold: late incarnation 0 partition 0: offsets 0 to 0: rows differ from the ledger',
      );
    });
  });

  test('merges of rows that were written twice, and of rows that expire, are not recorded', async () => {
    const merged: string[] = [];
    for (const [table, topic, at] of [
      ['batches', 'topic', 'written_at'],
      ['dead_letter_replays', 'kafka_topic', 'replayed_at'],
    ]) {
      const expired = `* REPLACE ('expired' AS ${topic}, now64(3) - INTERVAL 401 DAY AS ${at})`;
      await embedded.execute({ sql: `SYSTEM STOP MERGES ${table}` });
      for (const row of ['*', expired])
        await embedded.execute({ sql: `INSERT INTO ${table} SELECT ${row} FROM ${table} LIMIT 1` });
      merged.push(`SYSTEM START MERGES ${table}`, `OPTIMIZE TABLE ${table} FINAL`);
    }
    const clickhouse = whileCopied(async () => {
      for (const sql of merged) await embedded.execute({ sql });
    });
    await createBackup({ clickhouse, places, logger: testLogger }, { place: 'local/merged' });
    const sql = "SELECT count() FROM batches WHERE topic = 'expired'";
    expect((await embedded.read({ sql, format: 'TabSeparated' })).body.toString()).toBe('0\n');
  });
});

describe('a batch in flight', () => {
  test('refuses a move and a backup', async () => {
    // rows of a batch whose ledger row is not there yet
    await embedded.execute({
      sql: `INSERT INTO dead_letters (source, kafka_topic, kafka_partition, kafka_offset, batch_last, evaluated_at, record_time, reason) VALUES ('edge_logs', 'under.way', 3, 7, 9, now64(3), 0, 'not_an_event')`,
    });
    for (const attempt of [
      () => moveTables(embedded, server, 90, testLogger),
      () => createBackup({ clickhouse: embedded, places, logger: testLogger }, { place: 'local/never' }),
    ])
      await expect(attempt()).rejects.toThrow(/under\.way partition 3 .* in flight/);
  });
});

describe('a backup that is restored', () => {
  test('what came after the one that is restored is taken from Kafka again, once', async () => {
    // one process has one folder open
    await embedded.close();
    const restored = await openEmbedded({ dataDir: newFolder(), logger: testLogger });
    try {
      const { last_evaluated_at } = await restoreBackup(
        { clickhouse: restored, places, logger: testLogger },
        { place: full },
        world.settings.RAW_RETENTION_DAYS,
      );
      expect(last_evaluated_at).toBe(evaluatedAt);
      expect((await world.behind(restored)).length).toBeGreaterThan(0);
      await waitForSchema(restored, testLogger);
      await world.produce({ edge_logs: 50, function_edge_logs: 20 });
      await withRollup(restored, () => ingestAll(restored));
      await world.expectExact(restored);
      await expect(
        restoreBackup({ clickhouse: restored, places, logger: testLogger }, { place: increment }, 90),
      ).rejects.toThrow('needs an empty database');
    } finally {
      await restored.close();
    }
  });
});
