import { CompressionTypes, createKafka, type KafkaClient, type Message } from '../common/kafka/client.ts';
import { freePort, startLocalBroker } from '../common/kafka/local-broker/local-broker.ts';
import { ensureTopics } from '../common/kafka/topics.ts';
import { readSettings } from '../common/config/settings.ts';
import { createLogger } from '../common/logger.ts';
import { sources, type SourceName } from '../common/sources.ts';
import { createTraffic } from '../demo/traffic.ts';
import { schemaOf, singleObject, writerOf } from '../test/harness/avro.ts';
import { temporaryFolder } from '../test/harness/temporary-folder.ts';
import { PROJECTS, SEED } from './filled.ts';

const FUNCTIONS = 3;
const PARTITIONS = 3;
const EVENTS_PER_SEND = 3_000;
const SINGLE_OBJECT_HEADER_BYTES = 10;

export interface BenchBroker {
  /** of the broker, and for the services of a bench */
  readonly folder: string;
  readonly brokers: readonly string[];
  readonly kafka: KafkaClient;
  /** Removes the folder too. */
  stop(): Promise<void>;
}

/** A broker of its own in a folder of its own. */
export async function startBenchBroker(): Promise<BenchBroker> {
  const folder = temporaryFolder();
  const logger = createLogger('error');
  const settings = { ...readSettings(), DATA_DIR: folder.path, KAFKA_PORT: await freePort() };
  const broker = await startLocalBroker(settings, logger);
  return {
    folder: folder.path,
    brokers: broker.brokers,
    kafka: createKafka({
      brokers: broker.brokers,
      clientId: 'bench',
      logger,
      maxDecompressedBytes: settings.KAFKA_MAX_DECOMPRESSED_BYTES,
    }),
    stop: async () => {
      await broker.stop();
      folder.remove();
    },
  };
}

/** What waits in Kafka. */
export interface Backlog {
  /**
   * edge: edge events of 2.4 kB in JSON; avro: the same as Avro single objects; mix: all sources by their natural
   * shares, in JSON
   */
  readonly kind: 'edge' | 'avro' | 'mix';
  readonly events: number;
  /** of each topic; default 3 */
  readonly partitions?: number;
}

export function topicOf({ kind, events }: Backlog, source: SourceName): string {
  return `bench.${kind}.${events}.${source}`;
}

/** KAFKA_TOPICS of a service that reads this backlog. */
export function topicsOf(backlog: Backlog): string {
  return sources.map(({ name }) => `${name}=${topicOf(backlog, name)}`).join(',');
}

export interface Producing {
  readonly produced: number;
  /** Sends that many more events, of this moment; resolves when they are acknowledged. */
  add(events: number): Promise<void>;
  close(): Promise<void>;
}

/** lz4. The same seed gives the same events, apart from their time. */
export async function openProducing({ kafka }: BenchBroker, backlog: Backlog): Promise<Producing> {
  const { kind } = backlog;
  // all of them: a contestant that would have to create some would lose time by it
  await ensureTopics(
    kafka,
    sources.map(({ name }) => topicOf(backlog, name)),
    backlog.partitions ?? PARTITIONS,
  );
  const traffic = createTraffic({ seed: SEED, projects: PROJECTS, functionsPerProject: FUNCTIONS });
  const schema = schemaOf('edge_logs');
  const datum = writerOf(schema);
  const header = singleObject(schema, {}).subarray(0, SINGLE_OBJECT_HEADER_BYTES);
  const producer = kafka.producer();
  await producer.connect();
  let produced = 0;
  return {
    get produced() {
      return produced;
    },
    async add(events) {
      let sending: Promise<unknown> = Promise.resolve();
      for (const until = produced + events; produced < until;) {
        const perTopic = new Map<string, Message[]>();
        for (const last = Math.min(until, produced + EVENTS_PER_SEND); produced < last; produced++) {
          const { source, key, json } = traffic.next(Date.now() * 1000, kind === 'mix' ? undefined : 'edge_logs');
          const topic = topicOf(backlog, source);
          const messages = perTopic.get(topic) ?? [];
          messages.push({ key, value: kind === 'avro' ? Buffer.concat([header, datum(JSON.parse(json))]) : json });
          perTopic.set(topic, messages);
        }
        await sending;
        sending = producer.sendBatch({
          compression: CompressionTypes.LZ4,
          topicMessages: [...perTopic].map(([topic, messages]) => ({ topic, messages })),
        });
      }
      await sending;
    },
    close: () => producer.disconnect(),
  };
}

/** The whole of a backlog. */
export async function produceBacklog(broker: BenchBroker, backlog: Backlog): Promise<void> {
  const producing = await openProducing(broker, backlog);
  await producing.add(backlog.events);
  await producing.close();
}
