import { ClickHouseContainer } from '@testcontainers/clickhouse';
import { KafkaContainer } from '@testcontainers/kafka';
import type { TestProject } from 'vitest/node';
import { brokerSettings } from '../../common/kafka/local-broker/server-properties.ts';
import { readSettings } from '../../common/config/settings.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { startCluster } from './clickhouse-cluster.ts';
import { CLUSTERS, serverOf } from './clickhouse-run.ts';
import { startServer } from './clickhouse-server.ts';
import { choose, CLICKHOUSE_TEST_IMAGE, KAFKA_TEST_IMAGE, type Choice } from './choice.ts';
import { removeLeftBrokers, startOwnBroker } from './kafka.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** host:port of the broker for this run */
    readonly kafkaBrokers: readonly string[];
    /** of a ClickHouse server for this run, where there is one: a user that may make databases, and no database; the
     *  nodes of a cluster, separated by commas */
    readonly clickhouseUrl: string | null;
  }
}

/** in the container */
const PORT = 9093;

const BROKER_OF_TESTS: Readonly<Record<string, string>> = {
  // Nobody kills this broker. On a busy machine it was late with its heartbeats for 3 s and fenced: it created no topic,
  // and producers that sent again stored messages twice.
  'broker.session.timeout.ms': '60000',
  // by default compaction looks every 15 s for something to do
  'log.cleaner.backoff.ms': '500',
};

interface Services {
  readonly brokers: readonly string[];
  /** the server of a project, started when the first project asks for one of its kind */
  readonly clickhouseUrl: (run: string | undefined) => Promise<string | null>;
  readonly stop: () => Promise<void>;
}

/** The same services for all projects of a run. */
const shared = globalThis as { testServices?: { readonly started: Promise<Services>; users: number } };

/**
 * What integration and fault tests run on (choice.ts): Kafka of KAFKA_BROKERS, else in a container where Docker
 * answers, else Apache Kafka on Java in a folder of its own. ClickHouse by the project's TEST_CLICKHOUSE: each test
 * embeds its own, or the project's tests share a server: a plain one is that of CLICKHOUSE_URL, else in a container,
 * else one out of a Python wheel; one under a hostile profile always the last. All of it is gone with its data after
 * the run. Where a service cannot be had the run fails here, saying what to install.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const services = (shared.testServices ??= { started: start(), users: 0 });
  services.users++;
  const { brokers, clickhouseUrl, stop } = await services.started;
  project.provide('kafkaBrokers', brokers);
  project.provide('clickhouseUrl', await clickhouseUrl(project.config.env['TEST_CLICKHOUSE']));
  return async () => {
    services.users--;
    if (services.users === 0) {
      delete shared.testServices;
      await stop();
    }
  };
}

interface ClickHouseOfRun {
  readonly url: string;
  readonly stop: () => Promise<void>;
}

async function start(): Promise<Services> {
  await removeLeftBrokers();
  const choice = await choose(readSettings());
  const kafka = await startKafka(choice.kafka);
  const servers = new Map<string, Promise<ClickHouseOfRun>>();
  return {
    brokers: kafka.brokers,
    clickhouseUrl: async (run) => {
      const wanted = serverOf(run);
      if (run === undefined || (wanted === undefined && !CLUSTERS.has(run))) return null;
      const server =
        servers.get(run) ??
        (CLUSTERS.has(run)
          ? startOwnCluster(CLUSTERS.get(run)!)
          : run === '25.8 plain'
            ? startClickHouse(choice.clickhouse)
            : startOwnClickHouse(run));
      servers.set(run, server);
      return (await server).url;
    },
    stop: async () => {
      await Promise.all([
        kafka.stop(),
        ...[...servers.values()].map(async (server) => {
          await (await server).stop();
        }),
      ]);
    },
  };
}

async function startKafka(
  choice: Choice['kafka'],
): Promise<{ readonly brokers: readonly string[]; readonly stop: () => Promise<void> }> {
  if (choice.kind === 'given') return { brokers: choice.brokers, stop: () => Promise.resolve() };
  if (choice.kind === 'own') return await startOwnBroker({ ports: {}, settings: BROKER_OF_TESTS, scram: [] });
  const environment = Object.fromEntries(
    Object.entries({ ...brokerSettings, ...BROKER_OF_TESTS }).map(([name, value]) => [
      `KAFKA_${name.toUpperCase().replaceAll('.', '_')}`,
      String(value),
    ]),
  );
  const container = await new KafkaContainer(KAFKA_TEST_IMAGE).withKraft().withEnvironment(environment).start();
  return {
    brokers: [`${container.getHost()}:${container.getMappedPort(PORT)}`],
    stop: async () => {
      await container.stop();
    },
  };
}

async function startClickHouse(choice: Choice['clickhouse']): Promise<ClickHouseOfRun> {
  if (choice.kind === 'given') return { url: choice.url, stop: () => Promise.resolve() };
  if (choice.kind === 'own') return await startOwnClickHouse('25.8 plain');
  const container = await new ClickHouseContainer(CLICKHOUSE_TEST_IMAGE).start();
  const url = new URL(container.getConnectionUrl());
  url.pathname = '';
  return {
    url: url.href,
    stop: async () => {
      await container.stop();
    },
  };
}

async function startOwnClickHouse(run: string): Promise<ClickHouseOfRun> {
  const folder = temporaryFolder();
  const server = await startServer({ ...serverOf(run), dataDir: folder.path });
  return {
    url: server.url,
    stop: async () => {
      await server.stop();
      folder.remove();
    },
  };
}

async function startOwnCluster(shape: { shards: number; replicas: number }): Promise<ClickHouseOfRun> {
  const folder = temporaryFolder();
  const cluster = await startCluster(folder.path, shape);
  return {
    url: cluster.nodes.map(({ server }) => server.url).join(','),
    stop: async () => {
      await cluster.stop();
      folder.remove();
    },
  };
}
