import { afterEach, beforeEach, expect, test } from 'vitest';
import { reconcile } from '../../services/ingest/operate/reconcile.ts';
import { confluent, schemaOf, writerOf } from '../harness/avro.ts';
import { temporaryFolder } from '../harness/clickhouse.ts';
import { deleteGroupOffsets, deleteRecordsBefore, produce } from '../harness/kafka.ts';
import { startRegistry, type TestRegistry } from '../harness/schema-registry.ts';
import { waitFor } from '../harness/wait-for.ts';
import { endIngestChildren, logged, startIngestChild, type At, type IngestChild } from './ingest-child.ts';
import { createWorld, type World } from './ledger.ts';

// Guarantee: a batch that was announced with a schema waits for that schema, alone, and is decided as it was announced.
// When Kafka has lost the messages that need it, the rest is stored, once.

const AVRO_EVENTS = 10;

let folder: ReturnType<typeof temporaryFolder>;
let registry: TestRegistry;
let world: World;
beforeEach(async () => {
  folder = temporaryFolder();
  registry = await startRegistry();
  world = await createWorld({ partitions: 1 });
});
afterEach(async () => {
  await endIngestChildren();
  await registry.stop();
  folder.remove();
});

const start = (env: Readonly<Record<string, string>> = {}, at?: At): IngestChild =>
  startIngestChild({ env: { ...world.env, DATA_DIR: folder.path, ...env }, sessionTimeoutMs: 3_000, at });
const withRegistry = (): Record<string, string> => ({ SCHEMA_REGISTRY_URL: registry.url });

/** Announces a batch of Avro events with as many in JSON behind them, of which nothing is stored. Returns its topic. */
async function announce(): Promise<string> {
  const topic = world.topicOf('edge_logs');
  const event = { project: 'p', event_message: 'm', timestamp: Date.now() * 1000 };
  const schema = schemaOf('edge_logs');
  const value = confluent(registry.register(schema), writerOf(schema)(event));
  await produce(Array.from({ length: AVRO_EVENTS }, () => ({ topic, partition: 0, value })));
  await world.produce({ edge_logs: 40 });
  const killed = start(withRegistry(), { step: 'after_intent', match: '^edge_logs' });
  expect(await killed.exited).toMatchObject({ signal: 'SIGKILL' });
  return topic;
}

/** The process waits, and stores what others than the batch need. */
async function expectWaiting(child: IngestChild, reason: string): Promise<void> {
  await waitFor(
    () => logged(child, 'registry_unavailable').some((line) => String(line['err']).includes(reason)),
    20_000,
    'the batch waits for its schema',
  );
  await world.produce({ function_edge_logs: 20 });
  const behind = [`${world.topicOf('edge_logs')}:0:0`];
  await waitFor(async () => String(await world.behind(child.reader)) === String(behind), 20_000, 'others go on');
  expect(await child.stop()).toMatchObject({ code: 0 });
}

test('a batch whose schema is deleted waits, and is stored without the messages that Kafka has lost since', async () => {
  const topic = await announce();
  registry.fault = { status: 404, body: '{"error_code":40403,"message":"Schema not found"}' };
  await expectWaiting(start(withRegistry()), 'no longer has schema id');
  await deleteRecordsBefore(topic, 0, BigInt(AVRO_EVENTS));
  const last = start(withRegistry());
  await world.finished(last.reader);
  await world.expectExact(last.reader, AVRO_EVENTS);
  expect(logged(last, 'batch_recovered')).toMatchObject([{ first: 0, announced: true }]);
  const { partitions } = await reconcile(last.reader, 90);
  expect(partitions.find((p) => p.topic === topic)).toMatchObject({ first: 0, gap: AVRO_EVENTS });
  expect(await last.stop()).toMatchObject({ code: 0 });
});

test("if its schema is gone for good, its messages become dead letters once the group's offsets are deleted", async () => {
  const topic = await announce();
  registry.fault = { status: 404, body: '{"error_code":40403,"message":"Schema not found"}' };
  await expectWaiting(start(withRegistry()), 'no longer has schema id');
  await deleteGroupOffsets(world.groupId, topic);
  const last = start(withRegistry());
  await world.finished(last.reader);
  expect((await reconcile(last.reader, 90)).ok).toBe(true);
  const { body } = await last.reader.read({
    sql: `SELECT toUInt32(count()) FROM dead_letters WHERE kafka_topic = '${topic}' AND reason = 'unknown_schema'`,
    format: 'TSV',
  });
  expect(body.toString().trim()).toBe(String(AVRO_EVENTS));
  expect(await last.stop()).toMatchObject({ code: 0 });
});

test('a batch waits, too, for the setting of the registry, and is decided as it was announced', async () => {
  const topic = await announce();
  await expectWaiting(start(), 'there is no SCHEMA_REGISTRY_URL');
  const last = start(withRegistry());
  await world.finished(last.reader);
  const { ok, partitions } = await reconcile(last.reader, 90);
  expect(ok).toBe(true);
  const { body } = await last.reader.read({
    sql: `SELECT toUInt32(count()) AS rows FROM edge_logs WHERE message LIKE '%"event_message":"m"%'`,
    format: 'TSV',
  });
  expect(body.toString().trim()).toBe(String(AVRO_EVENTS));
  expect(partitions.find((p) => p.topic === topic)).toMatchObject({ first: 0, gap: 0 });
  expect(await last.stop()).toMatchObject({ code: 0 });
});
