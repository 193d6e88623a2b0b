import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import { readSettings } from '../../common/config/settings.ts';
import {
  CompressionTypes,
  createKafka,
  fetchedRecords,
  type Admin,
  type FetchedRecord,
  type KafkaClient,
} from '../../common/kafka/client.ts';
import { findJava, kafkaJars } from '../../common/kafka/local-broker/java.ts';
import {
  endBroker,
  freePort,
  leftRunning,
  startLocalBroker,
  type LocalBroker,
} from '../../common/kafka/local-broker/local-broker.ts';
import type { MoreListeners } from '../../common/kafka/local-broker/server-properties.ts';
import { createLogger } from '../../common/logger.ts';
import { installCodecs } from './codecs.ts';
import { waitFor } from './wait-for.ts';

type Compression = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';
export const compressions: readonly Compression[] = ['none', 'gzip', 'snappy', 'lz4', 'zstd'];

export interface TestRecord {
  readonly topic: string;
  /** absent: by the producer's own partitioner */
  readonly partition?: number;
  readonly key?: Buffer | string | null;
  readonly value: Buffer | string | null;
  readonly headers?: readonly (readonly [name: string, value: Buffer | string | null])[];
  /** milliseconds */
  readonly timestamp?: number;
}

/** What the broker acknowledged: expected offsets come from here and are never computed. */
export interface DeliveryReport {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
}

/** Largest record batch that tests decompress, bytes. */
const MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024;

const logger = createLogger(process.env['TEST_LOG_LEVEL'] ?? 'error');

/** The broker of this run. */
export function kafkaBrokers(): readonly string[] {
  return inject('kafkaBrokers');
}

export function testKafka(
  brokers: readonly string[] = kafkaBrokers(),
  maxDecompressedBytes: number = MAX_DECOMPRESSED_BYTES,
): KafkaClient {
  return createKafka({ brokers, clientId: 'test', logger, maxDecompressedBytes });
}

/** Names never come twice, also not on a broker that outlives the run. */
export function uniqueName(prefix: string): string {
  return `${prefix}-${randomBytes(6).toString('hex')}`;
}

/** Runs admin operations with a connection of their own. */
export async function withAdmin<T>(operation: (admin: Admin) => Promise<T>, brokers?: readonly string[]): Promise<T> {
  const admin = testKafka(brokers).admin();
  await admin.connect();
  try {
    return await operation(admin);
  } finally {
    await admin.disconnect();
  }
}

interface TopicOptions {
  readonly partitions?: number;
  /** for instance { 'cleanup.policy': 'compact' } */
  readonly config?: Readonly<Record<string, string>>;
  readonly brokers?: readonly string[];
}

/** Makes a topic with a unique name, or under exactly `name`, and gives its name. */
export async function createTopic(
  prefix: string,
  { partitions = 1, config = {}, brokers }: TopicOptions = {},
  name: string = uniqueName(prefix),
): Promise<string> {
  const configEntries = Object.entries(config).map(([key, value]) => ({ name: key, value }));
  await withAdmin(async (admin) => {
    const topic = { topic: name, numPartitions: partitions, replicationFactor: 1, configEntries };
    await admin.createTopics({ topics: [topic], waitForLeaders: false });
    // kafkajs waits for leaders itself, but ends with an error while the broker does not know the topic at all
    await leadersAnswer(admin, name, partitions);
  }, brokers);
  return name;
}

/**
 * Waits until every partition has a leader that answers. If one answers and another does not yet, kafkajs sends a
 * producer's whole request twice: 8 of 60 times on a busy machine.
 */
async function leadersAnswer(admin: Admin, topic: string, partitions: number): Promise<void> {
  await waitFor(
    async () =>
      (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]!.partitions.filter((p) => p.leader >= 0)
        .length === partitions && (await admin.fetchTopicOffsets(topic)).length === partitions,
    10_000,
    `${topic} has leaders that answer`,
  );
}

/** Deletes a topic and waits until the broker no longer knows it. */
export async function deleteTopic(topic: string, brokers?: readonly string[]): Promise<void> {
  await withAdmin(async (admin) => {
    await admin.deleteTopics({ topics: [topic] });
    await waitFor(async () => !(await admin.listTopics()).includes(topic), 10_000, `${topic} is deleted`);
  }, brokers);
}

export async function addPartitions(topic: string, count: number, brokers?: readonly string[]): Promise<void> {
  await withAdmin(async (admin) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count }] });
    await leadersAnswer(admin, topic, count);
  }, brokers);
}

