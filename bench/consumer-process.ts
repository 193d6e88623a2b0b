import { readFileSync } from 'node:fs';
import { createClient } from '@clickhouse/client';
import kafkajs from 'kafkajs';
import { compressFrame, decompressFrame } from 'lz4-napi';
import { openEmbedded } from '../common/clickhouse/embedded/embedded.ts';
import type { Read, Reader } from '../common/clickhouse/clickhouse.ts';
import { migrate } from '../common/clickhouse/migrations.ts';
import { readSettings } from '../common/config/settings.ts';
import { kafkaFromSettings } from '../common/kafka/from-settings.ts';
import { createLogger } from '../common/logger.ts';
import { createRegistry } from '../common/metrics.ts';
import { startIngest } from '../services/ingest/service.ts';
import { openTestFace } from '../test/harness/clickhouse.ts';

/**
 * One contestant in a process of its own: opens an empty embedded engine with all migrations and says so; consumes when
 * told to; answers reads meanwhile, through the same engine; ends when its parent lets go.
 *   sluice: services/ingest as it is. kafka_engine: ClickHouse's own table engine. plain: kafkajs, JSON.parse and the
 * official client's insert.
 */
export interface Contestant {
  readonly kind: 'sluice' | 'kafka_engine' | 'plain';
  /** of the Kafka table, beyond what it cannot do without */
  readonly tableSettings?: string;
  readonly env: {
    readonly DATA_DIR: string;
    readonly KAFKA_BROKERS: string;
    readonly KAFKA_TOPICS: string;
    readonly KAFKA_GROUP_ID: string;
  };
}
export type ToConsumer = { kind: 'consume' } | { kind: 'read'; id: number; read: Read };
export type FromConsumer =
  | { kind: 'ready'; version: string }
  | { kind: 'answer'; id: number; body?: string; error?: string };

interface Engine {
  readonly reader: Reader;
  readonly version: string;
  consume(): Promise<void>;
}

const contestant = JSON.parse(process.argv[2]!) as Contestant;
const settings = readSettings({ ...contestant.env });
const logger = createLogger('warn');
const topic = settings.KAFKA_TOPICS.edge_logs;
const brokers = settings.KAFKA_BROKERS!;
const PLAIN_BATCH = 10_000;

const engine = await { sluice, kafka_engine: kafkaEngine, plain }[contestant.kind]();
process.on('message', (message: ToConsumer) => {
  if (message.kind === 'consume') void engine.consume();
  else void answer(message.id, message.read);
});
process.once('disconnect', () => process.exit(0));
send({ kind: 'ready', version: engine.version });

function send(message: FromConsumer): void {
  process.send?.(message);
}

async function answer(id: number, read: Read): Promise<void> {
  try {
    send({ kind: 'answer', id, body: (await engine.reader.read(read)).body.toString('utf8') });
  } catch (error) {
    send({ kind: 'answer', id, error: String(error) });
  }
}

async function sluice(): Promise<Engine> {
  const clickhouse = await openEmbedded({ dataDir: settings.DATA_DIR, logger });
  await migrate(clickhouse, logger);
  const kafka = kafkaFromSettings(settings, brokers, 'sluice-ingest', logger);
  return {
    reader: clickhouse,
    version: clickhouse.version,
    consume: async () => {
      await startIngest({ clickhouse, kafka, settings, logger, registry: createRegistry() });
    },
  };
}

async function kafkaEngine(): Promise<Engine> {
  const clickhouse = await openEmbedded({ dataDir: settings.DATA_DIR, logger });
  await migrate(clickhouse, logger);
  const sql = (name: string): string =>
    readFileSync(new URL(`sql/${name}.sql`, import.meta.url), 'utf8')
      .replace(/^--.*\n/gm, '')
      .replace('{brokers}', brokers.join(','))
      .replace('{topic}', topic)
      .replace('{group}', settings.KAFKA_GROUP_ID);
  return {
    reader: clickhouse,
    version: clickhouse.version,
    consume: async () => {
      await clickhouse.execute({
        sql: `${sql('kafka_engine_queue')}${contestant.tableSettings ?? ''}`,
        settings: { kafka_disable_num_consumers_limit: 1 },
      });
      await clickhouse.execute({ sql: sql('kafka_engine_view') });
    },
  };
}

/**
 * As most write it first. The server is the embedded engine behind ClickHouse's HTTP interface
 * (test/harness/clickhouse-face.ts), in a process of its own.
 */
async function plain(): Promise<Engine> {
  const { clickhouse, env } = await openTestFace();
  await migrate(clickhouse, logger);
  const { origin, username, password, pathname } = new URL(env.CLICKHOUSE_URL!);
  const client = createClient({
    url: origin,
    username,
    password,
    database: pathname.slice(1),
    clickhouse_settings: { date_time_input_format: 'best_effort' },
  });
  kafkajs.CompressionCodecs[kafkajs.CompressionTypes.LZ4] = () => ({
    compress: (encoder: { buffer: Buffer }) => compressFrame(encoder.buffer),
    decompress: (buffer: Buffer) => decompressFrame(buffer),
  });
  const consumer = new kafkajs.Kafka({ brokers, clientId: 'plain', logLevel: kafkajs.logLevel.ERROR }).consumer({
    groupId: settings.KAFKA_GROUP_ID,
  });
  return {
    reader: clickhouse,
    version: clickhouse.version,
    consume: async () => {
      await consumer.connect();
      await consumer.subscribe({ topic, fromBeginning: true });
      await consumer.run({
        eachBatch: async (payload) => {
          const { partition, messages } = payload.batch;
          for (let from = 0; from < messages.length; from += PLAIN_BATCH) {
            const values = messages
              .slice(from, from + PLAIN_BATCH)
              .map(({ value, offset }) => rowOf(value!.toString(), partition, Number(offset)));
            await client.insert({ table: 'edge_logs', values, format: 'JSONEachRow' });
            await payload.heartbeat();
          }
        },
      });
    },
  };
}

interface EdgeEvent {
  readonly id: string;
  readonly timestamp: number;
  readonly project: string;
  readonly metadata: {
    readonly request: { readonly url: string; readonly host: string; readonly path: string; readonly method: string };
    readonly response: { readonly status_code: number };
  };
}

function rowOf(message: string, partition: number, offset: number): object {
  const {
    id,
    timestamp,
    project,
    metadata: {
      request: { url, host, path, method },
      response,
    },
  } = JSON.parse(message) as EdgeEvent;
  const bit = (mark: string, value: number): number => (path.includes(mark) ? value : 0);
  return {
    project,
    timestamp: new Date(timestamp / 1000).toISOString(),
    id,
    url,
    host,
    path,
    method,
    status_code: response.status_code,
    families: bit('/rest', 1) + bit('/storage', 2) + bit('/auth', 4) + bit('/realtime', 8),
    refs: [...new Set([...url.matchAll(/(?=([a-z]{20}))/g)].map((match) => match[1]!))],
    refs_overflow: false,
    message,
    kafka_topic: topic,
    kafka_incarnation: 1,
    kafka_partition: partition,
    kafka_offset: offset,
    batch_last: offset,
    judged_at: new Date().toISOString(),
  };
}
