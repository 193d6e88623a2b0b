import { afterEach, expect, test } from 'vitest';
import type { ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { createKafka, fetchedRecords, type Consumer } from '../../common/kafka/client.ts';
import { createLogger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { readinessOf } from '../../common/readiness.ts';
import { consumerCheck, startIngest } from '../../services/ingest/service.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { kafkaBrokers, produce } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { openFace } from './face-engine.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: while one raw table cannot be written, and its partitions have a backlog of many batches, the other topics
// are stored within seconds. What is held in memory stays bounded. Then the backlog is stored exactly once.

const PARTITIONS = 8;
const BATCH_MAX_BYTES = 2 * 1024 ** 2;
/** Eight batches, and what one more fetch brings. */
const HELD_AT_MOST = 8 * BATCH_MAX_BYTES + 4 * 1024 ** 2;
/** inserts fail at the first part that a table has */
const FAIL = 'ALTER TABLE edge_logs MODIFY SETTING parts_to_delay_insert = 0, parts_to_throw_insert = 1';
const RECOVER = 'ALTER TABLE edge_logs RESET SETTING parts_to_delay_insert, parts_to_throw_insert';

let close: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of close.toReversed()) await end();
  close = [];
});

test('one table that cannot be written holds up no other topic', { timeout: 180_000 }, async () => {
  const folder = temporaryFolder();
  const clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
  close.push(async () => {
    await clickhouse.close();
    folder.remove();
  });
  await migrate(clickhouse, testLogger);
  const events = await duringOutage(clickhouse, {
    begin: () => clickhouse.execute({ sql: FAIL }),
    end: () => clickhouse.execute({ sql: RECOVER }),
  });
  expect(events).toEqual(['inserts_stuck', 'inserts_resumed']);
});

test('inserts into one table of a server that get no answer hold up no other topic', { timeout: 180_000 }, async () => {
  // fewer than the inserts that would hang at a time: the table gets half of them
  const server = await openFace(600_000, 5);
  close.push(() => server.close());
  const { clickhouse, face } = server;
  const events = await duringOutage(clickhouse, {
    begin: () => face.inject({ action: 'hang', match: 'INSERT INTO `edge_logs`', times: 1_000 }),
    async end() {
      await face.inject();
      face.release();
    },
  });
  expect(events).toEqual(['inserts_stuck', 'inserts_resumed']);
});

interface Outage {
  begin(): Promise<unknown>;
  end(): Promise<unknown>;
}

/** Edge logs cannot be written during the outage. Returns what is logged of it. */
async function duringOutage(clickhouse: ClickHouse, outage: Outage): Promise<string[]> {
  const world = await createWorld({ partitions: PARTITIONS });
  const accepted = new Map<string, number>();
  const lines: string[] = [];
  const kafka = createKafka({
    brokers: kafkaBrokers(),
    clientId: 'stuck',
    logger: testLogger,
    maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
  });
  const ingest = await startIngest({
    clickhouse,
    kafka: { ...kafka, consumer: (config) => counting(kafka.consumer(config), accepted) },
    settings: { ...world.settings, BATCH_MAX_BYTES },
    logger: createLogger('info', { write: (line: string) => void lines.push(line) }),
    registry: createRegistry(),
    sessionTimeoutMs: 6_000,
  });
  close.push(() => ingest.stop());
  await world.produce({ edge_logs: 80, auth_logs: 80, postgres_logs: 80 });
  await world.finished(clickhouse);

  await outage.begin();
  const edge = world.topicOf('edge_logs');
  const before = accepted.get(edge)!;
  const held = (): number => accepted.get(edge)! - before;
  await produceBacklog(world, 'edge_logs');
  await waitFor(() => held() >= 4 * BATCH_MAX_BYTES, 30_000, 'the partitions that fail hold four batches');
  await produceBacklog(world, 'auth_logs');
  const othersGoOn = (withinMs: number): Promise<unknown> =>
    waitFor(
      async () => (await world.behind(clickhouse)).every((place) => place.startsWith(`${edge}:`)),
      withinMs,
      'the other topics are stored',
    );
  await othersGoOn(30_000);
  for (let i = 0; i < 5; i++) {
    await world.produce({ auth_logs: 40, postgres_logs: 40 });
    await othersGoOn(5_000);
  }
  expect(held()).toBeLessThan(HELD_AT_MOST);
  expect(JSON.stringify(await readinessOf({ consumer: consumerCheck(() => ingest) }))).toContain(
    `ok, waiting for inserts that fail or hang: ${edge} `,
  );

  await outage.end();
  await world.finished(clickhouse, 60_000);
  await world.expectExact(clickhouse);
  expect(ingest.stuck()).toEqual([]);
  return lines
    .map((line) => JSON.parse(line) as { msg: string; target?: string })
    .flatMap(({ msg, target }) => (target === edge ? [msg] : []));
}

/** 120 events of 40 kB for each partition: more than two batches. */
async function produceBacklog(world: World, source: 'edge_logs' | 'auth_logs'): Promise<void> {
  const value = JSON.stringify({ project: 'abc', event_message: 'x'.repeat(40_000) });
  for (let partition = 0; partition < PARTITIONS; partition++) {
    for (let sent = 0; sent < 120; sent += 20) {
      const records = Array.from({ length: 20 }, () => ({ topic: world.topicOf(source), partition, value }));
      const reports = await produce(records, { compression: 'none' });
      world.acknowledged(
        source,
        partition,
        reports.map(({ offset }) => Number(offset)),
        value,
        'row',
      );
    }
  }
}

/** A consumer that counts the bytes that lanes took, by topic. */
function counting(consumer: Consumer, accepted: Map<string, number>): Consumer {
  return {
    ...consumer,
    run: (config) =>
      consumer.run({
        ...config,
        eachBatch: (payload) =>
          config!.eachBatch!({
            ...payload,
            resolveOffset: (offset) => {
              const { records } = fetchedRecords(payload.batch);
              const bytes = records.reduce((sum, record) => sum + record.bytes, 0);
              accepted.set(payload.batch.topic, (accepted.get(payload.batch.topic) ?? 0) + bytes);
              payload.resolveOffset(offset);
            },
          }),
      }),
  };
}
