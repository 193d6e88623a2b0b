import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { fresh, select, type ClickHouse, type Reader } from '../../common/clickhouse/clickhouse.ts';
import { databaseOfAll } from '../../common/clickhouse/database.ts';
import { createRegistry } from '../../common/metrics.ts';
import { createBadShares, resumePartition } from '../../services/ingest/store/bad-share-pause.ts';
import { replayDeadLetter, listDeadLetters, readDeadLetter } from '../../services/ingest/operate/dead-letters.ts';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { createDecoders } from '../../services/ingest/service.ts';
import { chooseShard, createShardOf, findShard } from '../../services/ingest/store/shard.ts';
import { startRollup } from '../../services/rollup/service.ts';
import { CLUSTER } from '../harness/clickhouse-cluster.ts';
import { testLogger } from '../harness/clickhouse.ts';
import { openTestStore } from '../harness/ingest-store.ts';
import { produce } from '../harness/kafka.ts';
import { waitFor } from '../harness/wait-for.ts';
import { DATABASE, LOAD, PATIENCE_MS, useCluster } from '../cluster/use-cluster.ts';

// Guarantee: on two shards of two replicas everything of a partition is on one shard, which its first claim decides.
// Nothing is lost or doubled while a replica is killed or lags, every rollup equals its raw table, and reads see all
// shards. The servers are node 0 and 1 of the shard s1, 2 and 3 of s2.

const NAMES = ['s1', 's2'];

const on = useCluster({ shards: 2 });
let clickhouse: ClickHouse;

beforeAll(async () => {
  clickhouse = await on.clientAs('query', [0, 1, 2, 3]);
});

/** `topic partition` of what a node holds. */
async function placesOn(node: number): Promise<string[]> {
  const places = await on.cluster.nodes[node]!.server.query(
    `SELECT DISTINCT concat(kafka_topic, ' ', toString(kafka_partition)) AS place FROM (SELECT kafka_topic, kafka_partition FROM ${DATABASE}.stored_rows UNION ALL SELECT kafka_topic, kafka_partition FROM ${DATABASE}.dead_letters UNION ALL SELECT topic, partition FROM ${DATABASE}.batches) ORDER BY place`,
  );
  return places.split('\n').filter((place) => place !== '');
}

test('CLICKHOUSE_URL without the nodes of a shard, or with its shard alone, is refused', async () => {
  await expect(on.clientAs('query', [0, 1])).rejects.toMatchObject({
    name: 'StartError',
    message: expect.stringMatching(/has 2 shards, but .* have the macro shard = s1:/),
  });
});

test('what was claimed for a shard stays there; other partitions are spread', { timeout: 600_000 }, async () => {
  const claimed = on.world.topicOf('postgres_logs');
  // as a cluster claimed it that had the shard s1 alone
  for (const partition of [0, 1])
    await clickhouse.execute({
      sql: 'INSERT INTO partition_owners (topic, partition, epoch, consumer_group, shard) SELECT {topic:String}, {partition:UInt32}, 1, {group:String}, {shard:String}',
      params: { topic: claimed, partition, group: on.world.groupId, shard: 's1' },
    });
  const ingest = await on.ingestFrom(0, 1, 2, 3);
  await on.world.produce(LOAD);
  await on.expectExact();
  const held = [await placesOn(0), await placesOn(2)];
  expect(held[0]!.filter((place) => held[1]!.includes(place))).toEqual([]);
  for (const source of ['edge_logs', 'function_edge_logs', 'postgres_logs', 'auth_logs'] as const)
    for (const partition of [0, 1]) {
      const topic = on.world.topicOf(source);
      const shard = source === 'postgres_logs' ? 's1' : chooseShard(topic, partition, NAMES);
      expect(held[NAMES.indexOf(shard)], `${topic} ${partition}`).toContain(`${topic} ${partition}`);
    }
  // what would see or change one shard by chance
  await expect(select(fresh(clickhouse, ['batches']), 'SELECT 1')).rejects.toThrow('each shard');
  await expect(clickhouse.execute({ sql: "INSERT INTO batches (topic) SELECT 'x'" })).rejects.toThrow('each shard');
  await ingest.stop();
});

