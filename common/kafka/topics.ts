import { setTimeout as sleep } from 'node:timers/promises';
import { StartError } from '../errors.ts';
import { within } from '../lifecycle/within.ts';
import { isCertificateError } from '../tls.ts';
import type { Admin, KafkaClient } from './client.ts';
import { probe, type Probe } from './probe.ts';

/** How long a broker may take to answer at start, milliseconds. */
const DEADLINE_MS = 10_000;
const PROBE_TIMEOUT_MS = 2_000;
const RETRY_MS = 200;

interface StartOptions {
  readonly deadlineMs?: number;
  /** what to do if no broker answers */
  readonly advice?: string;
}

/** Waits until one of the brokers answers. Throws StartError (one line) if none does within deadlineMs. */
async function awaitBroker({ brokers, ssl }: KafkaClient, deadlineMs: number, advice: string): Promise<void> {
  const until = performance.now() + deadlineMs;
  for (;;) {
    const left = until - performance.now();
    const results = await Promise.all(
      brokers.map(async (broker) => ({
        broker,
        result: await probe(broker, Math.max(1, Math.min(PROBE_TIMEOUT_MS, left)), ssl),
      })),
    );
    if (results.some(({ result }) => result.kind === 'kafka')) return;
    // waiting does not help against these
    for (const { broker, result } of results) {
      const why = await mismatch(broker, result, ssl);
      if (why !== undefined) throw new StartError(`Kafka at ${broker} ${why}`);
    }
    if (performance.now() + RETRY_MS > until) {
      const seen = results.map(
        ({ broker, result }) => `${broker} ${result.kind === 'nothing' ? result.reason : 'is not Kafka'}`,
      );
      throw new StartError(
        `Kafka does not answer within ${Math.round(deadlineMs / 1000)} s (${seen.join(', ')}); ${advice}`,
      );
    }
    await sleep(RETRY_MS);
  }
}

/** Returns what is wrong with the TLS settings for an address. Undefined if TLS is not the cause. */
async function mismatch(broker: string, result: Probe, ssl: KafkaClient['ssl']): Promise<string | undefined> {
  const isKafka = async (with_: KafkaClient['ssl']): Promise<boolean> =>
    (await probe(broker, PROBE_TIMEOUT_MS, with_)).kind === 'kafka';
  const reason = 'reason' in result ? (result.reason ?? '') : '';
  if (ssl === false)
    return result.kind === 'other' && (await isKafka({ rejectUnauthorized: false }))
      ? 'speaks TLS; set KAFKA_SSL=true'
      : undefined;
  if (isCertificateError(reason))
    return `has an untrusted certificate (${reason}); set KAFKA_SSL_CA to the file of its authority`;
  if (/ALERT|HANDSHAKE/.test(reason))
    return `ends the TLS handshake (${reason}); if it requires a client certificate, set KAFKA_SSL_CERT and KAFKA_SSL_KEY`;
  return reason !== 'ECONNREFUSED' && (await isKafka(false)) ? 'does not speak TLS; set KAFKA_SSL=false' : undefined;
}

/**
 * Creates the missing topics with that number of partitions and the broker's default replication. Existing topics stay
 * as they are. Several processes may do this at the same time. Returns the topics that this call created.
 * Throws StartError if Kafka does not answer, or refuses, within deadlineMs.
 */
