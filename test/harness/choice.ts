import { getContainerRuntimeClient } from 'testcontainers';

/** Confluent's packaging of Kafka 4.1, which the testcontainers module needs. */
export const KAFKA_TEST_IMAGE = 'confluentinc/cp-kafka:8.1.0';
/**
 * As docker-compose.yml has it. The oldest supported version is tested on a genuine server of its own
 * (clickhouse-server.ts).
 */
export const CLICKHOUSE_TEST_IMAGE = 'clickhouse/clickhouse-server:26.3.39.7';

/**
 * What integration and fault tests run on. `own`: Apache Kafka on Java, and ClickHouse out of a Python wheel
 * (clickhouse-server.ts), in folders that are gone after the run.
 */
export interface Choice {
  readonly kafka:
    | { readonly kind: 'given'; readonly brokers: readonly string[] }
    | { readonly kind: 'container' | 'own' };
  readonly clickhouse: { readonly kind: 'given'; readonly url: string } | { readonly kind: 'container' | 'own' };
}

/** What is named is taken; else containers where Docker answers, for both; else what this machine has without it. */
export async function choose(
  {
    KAFKA_BROKERS,
    CLICKHOUSE_URL,
  }: { readonly KAFKA_BROKERS: readonly string[] | undefined; readonly CLICKHOUSE_URL: string | undefined },
  docker: () => Promise<boolean> = hasDocker,
): Promise<Choice> {
  const containers = (KAFKA_BROKERS === undefined || CLICKHOUSE_URL === undefined) && (await docker());
  return {
    kafka:
      KAFKA_BROKERS !== undefined
        ? { kind: 'given', brokers: KAFKA_BROKERS }
        : { kind: containers ? 'container' : 'own' },
    clickhouse:
      CLICKHOUSE_URL !== undefined
        ? { kind: 'given', url: CLICKHOUSE_URL }
        : { kind: containers ? 'container' : 'own' },
  };
}

/** Whether containers can be run. */
export async function hasDocker(): Promise<boolean> {
  try {
    await getContainerRuntimeClient();
    return true;
  } catch {
    return false;
  }
}
