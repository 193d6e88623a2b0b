import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createKafka, fetchedRecords, type Consumer } from '../../common/kafka/client.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { testLogger } from '../harness/clickhouse.ts';
import type { Fault } from '../harness/clickhouse-face.ts';
import { kafkaBrokers, withAdmin } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace, type FaceEngine } from './face-engine.ts';
import { endIngestChildren, startIngestChild, waitForLog } from './ingest-child.ts';
import { createWorld, underLoad, type World } from './ledger.ts';

// Guarantee: whatever becomes of a statement on its way to a ClickHouse server (never sent, cut in the middle, executed
// without an answer, refused, hanging), the batch is written once: what is there is looked at, and what is missing is
// inserted, for as long as it takes. Meanwhile intake pauses, the process keeps its membership, and the partitions that
// can write go on. An error that nobody knows ends the process, with nothing committed past it.

const BATCH_MAX_BYTES = 1024 ** 2;
/** All partitions together hold four batches at most, and what one more fetch brings (common/config/settings.ts). */
const HELD_AT_MOST = 6 * BATCH_MAX_BYTES;
/** long enough for every statement, and short enough to wait for twice */
const REQUEST_TIMEOUT_MS = 6_000;
const EDGE_INSERT = 'INSERT INTO `edge_logs`';
const LEDGER = 'INSERT INTO `batches`';

