import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { select, type ClickHouse, type Rows } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { ClickHouseError } from '../../common/clickhouse/errors.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { readSettings } from '../../common/config/settings.ts';
import { createKafka } from '../../common/kafka/client.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { kafkaBrokers } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace } from './face-engine.ts';
import { endIngestChildren, logged, startIngestChild, type At, type Exit } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: on the embedded engine, partitions of a topic that have little waiting share an insert. Each keeps its own
// batch, announcement and row of the ledger: an insert that fails, or is cut off by kill -9 at any point, neither loses
// nor doubles a message of any of them, in the raw tables or in the rollups. On a genuine server nothing is shared.

const PARTITIONS = 3;

describe('what partitions have waiting', () => {
  const folder = temporaryFolder();
  let clickhouse: ClickHouse;
  let rollup: Component;
  let ingest: RunningIngest | undefined;
  /** the inserts into edge_logs */
  let inserts: Rows[];
  let world: World;

  beforeAll(async () => {
    clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
    await migrate(clickhouse, testLogger);
    rollup = await startRollup({
      clickhouse,
      settings: readSettings({}),
      logger: testLogger,
      registry: createRegistry(),
    });
  });
  beforeEach(async () => {
    inserts = [];
    world = await createWorld({ partitions: PARTITIONS });
    await world.produce({ edge_logs: 30 });
  });
  afterEach(async () => {
    await ingest?.stop();
    ingest = undefined;
  });
  afterAll(async () => {
    await rollup.stop();
    await clickhouse.close();
    folder.remove();
  });

  async function start(engine: ClickHouse, insertRows = (rows: Rows) => engine.insertRows(rows)): Promise<void> {
    ingest = await startIngest({
      clickhouse: {
        ...engine,
        async insertRows(rows) {
          if (rows.table === 'edge_logs') inserts.push(rows);
          await insertRows(rows);
        },
      },
      kafka: createKafka({
        brokers: kafkaBrokers(),
        clientId: 'joint',
        logger: testLogger,
        maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
      }),
      settings: world.settings,
      logger: testLogger,
      registry: createRegistry(),
      sessionTimeoutMs: 6_000,
    });
  }

  async function expectExact(engine: ClickHouse): Promise<void> {
    await world.finished(engine);
    await world.expectExact(engine);
  }

  const isJoint = ({ queryIds }: Rows): boolean => queryIds!.length > 1;

  /** A few events for all partitions, again and again, until some were inserted together. */
  async function untilJoint(): Promise<void> {
    await waitFor(
      async () => {
        await world.produce({ edge_logs: 2 * PARTITIONS });
        return inserts.some(isJoint);
      },
      30_000,
      'partitions share an insert',
    );
  }

  async function batchesOf(topic: string): Promise<number> {
    const sql = 'SELECT toUInt32(count()) AS batches FROM batches WHERE topic = {topic:String}';
    return (await select<{ batches: number }>(clickhouse, sql, { topic }))[0]!.batches;
  }

  test('is one insert, and each of them has its batch in the ledger', async () => {
    await start(clickhouse);
    await untilJoint();
    await expectExact(clickhouse);
    expect(inserts.length).toBeLessThan(await batchesOf(world.topicOf('edge_logs')));
  });

  test('is one insert each on a server: one of a suspended process may come late there', async () => {
    const server = await openFace();
    try {
      await start(server.clickhouse);
      for (let i = 0; i < 10; i++) await world.produce({ edge_logs: 2 * PARTITIONS });
      await expectExact(server.clickhouse);
      expect(inserts.filter(isJoint)).toEqual([]);
      expect(inserts.length).toBeGreaterThanOrEqual(PARTITIONS);
    } finally {
      await ingest?.stop();
      ingest = undefined;
      await server.close();
    }
  });

  test.each([
    ['before the engine had it', 'not_written', false],
    ['after the engine stored it', 'unknown', true],
  ] as const)('is completed by each of them where the insert fails %s', async (_, outcome, isStored) => {
    let failed: Rows | undefined;
    await start(clickhouse, async (rows) => {
      const isFirst = failed === undefined && rows.table === 'edge_logs' && isJoint(rows);
      if (isFirst) failed = rows;
      if (!isFirst || isStored) await clickhouse.insertRows(rows);
      if (isFirst)
        throw new ClickHouseError('connection reset', {
          code: undefined,
          codeName: 'ECONNRESET',
          kind: 'retry',
          outcome,
        });
    });
    await untilJoint();
    await expectExact(clickhouse);
    const ids = failed!.queryIds!;
    const alone = inserts
      .slice(inserts.indexOf(failed!) + 1)
      .filter((rows) => !isJoint(rows))
      .flatMap(({ queryIds }) => queryIds!);
    // what is stored is found, what is not goes in alone
    expect(isStored ? [] : ids.filter((id) => !alone.includes(id))).toEqual([]);
  });
});

describe('kill -9 in an insert that partitions share', () => {
  afterEach(endIngestChildren);

  const strikes: readonly (readonly [string, Partial<At>])[] = [
    ['before anything of it is stored', {}],
    ['when its first part of the raw table is stored', { whenPartOf: 'edge_logs' }],
  ];
  test.each(strikes)('%s', async (_, strike) => {
    const folder = temporaryFolder();
    try {
      const world = await createWorld({ partitions: PARTITIONS });
      await world.produce({ edge_logs: 90 });
      const env = { ...world.env, DATA_DIR: folder.path };
      const killed = startIngestChild({
        env,
        sessionTimeoutMs: 2_000,
        at: { step: 'in_insert', match: '^edge_logs of partitions ', ...strike },
      });
      let exit: Exit | undefined;
      void killed.exited.then((how) => (exit = how));
      await waitFor(
        async () => {
          if (exit === undefined) await world.produce({ edge_logs: 2 * PARTITIONS });
          return exit !== undefined;
        },
        30_000,
        'it is killed',
      );
      expect(exit, killed.log().slice(-2_000)).toEqual({ code: null, signal: 'SIGKILL' });
      const last = startIngestChild({ env, sessionTimeoutMs: 2_000 });
      await world.finished(last.reader);
      await world.expectExact(last.reader);
      // more than one partition had its batch in the insert
      const recovered = logged(last, 'batch_recovered') as { partition: number }[];
      expect(new Set(recovered.map(({ partition }) => partition)).size).toBeGreaterThan(1);
      expect(logged(last, 'orphan_rows_found')).toEqual([]);
      expect(await last.stop()).toMatchObject({ code: 0 });
    } finally {
      folder.remove();
    }
  });
});