/** Deletes the records before an offset, as retention does. */
export async function deleteRecordsBefore(
  topic: string,
  partition: number,
  offset: bigint,
  brokers?: readonly string[],
): Promise<void> {
  await withAdmin(async (admin) => {
    // kafkajs's deleteTopicRecords needs the topic's metadata and does not load it
    await admin.fetchTopicOffsets(topic);
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] });
  }, brokers);
}

/**
 * Sets a group's offsets as an operator would; the group must have no members. An offset of -1 is the end. It does what
 * setOffsets of kafkajs's admin does, which waits 5 s for a fetch.
 */
export async function setGroupOffsets(
  groupId: string,
  topic: string,
  offsets: readonly { readonly partition: number; readonly offset: bigint }[],
  brokers?: readonly string[],
): Promise<void> {
  await withAdmin(async (admin) => {
    const { members, state } = (await admin.describeGroups([groupId])).groups[0]!;
    if (members.length > 0) throw new Error(`the group ${groupId} has members (${state})`);
  }, brokers);
  const consumer = testKafka(brokers).consumer({ groupId, maxWaitTimeInMs: () => 100 });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    // seek commits, right before the first fetch
    const fetched = new Promise<void>((resolve) => {
      consumer.on(consumer.events.FETCH, () => resolve());
    });
    const running = consumer.run({ eachBatchAutoResolve: false, eachBatch: () => Promise.resolve() });
    consumer.pause([{ topic }]);
    for (const { partition, offset } of offsets) consumer.seek({ topic, partition, offset: String(offset) });
    await running;
    await fetched;
  } finally {
    await consumer.disconnect();
  }
}

/** Deletes a group; waits until its members have left. */
export async function deleteGroup(groupId: string, brokers?: readonly string[]): Promise<void> {
  await withAdmin(async (admin) => {
    await waitFor(
      async () => (await admin.describeGroups([groupId])).groups[0]?.members.length === 0,
      30_000,
      `the group ${groupId} is empty`,
    );
    await admin.deleteGroups([groupId]);
  }, brokers);
}

export interface ProduceOptions {
  readonly compression?: Compression;
  readonly brokers?: readonly string[];
}

const kafkajsTypes = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

installCodecs();

/**
 * Produces with kafkajs: one record batch per partition. Records without a partition go to partition 0. Reports in the
 * order of the records.
 */
export async function produce(
  records: readonly TestRecord[],
  { compression = 'none', brokers }: ProduceOptions = {},
): Promise<DeliveryReport[]> {
  const producer = testKafka(brokers).producer();
  await producer.connect();
  try {
    const byTopic = Map.groupBy(records, (record) => record.topic);
    const answers = await producer.sendBatch({
      compression: kafkajsTypes[compression],
      topicMessages: [...byTopic].map(([topic, ofTopic]) => ({
        topic,
        messages: ofTopic.map(({ partition = 0, key = null, value, headers = [], timestamp }) => ({
          partition,
          key,
          value,
          headers: kafkajsHeaders(headers),
          ...(timestamp === undefined ? {} : { timestamp: String(timestamp) }),
        })),
      })),
    });
    const next = new Map(
      answers.map(({ topicName, partition, baseOffset }) => [`${topicName}:${partition}`, BigInt(baseOffset ?? -1)]),
    );
    return records.map(({ topic, partition = 0 }) => {
      const place = `${topic}:${partition}`;
      const offset = next.get(place);
      if (offset === undefined || offset < 0n) throw new Error(`no acknowledgement for ${place}`);
      next.set(place, offset + 1n);
      return { topic, partition, offset };
    });
  } finally {
    await producer.disconnect();
  }
}

function kafkajsHeaders(headers: NonNullable<TestRecord['headers']>): Record<string, (Buffer | string)[]> {
  const result: Record<string, (Buffer | string)[]> = {};
  for (const [name, value] of headers) (result[name] ??= []).push(value ?? '');
  return result;
}

/**
 * Produces with librdkafka (Python's confluent-kafka), as most producers outside Java do. oneBatch: all records of a
 * partition in one record batch, as far as Kafka allows.
 */
export async function produceWithLibrdkafka(
  records: readonly TestRecord[],
  {
    compression = 'none',
    brokers = kafkaBrokers(),
    oneBatch = false,
  }: ProduceOptions & { readonly oneBatch?: boolean } = {},
): Promise<DeliveryReport[]> {
  const base64 = (bytes: Buffer | string | null | undefined): string | null =>
    bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64');
  const lines = records.map(({ headers = [], key, value, ...rest }) =>
    JSON.stringify({
      ...rest,
      key: base64(key),
      value: base64(value),
      headers: headers.map(([name, bytes]) => [name, base64(bytes)]),
    }),
  );
  const script = fileURLToPath(new URL('librdkafka-produce.py', import.meta.url));
  const output = await pipe(
    await python(),
    [script, brokers.join(','), compression, ...(oneBatch ? ['one-batch'] : [])],
    lines.join('\n'),
  );
  return output
    .trim()
    .split('\n')
    .map((line) => {
      const { topic, partition, offset } = JSON.parse(line) as { topic: string; partition: number; offset: string };
      return { topic, partition, offset: BigInt(offset) };
    });
}

