import { KafkaContainer } from '@testcontainers/kafka';
import type { TestProject } from 'vitest/node';
import { findDocker } from '../../common/kafka/local-broker/docker.ts';
import { brokerSettings } from '../../common/kafka/local-broker/server-properties.ts';
import { readSettings } from '../../common/config/settings.ts';
import { removeLeftBrokers, startOwnBroker } from './kafka.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** host:port of the broker for this run */
    readonly kafkaBrokers: readonly string[];
  }
}

/** Confluent's packaging of Kafka 4.1, which the testcontainers module needs. */
const IMAGE = 'confluentinc/cp-kafka:8.1.0';
/** in the container */
const PORT = 9093;

interface TestBroker {
  readonly brokers: readonly string[];
  readonly stop: () => Promise<void>;
}

/** One broker for all projects of a run. */
const shared = globalThis as { testBroker?: { readonly started: Promise<TestBroker>; users: number } };

/**
 * The broker of integration and fault tests: KAFKA_BROKERS, else a container where Docker answers, else Apache Kafka on Java in a folder of its own,
 * gone with its data after the run. Without any of them the run fails here, saying what to install.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const broker = (shared.testBroker ??= { started: start(), users: 0 });
  broker.users++;
  const { brokers, stop } = await broker.started;
  project.provide('kafkaBrokers', brokers);
  return async () => {
    broker.users--;
    if (broker.users === 0) {
      delete shared.testBroker;
      await stop();
    }
  };
}

async function start(): Promise<TestBroker> {
  await removeLeftBrokers();
  const { KAFKA_BROKERS } = readSettings();
  if (KAFKA_BROKERS !== undefined) return { brokers: KAFKA_BROKERS, stop: () => Promise.resolve() };
  const docker = await findDocker().then(() => true, () => false);
  if (!docker) return startOwnBroker();
  const environment = Object.fromEntries(Object.entries(brokerSettings).map(([name, value]) => [`KAFKA_${name.toUpperCase().replaceAll('.', '_')}`, String(value)]));
  const container = await new KafkaContainer(IMAGE).withKraft().withEnvironment(environment).start();
  return {
    brokers: [`${container.getHost()}:${container.getMappedPort(PORT)}`],
    stop: async () => { await container.stop(); },
  };
}