test(
  'kill -9 of a replica: reads go on, and so do the partitions of the other shard',
  { timeout: 600_000 },
  async () => {
    const query = await on.clientAs('query', [1, 0, 3, 2]);
    const ingest = await on.ingestFrom(1, 0, 3, 2);
    await on.world.produce(LOAD);
    await waitFor(async () => (await on.countOn(1, 'batches')) > 0, PATIENCE_MS, 'the node is written to');
    await on.world.produce(LOAD);
    await on.cluster.nodes[1]!.server.kill();
    const killedAt = performance.now();
    expect(await on.world.behind(query), 'batches under way at the kill').not.toEqual([]);
    for (let i = 0; i < 10; i++) {
      const [found] = await select<{ shards: number }>(
        query,
        'SELECT toUInt32(uniqExact(_shard_num)) AS shards FROM batches',
      );
      expect(found).toEqual({ shards: 2 });
      if (i === 0) expect(performance.now() - killedAt).toBeLessThan(5_000);
    }
    const ofOther = (place: string): boolean => {
      const [, topic, partition] = /^(.*):\d+:(\d+)$/.exec(place)!;
      return topic !== on.world.topicOf('postgres_logs') && chooseShard(topic!, Number(partition), NAMES) === 's2';
    };
    await waitFor(
      async () => !(await on.world.behind(query)).some(ofOther),
      PATIENCE_MS,
      'the partitions of the other shard go on',
    );
    await on.cluster.restart(1);
    await on.expectExact();
    await ingest.stop();
  },
);

test('a replica hangs: reads of its shard go on at the other one', { timeout: 600_000 }, async () => {
  const query = await on.clientAs('query', [0, 1, 2, 3]);
  const areAllSeen = async (): Promise<boolean> => {
    const seen = 'SELECT toUInt32(uniqExact(_shard_num)) AS shards FROM batches';
    const [found] = await select<{ shards: number }>(query, seen);
    return found!.shards === 2;
  };
  expect(await areAllSeen()).toBe(true);
  const { pid } = on.cluster.nodes[2]!.server;
  process.kill(pid, 'SIGSTOP');
  try {
    // the first read waits for it, five seconds on a quiet machine
    await waitFor(() => areAllSeen().catch(() => false), 20_000, 'a read by the other replica');
    const again = performance.now();
    expect(await areAllSeen()).toBe(true);
    expect(performance.now() - again).toBeLessThan(3_000);
  } finally {
    process.kill(pid, 'SIGCONT');
  }
});

