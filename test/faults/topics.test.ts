import { cpSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { select, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { openEmbedded } from '../../common/clickhouse/embedded/embedded.ts';
import { migrate } from '../../common/clickhouse/migrations.ts';
import { createKafka, type Consumer } from '../../common/kafka/client.ts';
import { createLogger, type Logger } from '../../common/logger.ts';
import { createRegistry } from '../../common/metrics.ts';
import { startIngest, type RunningIngest } from '../../services/ingest/service.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { temporaryFolder, testLogger } from '../harness/clickhouse.ts';
import { oddlyCompressed, withCodec } from '../harness/codecs.ts';
import {
  addPartitions,
  compressions,
  createTopic,
  deleteGroup,
  deleteRecordsBefore,
  deleteTopic,
  kafkaBrokers,
  produce,
  readAll,
  setGroupOffsets,
  testKafka,
} from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: what happens to topics, groups and the store's own past does not change the account: the ledger says where
// a partition goes on. Messages that Kafka still has are stored once; offsets that it has no longer are a recorded gap;
// a topic made anew is a new life of it, read from its start; ClickHouse set back to a backup gets again what Kafka
// still has.

const SESSION_TIMEOUT_MS = 6_000;
/** A client that misses a topic for so long crashes; it joins again once the topic is back, milliseconds. */
const CLIENT_CRASH_MS = 22_000;

/** New partitions are found in a fifth of the time that ingest asks for, which is 10 s. */
const soonerMetadata = ({ metadataMaxAge }: { metadataMaxAge?: number }): { metadataMaxAge: number } => ({
  metadataMaxAge: metadataMaxAge! / 5,
});

/** A logger, and a function that returns what it was told of an event. */
function listeningLogger(level: 'info' | 'error') {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string): void => void lines.push(JSON.parse(line) as Record<string, unknown>);
  const logged = (event: string): Record<string, unknown>[] => lines.filter((l) => l['msg'] === event);
  return { logger: createLogger(level, { write }), logged };
}

/** What kafkajs reads of a broker's answer. */
interface Metadata {
  readonly topicMetadata: { readonly topic: string; readonly partitionMetadata: { readonly partitionId: number }[] }[];
}

describe('topics, groups, backups', () => {
  const folder = temporaryFolder();
  let clickhouse: ClickHouse;
  let ingest: RunningIngest | undefined;

  const open = async (): Promise<void> => {
    clickhouse = await openEmbedded({ dataDir: folder.path, logger: testLogger });
    await migrate(clickhouse, testLogger);
  };
  beforeAll(open);
  afterAll(async () => {
    await clickhouse.close();
    folder.remove();
  });
  afterEach(stop);

  async function start(
    world: World,
    groupId = world.groupId,
    {
      ofKafka = testLogger,
      ofIngest = testLogger,
      onSeek = () => {},
    }: { ofKafka?: Logger; ofIngest?: Logger; onSeek?: Consumer['seek'] } = {},
  ): Promise<void> {
    const kafka = createKafka({
      brokers: kafkaBrokers(),
      clientId: 'faults',
      logger: ofKafka,
      maxDecompressedBytes: world.settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    });
    ingest = await startIngest({
      clickhouse,
      kafka: {
        ...kafka,
        consumer: (config) => {
          const consumer = kafka.consumer({ ...config, ...soonerMetadata(config) });
          const seek: Consumer['seek'] = (to) => {
            onSeek(to);
            consumer.seek(to);
          };
          return { ...consumer, seek };
        },
      },
      settings: { ...world.settings, KAFKA_GROUP_ID: groupId },
      logger: ofIngest,
      registry: createRegistry(),
      sessionTimeoutMs: SESSION_TIMEOUT_MS,
    });
  }

  async function stop(): Promise<void> {
    await ingest?.stop();
    ingest = undefined;
  }

  /** `gap`: offsets that Kafka lost before they were taken */
  async function expectFinished(world: World, gap = 0): Promise<void> {
    await world.finished(clickhouse);
    await world.expectExact(clickhouse, gap);
  }

  async function gapOf(world: World): Promise<number> {
    const { partitions } = await reconcile(clickhouse, world.settings.RAW_RETENTION_DAYS);
    return partitions.filter((p) => p.topic.endsWith(world.groupId)).reduce((sum, p) => sum + p.gap, 0);
  }

  test('a topic that is missing at start is made; partitions added while running are taken from their start', async () => {
    const world = await createWorld({ missing: ['storage_logs'] });
    await start(world);
    await world.produce({ storage_logs: 100, edge_logs: 100 });
    await addPartitions(world.topicOf('storage_logs'), 4);
    await world.produce({ storage_logs: 400 }, { partitions: 4 });
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  // Kafka's client either meets the shorter log (it is told that its offset is out of range), or misses the topic for so
  // long that it crashes and joins the group again; the takeover meets the shorter log then.
  test('a topic deleted while running and made anew is read from its start, also where it is longer than before', async () => {
    const world = await createWorld();
    const topic = world.topicOf('auth_logs');
    const { logger, logged } = listeningLogger('error');
    let retaken: number[] = [];
    const onSeek: Consumer['seek'] = (to) => {
      if (to.topic === topic && to.offset === '0') retaken.push(to.partition);
    };
    await start(world, world.groupId, { ofKafka: logger, onSeek });
    for (const [count, missingMs] of [
      [300, 0],
      [100, CLIENT_CRASH_MS],
      [500, 0],
    ] as const) {
      await world.produce({ auth_logs: count, edge_logs: 50 });
      await world.finished(clickhouse);
      const before = logged('kafka_client').length;
      await deleteTopic(topic);
      await sleep(missingMs);
      retaken = [];
      await createTopic('', { partitions: 2 }, topic);
      world.madeAnew('auth_logs');
      // before it grows past our position again, where nobody can tell it from the old one (Limits in docs/delivery.md)
      const isReset = (line: Record<string, unknown>): boolean =>
        String(line['detail']).startsWith('Offset out of range');
      const met = (partition: number): boolean =>
        retaken.includes(partition) ||
        logged('kafka_client')
          .slice(before)
          .some((line) => isReset(line) && line['topic'] === topic && line['partition'] === partition);
      await waitFor(() => met(0) && met(1), 20_000, 'the new, shorter log of both partitions is met');
      const crashes = logged('kafka_client')
        .slice(before)
        .filter(({ detail }) => String(detail).startsWith('Crash'));
      if (missingMs > 0) {
        expect(crashes.length).toBeGreaterThan(0);
        expect(crashes.length, 'crashes are paced').toBeLessThanOrEqual(missingMs / 2_000);
      }
    }
    await world.produce({ auth_logs: 700, edge_logs: 50 });
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('a topic deleted and made anew while stopped is read from its start, shorter or longer than before', async () => {
    const world = await createWorld();
    for (const count of [200, 100, 600]) {
      await world.produce({ auth_logs: count });
      await start(world);
      await world.finished(clickhouse);
      await stop();
      const topic = world.topicOf('auth_logs');
      await deleteTopic(topic);
      await createTopic('', { partitions: 2 }, topic);
      world.madeAnew('auth_logs');
    }
    await world.produce({ auth_logs: 50 });
    await start(world);
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('a log that comes back without its end, as after an unclean election, is stored once', async () => {
    const world = await createWorld();
    const topic = world.topicOf('auth_logs');
    await start(world);
    // several batches of each partition: the log ends inside what the ledger knows, and inside a batch
    for (let i = 0; i < 3; i++) {
      await world.produce({ auth_logs: 200 });
      await world.finished(clickhouse);
    }
    await stop();
    const before = await readAll(topic);
    expect(before.length).toBe(600);
    await deleteTopic(topic);
    await createTopic('', { partitions: 2 }, topic);
    await produce(
      before
        .filter(({ offset }) => offset < 150n)
        .map(({ partition, message: { key, value, time } }) => ({ topic, partition, key, value, timestamp: time })),
    );
    // what comes now stands at offsets that the ledger has, in the log's next life
    world.madeAnew('auth_logs');
    await world.produce({ auth_logs: 100, edge_logs: 50 });
    await start(world);
    await expectFinished(world);
    const lives = await select<{ incarnation: number; first: number }>(
      clickhouse,
      'SELECT incarnation, toFloat64(min(first)) AS first FROM batches WHERE topic = {topic:String} GROUP BY incarnation ORDER BY incarnation',
      { topic },
    );
    expect(lives).toEqual([
      { incarnation: 0, first: 0 },
      { incarnation: 1, first: 150 },
    ]);
    expect(await gapOf(world)).toBe(0);
  });

  test('offsets that Kafka no longer has are a recorded gap', async () => {
    const world = await createWorld();
    await world.produce({ edge_logs: 200 });
    await start(world);
    await expectFinished(world);
    await stop();
    await world.produce({ edge_logs: 400 });
    await deleteRecordsBefore(world.topicOf('edge_logs'), 0, 150n);
    world.forget('edge_logs', 0, (offset) => offset >= 100 && offset < 150);
    await world.produce({ edge_logs: 20 });
    await start(world);
    await expectFinished(world, 50);
    expect(await gapOf(world)).toBe(50);
  });

  test('a record batch that nobody can read stops its partition, until records are deleted up to its end', async () => {
    const world = await createWorld();
    const topic = world.topicOf('edge_logs');
    await world.produce({ edge_logs: 100 });
    // of a compressed record the broker (4.1) reads the fields, and does not compare them with its length
    const withWrongLength = (body: Buffer): Buffer => Buffer.concat([Buffer.of(body[0]! + 2), body.subarray(1)]);
    await withCodec(
      'gzip',
      (body) => gzipSync(withWrongLength(body)),
      () => produce([{ topic, partition: 0, value: '{}' }], { compression: 'gzip' }),
    );
    await world.produce({ edge_logs: 100 });
    const { logger, logged } = listeningLogger('error');
    await start(world, world.groupId, { ofKafka: logger });
    const line = await waitFor(() => logged('record_batch_unreadable')[0], 20_000, 'the batch is named in the log');
    expect(line).toMatchObject({ topic, partition: 0, offset: 50, lastOffset: 50 });
    const before = 'SELECT 1 FROM batches WHERE topic = {topic:String} AND partition = 0 AND last = 49';
    await waitFor(
      async () => (await select(clickhouse, before, { topic })).length === 1,
      20_000,
      'what stands before it is stored',
    );
    await waitFor(async () => (await world.behind(clickhouse)).length === 1, 20_000, 'so are the other partitions');
    expect(await world.behind(clickhouse)).toEqual([`${topic}:0:0`]);
    await deleteRecordsBefore(topic, 0, BigInt(Number(line['lastOffset']) + 1));
    await expectFinished(world, 1);
    expect(await gapOf(world)).toBe(1);
  });

  test('the group deleted, its offsets set to the start or to the end, another group: nothing is lost or doubled', async () => {
    const world = await createWorld();
    const changes: readonly (() => Promise<unknown>)[] = [
      () => deleteGroup(world.groupId),
      () =>
        setGroupOffsets(world.groupId, world.topicOf('edge_logs'), [
          { partition: 0, offset: 0n },
          { partition: 1, offset: 0n },
        ]),
      () =>
        setGroupOffsets(world.groupId, world.topicOf('edge_logs'), [
          { partition: 0, offset: -1n },
          { partition: 1, offset: -1n },
        ]),
    ];
    for (const change of changes) {
      await world.produce({ edge_logs: 200, function_edge_logs: 50 });
      await start(world);
      await world.finished(clickhouse);
      await stop();
      await world.produce({ edge_logs: 200, function_edge_logs: 50 });
      await change();
      await start(world);
      await world.finished(clickhouse);
      await stop();
    }
    await world.produce({ edge_logs: 200, function_edge_logs: 50 });
    await start(world, `${world.groupId}-other`);
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('ClickHouse set back to a backup gets again what came after it', async () => {
    const world = await createWorld();
    const backup = temporaryFolder();
    try {
      await world.produce({ edge_logs: 300, function_edge_logs: 100 });
      await start(world);
      await expectFinished(world);
      await stop();
      await clickhouse.close();
      cpSync(folder.path, backup.path, { recursive: true, verbatimSymlinks: true });
      await open();
      await start(world);
      await world.produce({ edge_logs: 300, function_edge_logs: 100, auth_logs: 50 });
      await expectFinished(world);
      await stop();
      await clickhouse.close();
      rmSync(folder.path, { recursive: true });
      cpSync(backup.path, folder.path, { recursive: true, verbatimSymlinks: true });
      await open();
      await world.produce({ edge_logs: 100 });
      await start(world);
      await expectFinished(world);
      expect(await gapOf(world)).toBe(0);
    } finally {
      backup.remove();
    }
  });

  test('the clock jumps: forth, back behind what was judged before, and home', async () => {
    const world = await createWorld();
    const now = Date.now;
    try {
      await start(world);
      for (const shift of [0, 30 * 60_000, -40 * 60_000, 86_400_000, 0]) {
        Date.now = () => now() + shift;
        // the group drops a member that sends no heartbeats
        if (shift < 0) await sleep(SESSION_TIMEOUT_MS + 1_000);
        // the broker takes no record from tomorrow
        Date.now = now;
        await world.produce({ edge_logs: 200, function_edge_logs: 50 });
        if (shift < 0) {
          await addPartitions(world.topicOf('realtime_logs'), 3);
          await world.produce({ realtime_logs: 60 }, { partitions: 3 });
        }
        Date.now = () => now() + shift;
        await world.finished(clickhouse);
      }
      await expectFinished(world);
      await stop();
    } finally {
      Date.now = now;
    }
    await world.produce({ edge_logs: 200 });
    await start(world);
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('a partition without a leader stops no other, and is read once it has one', async () => {
    const world = await createWorld();
    const topic = world.topicOf('auth_logs');
    const definition = createRequire(import.meta.url)('kafkajs/src/protocol/requests/metadata/index.js') as {
      protocol: (version: object) => (parameters: object) => { response: { decode(raw: Buffer): Promise<Metadata> } };
    };
    const { protocol } = definition;
    const leaderless = { partitionErrorCode: 5, leader: -1 };
    let reads = 0;
    // as a broker says it while every replica of the partition is away
    definition.protocol = (version) => (parameters) => {
      const { response, ...request } = protocol(version)(parameters);
      const decode = async (raw: Buffer): Promise<Metadata> => {
        const metadata = await response.decode(raw);
        const { partitionMetadata = [] } = metadata.topicMetadata.find((of) => of.topic === topic) ?? {};
        for (const partition of partitionMetadata)
          if (partition.partitionId === 1) Object.assign(partition, leaderless);
        reads++;
        return metadata;
      };
      return { ...request, response: { ...response, decode } };
    };
    try {
      // it is away at the start, and where a running consumer reads metadata again
      for (const isNew of [true, false]) {
        if (isNew) await start(world);
        await world.produce({ edge_logs: 100 });
        await world.produce({ auth_logs: 50 }, { partitions: 1 });
        await expectFinished(world);
        const before = reads;
        await waitFor(() => reads > before + 3, 20_000, 'metadata is read again');
      }
      expect(ingest!.isJoined()).toBe(true);
      expect(ingest!.taking()).toEqual([`${topic} 1`]);
    } finally {
      definition.protocol = protocol;
    }
    await world.produce({ auth_logs: 100 });
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('every codec, and what producers may make of it', async () => {
    const world = await createWorld();
    await start(world);
    for (const compression of compressions)
      await world.produce({ edge_logs: 300, function_edge_logs: 100 }, { compression });
    for (const [, codec, pack] of oddlyCompressed)
      await withCodec(codec, pack, () =>
        world.produce({ edge_logs: 60, function_edge_logs: 20 }, { compression: codec }),
      );
    await expectFinished(world);
    expect(await gapOf(world)).toBe(0);
  });

  test('control records, aborted transactions and offsets that compaction emptied are skipped and counted', async () => {
    const world = await createWorld({ missing: ['realtime_logs'] });
    const topic = await createTopic(
      '',
      {
        partitions: 1,
        config: {
          'cleanup.policy': 'compact',
          'segment.ms': '100',
          'min.cleanable.dirty.ratio': '0.01',
          'max.compaction.lag.ms': '100',
          'delete.retention.ms': '0',
        },
      },
      world.topicOf('realtime_logs'),
    );
    const producer = testKafka().producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true });
    await producer.connect();
    let last: number[] = [];
    try {
      for (const isAborted of [false, true, false, true, true, false, true]) {
        const transaction = await producer.transaction();
        const [report] = await transaction.send({
          topic,
          messages: Array.from({ length: 20 }, (_, i) => ({ key: `k${i}`, value: '[]' })),
        });
        if (isAborted) await transaction.abort();
        else await transaction.commit();
        if (!isAborted) last = Array.from({ length: 20 }, (_, i) => Number(report!.baseOffset) + i);
      }
    } finally {
      await producer.disconnect();
    }
    // of every key the last committed record is left; a segment is compacted when another one follows it
    let rolls = 0;
    await waitFor(
      async () => {
        const [report] = await produce([{ topic, key: `segment ${rolls++}`, value: '[]' }]);
        world.acknowledged('realtime_logs', 0, [Number(report!.offset)], '[]', 'not_an_event');
        const left = (await readAll(topic)).flatMap(({ offset, message }) =>
          message.key?.toString().startsWith('k') === true ? [Number(offset)] : [],
        );
        return left.length === last.length;
      },
      55_000,
      'the log is compacted',
    );
    world.acknowledged('realtime_logs', 0, last, '[]', 'not_an_event');
    await start(world);
    await world.produce({ edge_logs: 100 });
    await expectFinished(world);
    const { partitions } = await reconcile(clickhouse, world.settings.RAW_RETENTION_DAYS);
    const account = partitions.find((p) => p.topic === topic)!;
    expect(account).toMatchObject({ first: 0, stored: 0, dead_lettered: 20 + rolls, gap: 0 });
    expect(account.skipped).toBe(account.consumed - 20 - rolls);
    expect(account.skipped).toBeGreaterThanOrEqual(2 * 20 + 4 * 20 + 7 - 1);
  });
});