type TransactionStep =
  | { readonly transaction?: string; readonly value: string }
  | { readonly commit: string }
  | { readonly abort: string };

/**
 * Produces on partition 0, in that order, in as many transactions at once as are named; a step without a name is an
 * ordinary record.
 */
export async function produceInTransactions(
  topic: string,
  steps: readonly TransactionStep[],
  brokers: readonly string[] = kafkaBrokers(),
): Promise<void> {
  const script = fileURLToPath(new URL('librdkafka-transactions.py', import.meta.url));
  await pipe(await python(), [script, brokers.join(','), topic], steps.map((step) => JSON.stringify(step)).join('\n'));
}

/** with its Avro serializer */
const CONFLUENT_KAFKA = 'confluent-kafka[avro,schemaregistry]==2.11.1';

/** A Python with confluent-kafka: an environment in the cache folder, made once. */
export async function python(): Promise<string> {
  const folder = join(readSettings().CACHE_DIR, CONFLUENT_KAFKA.replaceAll(/[^a-z0-9.]+/g, '-'));
  const interpreter = join(folder, 'bin', 'python');
  if (!existsSync(join(folder, 'ready'))) {
    try {
      await pipe('python3', ['-m', 'venv', '--clear', folder], '');
      await pipe(interpreter, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', CONFLUENT_KAFKA], '');
      await pipe(
        interpreter,
        ['-c', `import confluent_kafka, pathlib; pathlib.Path(${JSON.stringify(join(folder, 'ready'))}).touch()`],
        '',
      );
    } catch (error) {
      throw new Error(
        `the tests produce with librdkafka: install Python 3 with venv and let pip reach its index (${(error as Error).message})`,
        { cause: error },
      );
    }
  }
  return interpreter;
}

/** Runs a tool of Kafka itself (Java), with this on its stdin; gives its stdout. */
async function runKafkaTool(tool: string, options: readonly string[], input = ''): Promise<string> {
  const { CACHE_DIR, JAVA_HOME } = readSettings();
  let java: string;
  let classpath: string;
  try {
    java = await findJava(JAVA_HOME);
    classpath = await kafkaJars(CACHE_DIR, logger, undefined);
  } catch (error) {
    throw new Error(`the tests run tools of Kafka: install Java 17 and Maven (Java ${(error as Error).message})`, {
      cause: error,
    });
  }
  const jvm = [
    '-Xmx512m',
    '-XX:+UseSerialGC',
    '-XX:TieredStopAtLevel=1',
    '-Dorg.slf4j.simpleLogger.defaultLogLevel=error',
  ];
  return await pipe(java, [...jvm, '-cp', classpath, `org.apache.kafka.tools.${tool}`, ...options], input);
}

/** Deletes the group's offsets of a topic, as the runbook says. The group must have no members. */
export async function deleteGroupOffsets(groupId: string, topic: string): Promise<void> {
  const where = ['--bootstrap-server', kafkaBrokers().join(','), '--group', groupId, '--topic', topic];
  const said = await runKafkaTool('consumer.group.ConsumerGroupCommand', ['--delete-offsets', ...where]);
  if (!said.includes('Successful')) throw new Error(`kafka-consumer-groups --delete-offsets: ${said}`);
}

/** Produces lines with Kafka's own console producer (Java). A line is a value; no keys, no reports. */
export async function produceWithJavaConsole(
  topic: string,
  lines: readonly string[],
  { compression = 'none', brokers = kafkaBrokers() }: ProduceOptions = {},
): Promise<void> {
  const options = [
    '--bootstrap-server',
    brokers.join(','),
    '--topic',
    topic,
    '--compression-codec',
    compression,
    '--max-memory-bytes',
    '67108864',
    '--producer-property',
    'max.request.size=16000000',
    '--producer-property',
    'linger.ms=50',
  ];
  await runKafkaTool('ConsoleProducer', options, lines.map((line) => `${line}\n`).join(''));
}

/** Runs a command with this on its stdin; gives its stdout. */
export function pipe(command: string, args: readonly string[], input: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    const output: Buffer[] = [];
    const errors: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
    child.stdin.on('error', () => undefined); // it ended before it read all: its exit code tells
    child.once('error', reject);
    child.once('close', (code) => {
      const said = Buffer.concat(errors).toString('utf8').trim();
      if (code === 0 && !/^\S* ?ERROR /m.test(said)) resolve(Buffer.concat(output).toString('utf8'));
      else reject(new Error(`${command} ${args.slice(0, 3).join(' ')}: exit code ${code}: ${said.slice(-2_000)}`));
    });
    child.stdin.end(input);
  });
}