test(
  'both replicas of a shard are lost: the partitions of the other shard go on, whatever backlog the lost one has',
  { timeout: 900_000 },
  async () => {
    const BATCH_MAX_BYTES = 1024 ** 2;
    const { nodes } = on.cluster;
    const ingest = await on.ingestWith({ BATCH_MAX_BYTES }, 0, 1, 2, 3);
    await on.world.produce(LOAD);
    await on.world.finished(clickhouse, PATIENCE_MS);
    // of all partitions on each shard; the first test claimed those of postgres_logs for s1
    const places = (['edge_logs', 'function_edge_logs', 'auth_logs'] as const).flatMap((source) =>
      [0, 1].map((partition) => {
        const topic = on.world.topicOf(source);
        return { source, topic, partition, shard: chooseShard(topic, partition, NAMES) };
      }),
    );
    for (const node of [0, 1]) await nodes[node]!.server.kill();
    const value = JSON.stringify({
      project: 'abc',
      metadata: { project_ref: 'abc' },
      event_message: 'x'.repeat(40_000),
    });
    for (const shard of NAMES)
      for (const { source, topic, partition } of places.filter((place) => place.shard === shard)) {
        // two MiB each: those of the lost shard together fill more than four batches
        const records = Array.from({ length: 52 }, () => ({ topic, partition, value }));
        const reports = await produce(records, { compression: 'none' });
        const offsets = reports.map(({ offset }) => Number(offset));
        on.world.acknowledged(source, partition, offsets, value, 'row');
      }
    // the table of all shards cannot be read now
    const ofNode: Reader = {
      read: async ({ sql, format }) => ({
        body: Buffer.from(
          await nodes[2]!.server.query(
            `${sql.replaceAll('FROM batches', `FROM ${DATABASE}.batches`)} FORMAT ${format}`,
          ),
        ),
        readRows: undefined,
        readBytes: undefined,
      }),
    };
    const ofOther = new Set(
      places.filter(({ shard }) => shard === 's2').map(({ topic, partition }) => `${topic}:0:${partition}`),
    );
    await waitFor(
      async () => (await on.world.behind(ofNode)).every((place) => !ofOther.has(place)),
      PATIENCE_MS,
      'the partitions of the other shard go on',
    );
    expect(on.log).toContainEqual(
      expect.objectContaining({ msg: 'inserts_stuck', target: expect.stringMatching(/ s1$/) }),
    );
    for (const node of [0, 1]) await on.cluster.restart(node);
    await on.expectExact();
    await ingest.stop();
  },
);

test('a replica lags behind while the partitions of its shard change their owner', { timeout: 600_000 }, async () => {
  const first = await on.ingestFrom(0, 1, 2, 3);
  await on.cluster.nodes[3]!.server.query('SYSTEM STOP FETCHES');
  try {
    await on.world.produce(LOAD);
    await on.world.finished(clickhouse, PATIENCE_MS);
    await first.stop();
    expect(await on.countOn(3, 'batches')).toBeLessThan(await on.countOn(2, 'batches'));
    for (let i = 0; i < 20; i++) {
      const twice = 'SELECT (SELECT count() FROM batches) AS one, (SELECT sum(1) FROM batches) AS other';
      const [found] = await select<{ one: number; other: number }>(clickhouse, twice);
      expect(found!.one, 'a statement reads a shard from one replica').toBe(found!.other);
    }
    const second = await on.ingestFrom(1, 0, 3, 2);
    await on.world.produce(LOAD);
    await on.world.finished(clickhouse, PATIENCE_MS);
    expect(on.log).toContainEqual(expect.objectContaining({ msg: 'clickhouse_node_changed', reason: 'REPLICA_LAGS' }));
    await second.stop();
  } finally {
    await on.cluster.nodes[3]!.server.query('SYSTEM START FETCHES');
  }
  await on.expectExact();
});

test('partitions of both shards are paused, which any node says, and go on by a command', async () => {
  const ingest = await on.clientAs('ingest', [0, 1, 2, 3]);
  const shardOf = createShardOf(ingest);
  const badShares = createBadShares(ingest, shardOf, { percent: 50, window: 1, pauseSeconds: 600 });
  const topic = 'paused';
  for (const partition of [0, 1]) {
    const records = [{ offset: 0, time: Date.now(), key: null, headers: [], value: Buffer.from('no event') }];
    await openTestStore(ingest, { source: 'edge_logs', topic, partition }).writeBatch({ records });
    const badShare = badShares(topic, partition);
    expect(await badShare.pauses(0, 1)).toBe(true);
    expect(await badShare.paused()).toMatchObject({ next: 1, bad: 1 });
    await resumePartition(ingest, topic, partition);
    expect(await badShare.paused()).toBeUndefined();
  }
  expect(new Set([shardOf.nameOf(topic, 0), shardOf.nameOf(topic, 1)])).toEqual(new Set(NAMES));
});