describe('ClickHouse over HTTP', () => {
  let engine: FaceEngine;
  let world: World;
  let ingest: RunningIngest | undefined;

  beforeAll(async () => {
    engine = await openFace(REQUEST_TIMEOUT_MS);
  });
  afterAll(() => engine.close());
  beforeEach(async () => {
    world = await createWorld();
  });
  afterEach(async ({ task }) => {
    await engine.face.inject();
    await ingest?.stop();
    ingest = undefined;
    await endIngestChildren();
    // a batch that is never finished keeps a repair open, for which the next test would wait
    if (task.result?.state === 'fail') {
      await engine.close();
      engine = await openFace(REQUEST_TIMEOUT_MS);
    }
  });

  /** `accepted` hears how many bytes a lane took of each fetch. */
  async function start({
    on = engine,
    settings = {},
    accepted = () => {},
  }: {
    on?: FaceEngine;
    settings?: Partial<World['settings']>;
    accepted?: (bytes: number) => void;
  } = {}): Promise<void> {
    const kafka = createKafka({
      brokers: kafkaBrokers(),
      clientId: 'faults',
      logger: testLogger,
      maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    });
    ingest = await startIngest({
      clickhouse: on.clickhouse,
      kafka: { ...kafka, consumer: (config) => reporting(kafka.consumer(config), accepted) },
      settings: { ...world.settings, ...settings },
      logger: testLogger,
      registry: createRegistry(),
      sessionTimeoutMs: 6_000,
    });
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
    ['stored, no answer', { action: 'hang_after' }],
  ];
  test('a failing insert or ledger row is repeated until it is there, once', { timeout: 120_000 }, async () => {
    await start();
    for (const [name, fault] of retried) {
      const faults = [EDGE_INSERT, 'INSERT INTO `function_edge_logs`', LEDGER].map((match) => ({ ...fault, match }));
      await engine.face.inject(...faults);
      await world.produce({ edge_logs: 200, function_edge_logs: 100, postgres_logs: 50 });
      await world.finished(engine.clickhouse).catch((error: unknown) => {
        throw new Error(name, { cause: error });
      });
      // each of them struck
      for (const { match, times = 1 } of faults) expect(times, `${name}: ${match}`).toBeLessThan(fault.times ?? 1);
    }
    expect(await world.behind(engine.clickhouse)).toEqual([]);
    await world.expectExact(engine.clickhouse);
  });

  describe('inserts that get no answer for as long as the test wants', () => {
    let patient: FaceEngine;

    beforeAll(async () => {
      patient = await openFace(600_000);
    });
    afterEach(() => patient.face.release());
    afterAll(() => patient.close());

    test('do not hold up the other partitions, and are finished later', { timeout: 120_000 }, async () => {
      await start({ on: patient });
      // every lane is at work before the first insert hangs
      await world.produce({ edge_logs: 2, function_edge_logs: 2, postgres_logs: 2, auth_logs: 2 });
      await world.finished(patient.clickhouse);
      await patient.face.inject({ action: 'hang_after', match: EDGE_INSERT });
      await world.produce({ edge_logs: 200 }, { partitions: 1 });
      await waitFor(() => patient.face.hanging() === 1, 30_000, 'an insert hangs');
      for (let i = 0; i < 5; i++) {
        const round = performance.now();
        await world.produce({ function_edge_logs: 100, postgres_logs: 50, auth_logs: 50, edge_logs: 1 });
        await waitFor(
          async () =>
            (await world.behind(patient.clickhouse)).every(
              (place) => place.startsWith('edge_logs.') && place.endsWith(':0'),
            ),
          5_000,
          'the other partitions go on',
        );
        expect(performance.now() - round).toBeLessThan(5_000);
        expect(patient.face.hanging()).toBe(1);
      }
      expect(await world.behind(patient.clickhouse)).toEqual([`${world.topicOf('edge_logs')}:0:0`]);
      patient.face.release();
      await world.finished(patient.clickhouse);
      await world.expectExact(patient.clickhouse);
    });

    test('hold up nobody when they are sixteen', { timeout: 120_000 }, async () => {
      world = await createWorld({ partitions: 4 });
      const hanging = ['edge_logs', 'auth_logs', 'storage_logs', 'realtime_logs'];
      const areBehind = async (): Promise<number> => {
        const behind = await world.behind(patient.clickhouse);
        return behind.every((place) => hanging.includes(place.split('.')[0]!)) ? behind.length : Number.NaN;
      };
      await start({ on: patient });
      await patient.face.inject({
        action: 'hang_after',
        match: `INSERT INTO \`(${hanging.join('|')})\``,
        times: 16,
      });
      await world.produce(Object.fromEntries(hanging.map((source) => [source, 80])));
      await waitFor(() => patient.face.hanging() === 16, 30_000, 'sixteen inserts hang');
      await world.produce({ postgres_logs: 160 });
      await waitFor(async () => (await areBehind()) === 16, 10_000, 'the other topic goes on');
      expect(patient.face.hanging()).toBe(16);
      patient.face.release();
      await world.finished(patient.clickhouse, 60_000);
      await world.expectExact(patient.clickhouse);
    });
  });

  test(
    'absent for half a minute and more than a session: membership kept, what is held bounded, everything written afterwards',
    { timeout: 120_000 },
    async () => {
      let accepted = 0;
      await start({
        settings: { BATCH_MAX_BYTES },
        accepted: (bytes) => {
          accepted += bytes;
        },
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
      /** Kills the server while a batch is in flight: the child neither hears nor sends anything in between. */
      const strike = async (isInFlight: () => Promise<boolean>, what: string): Promise<void> => {
        const stopInFlight = async (): Promise<boolean> => {
          if (!(await isInFlight())) return false;
          child.signal('SIGSTOP');
          const behind = await world.behind(own.clickhouse);
          if (behind.some((place) => place.startsWith('edge_logs.'))) return true;
          child.signal('SIGCONT');
          return false;
        };
        await underLoad(world, () => waitFor(stopInFlight, 20_000, what, 1));
        await own.face.kill();
        child.signal('SIGCONT');
        await own.restart();
      };
      const inserts = (): Promise<string> =>
        own.face.query("SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO `edge_logs`%'");
      await strike(async () => (await inserts()) !== '0', 'an insert runs');
      // it has stored some, and has not answered
      await own.face.inject({ action: 'hang_after', match: EDGE_INSERT, times: 2 });
      await strike(() => Promise.resolve(own.face.hanging() > 0), 'an insert has no answer');
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
              accepted(fetchedRecords(payload.batch).records.reduce((sum, record) => sum + record.bytes, 0));
              payload.resolveOffset(offset);
            },
          }),
      }),
  };
}
