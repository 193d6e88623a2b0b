import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.ts';
import type { Admin, KafkaClient } from './client.ts';
import { parseAddress, probe } from './probe.ts';

export interface EnsuredTopics {
  /** made by this call */
  readonly created: readonly string[];
  /** partitions of every wanted topic, also of those that were there */
  readonly partitions: Readonly<Record<string, number>>;
}

/** How long a broker may take to answer at start, milliseconds. */
const DEADLINE_MS = 10_000;
const PROBE_TIMEOUT_MS = 2_000;
const RETRY_MS = 200;

/**
 * Waits until one of the brokers answers. Throws a StartError (one line) when none does within deadlineMs.
 */
export async function awaitBroker({ brokers, ssl }: Pick<KafkaClient, 'brokers' | 'ssl'>, deadlineMs: number = DEADLINE_MS): Promise<void> {
  const until = performance.now() + deadlineMs;
  for (;;) {
    const left = until - performance.now();
    const results = await Promise.all(brokers.map(async (broker) => ({ broker, result: await probe(parseAddress(broker), Math.max(1, Math.min(PROBE_TIMEOUT_MS, left)), ssl) })));
    if (results.some(({ result }) => result.kind === 'kafka')) return;
    if (performance.now() + RETRY_MS > until) {
      const seen = results.map(({ broker, result }) => `${broker} ${result.kind === 'nothing' ? result.reason : 'is not Kafka'}`);
      throw new StartError(`Kafka does not answer within ${Math.round(deadlineMs / 1000)} s (${seen.join(', ')}); start it, or set KAFKA_BROKERS`);
    }
    await sleep(RETRY_MS);
  }
}

/**
 * Makes the wanted topics that do not exist, with that many partitions and the broker's default replication; existing ones are left alone.
 * Processes that do this at the same time do not disturb each other.
 * Throws a StartError when Kafka does not answer, or does not allow it, within deadlineMs.
 */
export async function ensureTopics(kafka: KafkaClient, topics: readonly string[], partitions: number, deadlineMs: number = DEADLINE_MS): Promise<EnsuredTopics> {
  const until = performance.now() + deadlineMs;
  await awaitBroker(kafka, deadlineMs);
  const admin = kafka.admin();
  const created: string[] = [];
  const ensure = async (): Promise<EnsuredTopics> => {
    await admin.connect();
    for (;;) {
      try {
        return { created, partitions: await createMissing(admin, topics, partitions, created) };
      } catch (error) {
        if (denied(error) || performance.now() + RETRY_MS > until) throw error;
        await sleep(RETRY_MS);
      }
    }
  };
  const late = new AbortController();
  try {
    return await Promise.race([ensure(), sleep(Math.max(1_000, until - performance.now()), undefined, { signal: late.signal }).then(() => { throw new Error('no answer in time'); })]);
  } catch (error) {
    throw new StartError(`Kafka at ${kafka.brokers.join(', ')} answers, but its topics cannot be read or made: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  } finally {
    late.abort();
    await admin.disconnect().catch(() => undefined);
  }
}

/** Waiting does not help against these. */
function denied(error: unknown): boolean {
  const { type, errors = [] } = error as { readonly type?: string; readonly errors?: readonly { readonly type?: string }[] };
  return [type, ...errors.map((e) => e.type)].some((t) => t !== undefined && /AUTHORIZATION|AUTHENTICATION|POLICY_VIOLATION|INVALID_|SASL/.test(t));
}

/** One attempt. Adds to `created` what it made; throws when a topic that another process has just made is not known everywhere yet. */
async function createMissing(admin: Admin, topics: readonly string[], partitions: number, created: string[]): Promise<Record<string, number>> {
  let known = await partitionCounts(admin);
  const missing = topics.filter((topic) => !known.has(topic));
  await Promise.all(missing.map(async (topic) => {
    // a request each: to one for all, kafkajs answers a mixture of "made" and "another process was faster" (false) with an error
    if (await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: -1 }] })) created.push(topic);
  }));
  if (missing.length > 0) known = await partitionCounts(admin);
  return Object.fromEntries(topics.map((topic) => {
    const count = known.get(topic);
    if (count === undefined) throw new Error(`the topic ${topic} has no leader yet`);
    return [topic, count];
  }));
}

async function partitionCounts(admin: Admin): Promise<Map<string, number>> {
  const { topics } = await admin.fetchTopicMetadata();
  return new Map(topics.map(({ name, partitions }) => [name, partitions.length]));
}
