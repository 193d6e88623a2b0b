import { globSync, rmSync, truncateSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { rows, type ClickHouse } from '../../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../../common/clickhouse/embedded/embedded.ts';
import { loadMigrations, migrate, type Migration } from '../../../common/clickhouse/migrations.ts';
import { readSettings } from '../../../common/config/settings.ts';
import { createRegistry } from '../../../common/metrics.ts';
import { encodeIntent } from '../../../services/ingest/delivery/intent.ts';
import { Joints } from '../../../services/ingest/delivery/joint.ts';
import { Lane } from '../../../services/ingest/delivery/lane.ts';
import type { Record } from '../../../services/ingest/evaluate/record.ts';
import type { Context } from '../../../services/rollup/period/context.ts';
import { admitNew } from '../../../services/rollup/history.ts';
import { createRollupMetrics } from '../../../services/rollup/period/metrics.ts';
import { beginToday } from '../../../services/rollup/period/periods.ts';
import { repairOpen } from '../../../services/rollup/repairs.ts';
import { startRollup } from '../../../services/rollup/service.ts';
import {
  openTestEmbedded,
  openTestFace,
  temporaryFolder,
  testLogger,
  type TestClickHouse,
} from '../../harness/clickhouse.ts';
import { openTestStore, type TestStore } from '../../harness/ingest-store.ts';
import { waitFor } from '../../harness/wait-for.ts';

// Guarantee: with FSYNC=true no table of the database acknowledges, merges or moves what its disk does not have; so a
// row of the ledger is on the disk only where the rows are that it speaks of. The engine's tokens never wait for the
// disk: a batch whose rows outlived them is not stored twice.

const one = async <T>(clickhouse: ClickHouse, sql: string): Promise<T> =>
  rows<T>(await clickhouse.read({ sql, format: 'JSONEachRow' }))[0]!;

describe.each([
  ['embedded', openTestEmbedded],
  ['server over HTTP', openTestFace],
] as const)('the tables of an engine: %s', (_, open) => {
  let engine: TestClickHouse;
  let clickhouse: ClickHouse;

  beforeAll(async () => {
    engine = await open();
    clickhouse = engine.clickhouse;
  });
  afterAll(async () => {
    await engine.close();
  });

  const tables = async (): Promise<{ name: string; engine_full: string }[]> =>
    rows(
      await clickhouse.read({
        sql: "SELECT name, engine_full FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree' ORDER BY name",
        format: 'JSONEachRow',
      }),
    );
  const waits = ({ engine_full: text }: { engine_full: string }): boolean =>
    ['fsync_after_insert', 'fsync_part_directory', 'min_rows_to_fsync_after_merge'].every((setting) =>
      text.includes(`${setting} = 1`),
    );
  /** how many files and directories the engine waited for */
  async function synced(work: () => Promise<void>): Promise<{ files: number; directories: number }> {
    const count = (): Promise<{ files: number; directories: number }> =>
      one(
        clickhouse,
        "SELECT toUInt32(sumIf(value, event = 'FileSync')) AS files, toUInt32(sumIf(value, event = 'DirectorySync')) AS directories FROM system.events",
      );
    const before = await count();
    await work();
    const after = await count();
    return { files: after.files - before.files, directories: after.directories - before.directories };
  }
  const insert = async (): Promise<void> => {
    for (const at of [1, 2]) await clickhouse.execute({ sql: `INSERT INTO rollup_periods (begin) VALUES (${at})` });
  };
  const merge = (): Promise<void> => clickhouse.execute({ sql: 'OPTIMIZE TABLE rollup_periods FINAL' });

  const own = loadMigrations();
  const later: readonly Migration[] = [
    ...own,
    {
      version: own.length + 1,
      name: 'later.sql',
      checksum: '',
      statements: ['CREATE TABLE later_v2 (n UInt32) ENGINE = MergeTree ORDER BY n'],
    },
  ];

  test('wait for the disk from the first row on, with inserts and with merges', async () => {
    const watched: ClickHouse = {
      ...clickhouse,
      execute: async (statement) => {
        // other services begin when they read this row
        if (statement.params?.['state'] === 'applied') expect((await tables()).filter((t) => !waits(t))).toEqual([]);
        await clickhouse.execute(statement);
      },
    };
    await migrate(watched, testLogger, own, true);
    const made = await tables();
    expect(made.map((t) => t.name)).toEqual(
      expect.arrayContaining([
        'batches',
        'dead_letters',
        'dead_letter_replays',
        'paused_partitions',
        'api_keys',
        'migrations',
        'rollups',
        'edge_logs',
        'pgbouncer_logs',
        'api_requests_v1',
      ]),
    );
    expect(made.filter((t) => !waits(t))).toEqual([]);
    const ofInserts = await synced(insert);
    expect(ofInserts.files).toBeGreaterThan(2);
    expect(ofInserts.directories).toBeGreaterThanOrEqual(2);
    expect((await synced(merge)).files).toBeGreaterThan(0);
  });

  test('those that are made later too: by a migration, and of another table while history is built', async () => {
    await migrate(clickhouse, testLogger, later, true);
    await clickhouse.execute({ sql: 'CREATE TABLE api_requests_v1_build AS api_requests_v1' });
    expect((await tables()).filter((t) => /^later_v2$|_build$/.test(t.name)).map(waits)).toEqual([true, true]);
    await clickhouse.execute({ sql: 'DROP TABLE api_requests_v1_build SYNC' });
  });

  test('no more when it is turned off, and the tables are as they were', async () => {
    await migrate(clickhouse, testLogger, later);
    expect((await tables()).filter(({ engine_full: text }) => text.includes('fsync'))).toEqual([]);
    await clickhouse.execute({ sql: 'TRUNCATE TABLE rollup_periods' });
    expect(await synced(insert)).toEqual({ files: 0, directories: 0 });
    expect(await synced(merge)).toEqual({ files: 0, directories: 0 });
  });

  test('as the setting of the service that migrates says', async () => {
    const rollup = await startRollup({
      clickhouse,
      settings: readSettings({ FSYNC: 'true' }),
      logger: testLogger,
      registry: createRegistry(),
      migrations: later,
    });
    try {
      expect((await tables()).filter((t) => !waits(t))).toEqual([]);
    } finally {
      await rollup.stop();
    }
  });
});

describe('a batch that was not finished is taken up with what is there: no row twice, none missing', () => {
  const EVENTS = 9;
  const TOPIC = 'edge_logs';
  const REF = 'abcdefghijklmnopqrst';

  /**
   * the tables of which a machine without power loses the tokens or the parts, or a killed process does not leave them
   */
  const losses: readonly (readonly [string, { readonly tokens: RegExp; readonly parts: RegExp }])[] = [
    ['its rows survived their tokens', { tokens: /./, parts: /^$/ }],
    ['its token is there, its part in the raw table is not', { tokens: /^$/, parts: /^edge_logs$/ }],
    [
      'its first token is there, and nothing else: killed between that token and its part',
      { tokens: /^api_request/, parts: /^(edge_logs$|api_request)/ },
    ],
  ];
  test.each(losses)('%s; in rollups, after the repair', async (_, lost) => {
    const folder = temporaryFolder();
    let clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
    await migrate(clickhouse, testLogger, loadMigrations(), true);
    const evaluatedAt = Date.now();
    const records = Array.from({ length: EVENTS }, (_, offset): Record => ({
      offset,
      time: evaluatedAt,
      key: null,
      headers: [],
      value: Buffer.from(
        JSON.stringify({
          id: `e${offset}`,
          project: 'p',
          timestamp: evaluatedAt,
          metadata: { request: { url: `https://${REF}.example/rest/v1/x`, path: '/rest/v1/x' } },
        }),
      ),
    }));
    const storeOf = (): TestStore => openTestStore(clickhouse, { source: 'edge_logs', topic: TOPIC });
    const context = (): Context => ({
      clickhouse,
      settings: readSettings({}),
      logger: testLogger,
      metrics: createRollupMetrics(createRegistry()),
      clock: Date.now,
      engineClock: () => Promise.resolve(Date.now()),
      wait: () => Promise.resolve(),
    });
    try {
      await beginToday(context());
      await admitNew(context());
      const { period } = await storeOf().register(true);
      const intent = { incarnation: 0, first: 0, last: EVENTS - 1, rules: storeOf().rulesAt(evaluatedAt, period) };
      await storeOf().insertBatch({ evaluatedAt, period, records });
      const places = async (sql: string, of: RegExp): Promise<string[]> =>
        rows<{ name: string; path: string }>(await clickhouse.read({ sql, format: 'JSONEachRow' }))
          .filter(({ name }) => of.test(name))
          .map(({ path }) => (isAbsolute(path) ? path : join(folder.path, 'clickhouse', path)));
      const parts = await places(
        'SELECT table AS name, path FROM system.parts WHERE database = currentDatabase() AND active',
        lost.parts,
      );
      const tables = await places(
        "SELECT name, data_paths[1] AS path FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'",
        lost.tokens,
      );
      const logs = tables.flatMap((path) => globSync(join(path, 'deduplication_logs/*.txt')));
      expect(logs.length + parts.length).toBeGreaterThan(0);
      await clickhouse.close();
      for (const log of logs) truncateSync(log);
      for (const part of parts) rmSync(part, { recursive: true });
      clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });

      const store = storeOf();
      let isOver = false;
      const lane: Lane = new Lane(
        {
          group: 'test',
          clock: Date.now,
          monotonic: () => performance.now(),
          random: () => 0,
          log: () => {},
          onTaken: () => {},
          onRoom: () => {},
          joints: new Joints(),
          after: () => new Promise(() => {}),
          others: () => [],
          dueAt: (since) => since,
          permit: async () => () => {},
          isDraining: () => false,
          isMember: () => true,
          isOver: () => isOver,
          unavailable: () => undefined,
          hasMembers: async () => false,
          wait: () => sleep(1),
          commit: async () => true,
          committed: async () => ({ offset: 0, metadata: encodeIntent(intent) }),
          watermarks: async () => ({ low: 0, high: EVENTS }),
          badShare: { paused: async () => undefined, add: () => {}, pauses: async () => false },
          fetchFrom: (at) => {
            setImmediate(() => lane.offer({ at, to: EVENTS - 1, records: records.map((r) => ({ ...r, bytes: 1 })) }));
          },
          store: {
            ...store,
            writeLedger: async (entry) => {
              await store.writeLedger(entry);
              isOver = true;
            },
          },
        },
        { maxRecords: 100, maxBytes: 1_000_000 },
      );
      await lane.run();

      expect(
        await one(
          clickhouse,
          'SELECT toUInt32(count()) AS rows, toUInt32(uniqExact(kafka_offset)) AS offsets FROM edge_logs',
        ),
      ).toEqual({ rows: EVENTS, offsets: EVENTS });
      expect(
        await one(clickhouse, 'SELECT toUInt32(sum(stored)) AS stored, toUInt32(count()) AS batches FROM batches'),
      ).toEqual({ stored: EVENTS, batches: 1 });
      // a period that is still written to is closed by the first try
      await waitFor(async () => (await repairOpen(context())) === 0, 20_000, 'the repair is done');
      expect(
        await one(
          clickhouse,
          `SELECT toUInt32(sum(requests)) AS requests FROM api_requests WHERE width = 3600 AND ref = '${REF}'`,
        ),
      ).toEqual({ requests: EVENTS });
    } finally {
      await clickhouse.close();
      folder.remove();
    }
  });
});