test('a dead letter is replayed on the shard of its partition', { timeout: 600_000 }, async () => {
  const ingest = await on.clientAs('ingest', [0, 1, 2, 3]);
  const topic = 'replayed';
  const now = Date.now();
  for (const partition of [0, 1]) {
    const store = openTestStore(ingest, { source: 'auth_logs', topic, partition, retentionDays: 1 });
    await store.claim(1);
    const timestamp = (now - 5 * 86_400_000) * 1000;
    const value = Buffer.from(JSON.stringify({ project: 'p', timestamp }));
    await store.writeBatch({ evaluatedAt: now, records: [{ offset: 0, time: now, key: null, headers: [], value }] });
  }
  const letters = await listDeadLetters(clickhouse, { topic, open: true });
  expect(letters.map((l) => [l.partition, l.reason])).toEqual([
    [0, 'timestamp_out_of_range'],
    [1, 'timestamp_out_of_range'],
  ]);
  for (const letter of letters) {
    const content = (await readDeadLetter(clickhouse, letter))!;
    const options = {
      clickhouse: ingest,
      decoders: createDecoders(on.world.settings, Date.now),
      retentionDays: 90,
      maxEventBytes: 1_000_000,
      rawAvroTopics: [],
      clock: Date.now,
    };
    expect(await replayDeadLetter(options, content)).toBe('stored');
    expect(await replayDeadLetter(options, content)).toBe('stored');
    const there = await findShard(ingest, topic, letter.partition);
    const where = `kafka_topic = '${topic}' AND kafka_partition = ${letter.partition}`;
    expect(
      await select(fresh(there, ['auth_logs']), `SELECT toUInt32(count()) AS n FROM auth_logs WHERE ${where}`),
    ).toEqual([{ n: 1 }]);
  }
  expect(await listDeadLetters(clickhouse, { topic, open: true })).toEqual([]);
  const { ok, faults, partitions } = await reconcile(clickhouse, 90);
  expect({ ok, faults }).toEqual({ ok: true, faults: [] });
  expect(partitions.filter((p) => p.topic === topic).map((p) => [p.partition, p.stored, p.replayed])).toEqual(
    expect.arrayContaining([
      [0, 1, 1],
      [1, 1, 1],
    ]),
  );
});

test(
  'a start creates what reads all shards, where it is absent as after the second shard',
  { timeout: 600_000 },
  async () => {
    const over = databaseOfAll(DATABASE);
    for (const { server } of on.cluster.nodes) {
      await server.query(`DROP DATABASE ${over} SYNC`);
      await server.query(`CREATE DATABASE ${over}`);
    }
    const another = await startRollup({
      clickhouse: await on.clientAs('rollup', [2, 3, 0, 1]),
      settings: on.world.settings,
      logger: testLogger,
      registry: createRegistry(),
    });
    await another.stop();
    const [found] = await select<{ shards: number }>(
      clickhouse,
      'SELECT toUInt32(uniqExact(_shard_num)) AS shards FROM api_requests_v1',
    );
    expect(found).toEqual({ shards: 2 });
  },
);

// the last one: whoever has used the first node refuses afterwards
test('a process refuses its statements once the cluster has another number of shards', async () => {
  const client = await on.clientAs('query', [0, 1, 2, 3]);
  const file = join(on.folder, 's1-r1-0', 'server-25.8', 'config.xml');
  const config = readFileSync(file, 'utf8');
  const changed = config.replace(/(<remote_servers .*?<\/shard>)<shard>.*?<\/shard>/s, '$1');
  expect(changed.length).toBeLessThan(config.length);
  writeFileSync(file, changed);
  await on.cluster.nodes[0]!.server.query('SYSTEM RELOAD CONFIG');
  const refused = await waitFor(
    async () =>
      await select(client, 'SELECT 1').then(
        () => undefined,
        (error: unknown) => error,
      ),
    60_000,
    'the client has noticed',
  );
  expect(refused).toMatchObject({ message: `the cluster ${CLUSTER} has 1 shards now, and had 2: restart the process` });
  await expect(client.shards![1]!.insertRows({ table: 'batches', columns: [], pieces: [] })).rejects.toBe(refused);
});