export async function ensureTopics(
  kafka: KafkaClient,
  topics: readonly string[],
  partitions: number,
  { deadlineMs = DEADLINE_MS, advice = 'start it, or set KAFKA_BROKERS' }: StartOptions = {},
): Promise<readonly string[]> {
  const until = performance.now() + deadlineMs;
  await awaitBroker(kafka, deadlineMs, advice);
  const admin = kafka.admin();
  const ensure = async (): Promise<readonly string[]> => {
    const created: string[] = [];
    await admin.connect();
    for (;;) {
      try {
        await createMissing(admin, topics, partitions, created);
        return created;
      } catch (error) {
        if (denied(error) || performance.now() + RETRY_MS > until) throw error;
        await sleep(RETRY_MS);
      }
    }
  };
  try {
    const created = await within(Math.max(1_000, until - performance.now()), ensure(), undefined);
    if (created === undefined) throw new Error('no answer in time');
    return created;
  } catch (error) {
    const { sasl, brokers } = kafka;
    const hint = sasl === undefined ? ' (if it requires a user, set KAFKA_SASL_*)' : '';
    const reason = refusals(error) ?? `${error instanceof Error ? error.message : String(error)}${hint}`;
    const why =
      sasl !== undefined && isAuthentication(error)
        ? `refuses the user ${sasl.username} or its password by ${sasl.mechanism}; check KAFKA_SASL_*`
        : `answers, but its topics cannot be read or created: ${reason}`;
    throw new StartError(`Kafka at ${brokers.join(', ')} ${why}`, { cause: error });
  } finally {
    await admin.disconnect().catch(() => undefined);
  }
}

/** Of topics that Kafka refuses to create, kafkajs gives names and reasons only in the errors that it joins. */
function refusals(error: unknown): string | undefined {
  type Refusal = { readonly topic: string; readonly type: string; readonly message: string };
  const { name, errors } = error as { readonly name?: string; readonly errors: readonly Refusal[] };
  if (name !== 'KafkaJSAggregateError') return undefined;
  return errors
    .map(
      ({ topic, type, message }) =>
        `${topic}: ${type === 'INVALID_TOPIC_EXCEPTION' ? 'Kafka does not allow the name, or a topic has it with . and _ exchanged' : message}`,
    )
    .join('; ');
}

/**
 * kafkajs's own name, on the error or on what it wraps; a mechanism that the broker does not have comes as its
 * protocol's error.
 */
function isAuthentication(error: unknown): boolean {
  for (let e = error; e instanceof Error; e = e.cause) {
    if (e.name === 'KafkaJSSASLAuthenticationError' || ('type' in e && /SASL/.test(String(e.type)))) return true;
  }
  return false;
}

/** Whether waiting cannot help against an error. */
function denied(error: unknown): boolean {
  if (isAuthentication(error)) return true;
  const { type, errors = [] } = error as {
    readonly type?: string;
    readonly errors?: readonly { readonly type?: string }[];
  };
  return [type, ...errors.map((e) => e.type)].some(
    (t) => t !== undefined && /AUTHORIZATION|AUTHENTICATION|POLICY_VIOLATION|INVALID_|SASL/.test(t),
  );
}

/**
 * Makes one attempt, and adds created topics to `created`. Throws if a topic that another process has just created is
 * not yet known everywhere.
 */
async function createMissing(
  admin: Admin,
  topics: readonly string[],
  partitions: number,
  created: string[],
): Promise<void> {
  const before = await readPartitions(admin);
  const missing = topics.filter((topic) => !before.has(topic));
  if (missing.length === 0) return;
  await Promise.all(
    missing.map(async (topic) => {
      // One request per topic: for a mixture of created and existing topics (false), kafkajs answers a joint request
      // with an error. We do not use its wait for leaders: it fails while the broker does not know the new topic, and
      // that error hid the creation. The replication factor -1 is the broker's default, known since Kafka 2.4.
      const topics = [{ topic, numPartitions: partitions, replicationFactor: -1 }];
      if (await admin.createTopics({ topics, waitForLeaders: false })) created.push(topic);
    }),
  );
  const after = await readPartitions(admin);
  const unready = missing.find((topic) => after.get(topic)?.every((leader) => leader >= 0) !== true);
  if (unready !== undefined) throw new Error(`the topic ${unready} has no leader yet`);
}

/** Returns the leader of every partition of every topic; -1 for one without. */
async function readPartitions(admin: Admin): Promise<Map<string, number[]>> {
  const { topics } = await admin.fetchTopicMetadata();
  return new Map(topics.map(({ name, partitions }) => [name, partitions.map(({ leader }) => leader)]));
}