interface ReadRecord extends DeliveryReport {
  readonly message: FetchedRecord;
}

interface ReadOptions {
  readonly brokers?: readonly string[] | undefined;
  readonly maxDecompressedBytes?: number;
  readonly readUncommitted?: boolean;
  /** offset to begin at, in every partition */
  readonly from?: bigint;
  readonly deadlineMs?: number;
}

/** Reads a topic from its start, or `from`, through the client, up to what is in it at this moment. */
export async function readAll(
  topic: string,
  { brokers, maxDecompressedBytes, readUncommitted = false, from, deadlineMs = 30_000 }: ReadOptions = {},
): Promise<ReadRecord[]> {
  // a broker that has just started does not lead its partitions yet
  const ends = await waitFor(
    () => withAdmin((admin) => admin.fetchTopicOffsets(topic), brokers),
    deadlineMs,
    `${topic} has a leader`,
  );
  const open = new Map(
    ends
      .filter(({ low, high }) => BigInt(high) > (from ?? BigInt(low)))
      .map(({ partition, high }) => [partition, BigInt(high)]),
  );
  const groupId = uniqueName('read-all');
  if (from !== undefined)
    await setGroupOffsets(
      groupId,
      topic,
      ends.map(({ partition }) => ({ partition, offset: from })),
      brokers,
    );
  const result: ReadRecord[] = [];
  const consumer = testKafka(brokers, maxDecompressedBytes).consumer({
    groupId,
    readUncommitted,
    maxWaitTimeInMs: () => 100,
    maxBytesPerPartition: 32 * 1024 * 1024,
    maxBytes: 64 * 1024 * 1024,
  });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    consumer.on(consumer.events.END_BATCH_PROCESS, ({ payload: { partition, lastOffset } }) => {
      if (BigInt(lastOffset) + 1n >= (open.get(partition) ?? 0n)) open.delete(partition);
    });
    await consumer.run({
      autoCommit: false,
      eachBatch: ({ batch }) => {
        for (const record of fetchedRecords(batch).records)
          result.push({ topic, partition: batch.partition, offset: BigInt(record.offset), message: record });
        return Promise.resolve();
      },
    });
    await waitFor(() => open.size === 0, deadlineMs, `${topic} is read to its end`);
  } finally {
    await consumer.disconnect();
  }
  return result.toSorted((a, b) => a.partition - b.partition || (a.offset < b.offset ? -1 : 1));
}

/** kill -9 and nothing else. */
export async function killBroker({ run, failed }: LocalBroker): Promise<void> {
  if (run.kind === 'java') process.kill(run.pid, 'SIGKILL');
  else await pipe('docker', ['kill', run.container], '');
  await failed.catch(() => undefined);
}

/** A broker for one test file, which it may kill. The same port and data after a restart. */
export interface OwnBroker {
  readonly brokers: readonly string[];
  /** kill -9 */
  kill(): Promise<void>;
  /** starts it again; after a kill its log is recovered, which takes about 5 s */
  restart(): Promise<void>;
  /** ends it and removes its data */
  stop(): Promise<void>;
}

/** Data folders of test brokers begin with it. */
const OWN_BROKER = 'sluice-test-kafka-';

/** Ends the brokers of test runs that were killed, and removes their data. */
export async function removeLeftBrokers(): Promise<void> {
  for (const name of readdirSync(tmpdir()).filter((entry) => entry.startsWith(OWN_BROKER))) {
    const dataDir = join(tmpdir(), name);
    const left = await leftRunning(join(dataDir, 'kafka')).catch(() => undefined); // another run's that goes on
    if (left === undefined) continue;
    await endBroker(left);
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/**
 * Starts a broker of its own (Docker, else Java) in a temporary folder, with listeners beside the plain one where they
 * are given.
 */
export async function startOwnBroker(more?: MoreListeners): Promise<OwnBroker> {
  const dataDir = mkdtempSync(join(tmpdir(), OWN_BROKER));
  const settings = { ...readSettings(), DATA_DIR: dataDir, KAFKA_PORT: await freePort() };
  const start = (): Promise<LocalBroker> => startLocalBroker(settings, logger, { more });
  let broker = await start();
  return {
    brokers: broker.brokers,
    kill: () => killBroker(broker),
    restart: async () => {
      await broker.stop();
      broker = await start();
    },
    stop: async () => {
      await broker.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}
