import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { select } from '../../common/clickhouse/clickhouse.ts';
import { createKafka, fetchedRecords, type Consumer } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { recordBytes } from '../../services/ingest/inbox.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { testLogger } from '../harness/clickhouse.ts';
import type { Fault } from '../harness/clickhouse-face.ts';
import { kafkaBrokers, withAdmin } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace, REQUEST_TIMEOUT_MS, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, startIngestChild, waitForLog } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: whatever becomes of a statement on its way to a ClickHouse server (never sent, cut in the middle, executed
// without an answer, refused, hanging), the batch is written once: what is there is looked at, and what is missing is
// inserted, for as long as it takes. Meanwhile intake pauses, the process keeps its membership, and the partitions that
// can write go on. An error that nobody knows ends the process, with nothing committed past it.

const BATCH_MAX_BYTES = 1024 ** 2;
/** All partitions together hold four batches at most, and what one more fetch brings (common/config/settings.ts). */
const HELD_AT_MOST = 6 * BATCH_MAX_BYTES;
const EDGE_INSERT = 'INSERT INTO `edge_logs`';
const LEDGER = 'INSERT INTO `batches`';

describe('ClickHouse over HTTP', () => {
  let engine: FaceEngine;
  let world: World;
  let ingest: RunningIngest | undefined;

  beforeAll(async () => {
    engine = await openFace();
  });
  afterAll(() => engine.close());
  beforeEach(async () => {
    world = await createWorld();
  });
  afterEach(async () => {
    await engine.face.inject();
    await ingest?.stop();
    ingest = undefined;
    await endIngestChildren();
  });

  /** `accepted` hears how many bytes a lane took of each fetch. */
  async function start(
    more: Partial<World['settings']> = {},
    accepted: (bytes: number) => void = () => {},
  ): Promise<RunningIngest> {
    const kafka = createKafka({
      brokers: kafkaBrokers(),
      clientId: 'faults',
      logger: testLogger,
      maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    });
    ingest = await startIngest({
      clickhouse: engine.clickhouse,
      kafka: { ...kafka, consumer: (config) => reporting(kafka.consumer(config), accepted) },
      settings: { ...world.settings, ...more },
      logger: testLogger,
      registry: createRegistry(),
      sessionTimeoutMs: 6_000,
    });
    return ingest;
  }

  const retried: readonly (readonly [string, Fault])[] = [
    ['connection closed before the statement', { action: 'reset', times: 2 }],
    ['connection cut in the middle of the body', { action: 'cut_request', times: 2 }],
    ['stored, connection closed instead of an answer', { action: 'reset_after', times: 2 }],
    ['stored, answer cut in the middle', { action: 'cut_response', times: 2 }],
    ['stored, an error answered', { action: 'error_after', code: 1001, times: 2 }],
    ['too many parts', { action: 'error', code: 252, times: 3 }],
    ['disk full', { action: 'error', code: 243, times: 3 }],
    ['memory limit', { action: 'error', code: 241, times: 2 }],
    ['a proxy without its server', { action: 'garbage', status: 502, times: 2 }],
    ['slow', { action: 'delay', ms: 1_500, times: 2 }],
  ];
  test('a failing insert or ledger row is repeated until it is there, once', { timeout: 120_000 }, async () => {
    await start();
    for (const [name, fault] of retried) {
      await engine.face.inject(
        { ...fault, match: EDGE_INSERT },
        { ...fault, match: 'INSERT INTO `function_edge_logs`' },
        { ...fault, match: LEDGER },
      );
      await world.produce({ edge_logs: 200, function_edge_logs: 100, postgres_logs: 50 });
      await world.finished(engine.clickhouse).catch((error: unknown) => {
        throw new Error(name, { cause: error });
      });
    }
    expect(await world.behind(engine.clickhouse)).toEqual([]);
    await world.expectExact(engine.clickhouse);
  });

  test(
    'a partition whose insert gets no answer does not hold up the others, and is finished later',
    { timeout: 120_000 },
    async () => {
      await start();
      await engine.face.inject({ action: 'hang_after', match: EDGE_INSERT });
      await world.produce({ edge_logs: 200 }, { partitions: 1 });
      const since = performance.now();
      for (let i = 0; i < 5; i++) {
        const round = performance.now();
        await world.produce({ function_edge_logs: 100, postgres_logs: 50, auth_logs: 50, edge_logs: 1 });
        await waitFor(
          async () =>
            (await world.behind(engine.clickhouse)).every(
              (place) => place.startsWith('edge_logs.') && place.endsWith(':0'),
            ),
          5_000,
          'the other partitions go on',
        );
        expect(performance.now() - round).toBeLessThan(5_000);
      }
      expect(await world.behind(engine.clickhouse)).toEqual([`${world.topicOf('edge_logs')}:0:0`]);
      await world.finished(engine.clickhouse);
      expect(performance.now() - since).toBeGreaterThan(REQUEST_TIMEOUT_MS);
      await world.expectExact(engine.clickhouse);
    },
  );

  test('sixteen inserts that hang hold up no other partition', { timeout: 120_000 }, async () => {
    world = await createWorld({ partitions: 16 });
    await start();
    await engine.face.inject({ action: 'hang_after', match: EDGE_INSERT, times: 16 });
    await world.produce({ edge_logs: 320 });
    await waitFor(
      async () =>
        (
          await select<{ n: number }>(
            engine.clickhouse,
            'SELECT toUInt32(uniqExact(kafka_partition)) AS n FROM edge_logs WHERE kafka_topic = {topic:String}',
            { topic: world.topicOf('edge_logs') },
          )
        )[0]!.n === 16,
      30_000,
      'sixteen inserts hang, their rows stored',
    );
    expect((await world.behind(engine.clickhouse)).length).toBe(16);
    await world.produce({ postgres_logs: 160 });
    await waitFor(
      async () => (await world.behind(engine.clickhouse)).every((place) => place.startsWith('edge_logs.')),
      10_000,
      'the other topic goes on',
    );
    expect((await world.behind(engine.clickhouse)).length).toBe(16);
    await world.finished(engine.clickhouse, 60_000);
    await world.expectExact(engine.clickhouse);
  });

  test(
    'absent for half a minute and more than a session: membership kept, what is held bounded, everything written afterwards',
    { timeout: 120_000 },
    async () => {
      let accepted = 0;
      await start({ BATCH_MAX_BYTES }, (bytes) => {
        accepted += bytes;
      });
      await world.produce({ edge_logs: 500, function_edge_logs: 100 });
      await world.finished(engine.clickhouse);
      const generation = await membership(world.groupId);
      await engine.face.down();
      const before = accepted;
      for (let i = 0; i < 15; i++) {
        await world.produce({ edge_logs: 1_000, function_edge_logs: 200 });
        await new Promise((resolve) => {
          setTimeout(resolve, 1_500);
        });
      }
      const held = accepted - before;
      expect(held).toBeGreaterThan(BATCH_MAX_BYTES);
      expect(held).toBeLessThan(HELD_AT_MOST);
      expect(await membership(world.groupId)).toEqual(generation);
      await engine.face.up();
      await world.finished(engine.clickhouse);
      // much more stood in Kafka than was held
      expect(accepted - before).toBeGreaterThan(2 * HELD_AT_MOST);
      await world.expectExact(engine.clickhouse);
      expect(await membership(world.groupId)).toEqual(generation);
    },
  );

  test('killed and started again', { timeout: 120_000 }, async () => {
    const own = await openFace();
    try {
      const child = startIngestChild({
        env: { ...world.env, CLICKHOUSE_URL: own.env.CLICKHOUSE_URL },
        sessionTimeoutMs: 6_000,
      });
      await child.running;
      for (const delay of [30, 90]) {
        await world.produce({ edge_logs: 3_000, function_edge_logs: 500 });
        await new Promise((resolve) => {
          setTimeout(resolve, 300 + delay);
        });
        await own.face.kill();
        await own.restart();
      }
      await world.finished(own.clickhouse);
      await world.expectExact(own.clickhouse);
      expect(await child.stop()).toMatchObject({ code: 0 });
    } finally {
      await own.close();
    }
  });

  test(
    'an unknown error ends the process with a non-zero code; nothing is committed past the batch',
    { timeout: 60_000 },
    async () => {
      await engine.face.inject({ action: 'error_after', code: 987_654, match: EDGE_INSERT });
      await world.produce({ edge_logs: 300 });
      const options = { env: { ...world.env, CLICKHOUSE_URL: engine.env.CLICKHOUSE_URL }, sessionTimeoutMs: 6_000 };
      const first = startIngestChild(options);
      const { code, signal } = await first.exited;
      expect({ code, signal }).toEqual({ code: 1, signal: null });
      await waitForLog(first, 'failed', 1_000);
      const second = startIngestChild(options);
      await world.finished(engine.clickhouse);
      await world.expectExact(engine.clickhouse);
      expect(await second.stop()).toMatchObject({ code: 0 });
    },
  );
});

async function membership(groupId: string): Promise<readonly string[]> {
  const { groups } = await withAdmin((admin) => admin.describeGroups([groupId]));
  return [groups[0]!.state, ...groups[0]!.members.map((m) => m.memberId)];
}

/** A consumer that reports the bytes of every fetch that was accepted. */
function reporting(consumer: Consumer, accepted: (bytes: number) => void): Consumer {
  return {
    ...consumer,
    run: (config) =>
      consumer.run({
        ...config,
        eachBatch: (payload) =>
          config!.eachBatch!({
            ...payload,
            resolveOffset: (offset) => {
              accepted(fetchedRecords(payload.batch).records.reduce((sum, record) => sum + recordBytes(record), 0));
              payload.resolveOffset(offset);
            },
          }),
      }),
  };
}
