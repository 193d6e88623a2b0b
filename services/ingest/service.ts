import { availableParallelism } from 'node:os';
import { shardsOf, type ClickHouse } from '../../common/clickhouse/clickhouse.ts';
import { createLimit } from '../../common/clickhouse/pool.ts';
import { systemClock, type Clock } from '../../common/clock.ts';
import type { Settings } from '../../common/config/settings.ts';
import type { KafkaClient } from '../../common/kafka/client.ts';
import { ensureTopics } from '../../common/kafka/topics.ts';
import type { Component } from '../../common/lifecycle/run.ts';
import type { Logger } from '../../common/logger.ts';
import type { Registry } from '../../common/metrics.ts';
import type { Check } from '../../common/readiness.ts';
import { sources, type SourceName } from '../../common/sources.ts';
import { createAvroDecoder, type AvroDecoder } from './avro/decoder.ts';
import { createRegistry, type RegistryOptions } from './avro/registry.ts';
import { readKnownSchemas } from './avro/schemas.ts';
import { createBadShares } from './store/bad-share-pause.ts';
import { proveOnceAvailable } from './store/canary.ts';
import { startConsumer, type RunningConsumer } from './group/consumer.ts';
import { createLedger } from './store/ledger.ts';
import { createRegister } from './store/register.ts';
import { createIngestMetrics, type IngestMetrics } from './metrics.ts';
import { keepReplaysComplete } from './operate/open-replays.ts';
import { createShardOf, ofPartition, TAKEOVER_READS } from './store/shard.ts';
import { createStore } from './store/store.ts';

export type RunningIngest = Component & RunningConsumer;

/**
 * Returns the check of /readyz. A consumer that has not joined its group is not ready. A paused partition is only a
 * note.
 */
export function consumerCheck(ingest: () => RunningIngest | undefined): Check {
  return async () => {
    const running = ingest();
    if (running?.isJoined() !== true) return 'has not joined its group';
    const notes = [
      ['not taken for more than a minute, the log says why', running.untaken()],
      ['paused for their share of bad messages', running.paused()],
      ['waiting for another consumer group to end', running.waiting()],
      ['waiting for inserts that fail or hang', running.stuck()],
    ] as const;
    const note = notes
      .flatMap(([why, partitions]) => (partitions.length === 0 ? [] : [`${why}: ${partitions.join(', ')}`]))
      .join('; ');
    return note === '' ? undefined : { note };
  };
}

interface IngestOptions {
  readonly clickhouse: ClickHouse;
  readonly kafka: KafkaClient;
  readonly settings: Settings;
  readonly logger: Logger;
  readonly registry: Registry;
  readonly clock?: Clock;
  /** the group notices after this long that a process has died; 10 s by default */
  readonly sessionTimeoutMs?: number;
  /** ends the wait for a ClickHouse that cannot be written */
  readonly signal?: AbortSignal;
}

/** Returns a decoder of Avro for every source. Throws StartError if a schema file is wrong. */
export function createDecoders(
  settings: Pick<Settings, 'SCHEMA_REGISTRY_URL' | 'AVRO_SCHEMAS_DIR'>,
  onLookup: RegistryOptions['onLookup'] = () => {},
): Map<SourceName, AvroDecoder> {
  const schemas = readKnownSchemas(settings.AVRO_SCHEMAS_DIR);
  const registry =
    settings.SCHEMA_REGISTRY_URL === undefined
      ? undefined
      : createRegistry({ url: settings.SCHEMA_REGISTRY_URL, onLookup });
  return new Map(sources.map(({ name }) => [name, createAvroDecoder(name, schemas, registry)]));
}

/**
 * Kafka → raw tables: topics → lanes (one per partition) → batch → intent → inserts → ledger.
 * Resolves when the consumer runs. The tables must exist. Throws StartError if Kafka does not answer, or ClickHouse
 * does not store a batch exactly once.
 */
export async function startIngest({
  clickhouse,
  kafka,
  settings,
  logger,
  registry,
  clock = systemClock,
  sessionTimeoutMs,
  signal,
}: IngestOptions): Promise<RunningIngest> {
  const shards = shardsOf(clickhouse);
  await Promise.all(shards.map((shard) => proveOnceAvailable(shard, logger, signal)));
  const sourceOf = new Map(sources.map((s) => [settings.KAFKA_TOPICS[s.name], s.name]));
  const topics = [...sourceOf.keys()];
  const created = await ensureTopics(kafka, topics, settings.KAFKA_TOPIC_PARTITIONS);
  if (created.length > 0)
    logger.info({ topics: created, partitions: settings.KAFKA_TOPIC_PARTITIONS }, 'topics_created');
  const metrics = createIngestMetrics(registry);
  const decoders = createDecoders(settings, (outcome) => metrics.schemaLookups.inc({ outcome }));
  const shardOf = createShardOf(clickhouse);
  const ledgers = new Map(shards.map((shard) => [shard, createLedger(shard)]));
  const few = new Map(shards.map((shard) => [shard, createLimit(TAKEOVER_READS)]));
  /** what today's rules are made of */
  const today = { clock, retentionDays: settings.RAW_RETENTION_DAYS, maxEventBytes: settings.MAX_EVENT_BYTES };
  const register = createRegister(clickhouse, clock, createClockWatch(metrics, logger));
  // `size`: batches written at a time; `most`: together with those that take longer than a second
  // (group/permits.ts). Embedded: an insert takes one of our cores, so more inserts than cores only delay each
  // other. One write stays free for the ledger; the four of the embedded engine also serve replays and the rollup
  // service.
  const most = clickhouse.writers - 1;
  const size = Math.min(
    most,
    clickhouse.where === 'embedded' ? Math.max(2, availableParallelism()) : SERVER_BATCHES_AT_ONCE,
  );
  const consumer = await startConsumer({
    kafka,
    groupId: settings.KAFKA_GROUP_ID,
    topics,
    batchMaxBytes: settings.BATCH_MAX_BYTES,
    permits: { size, most },
    mayShareInserts: clickhouse.where === 'embedded',
    shardOf: (topic, partition) => shardOf.nameOf(topic, partition),
    logger,
    metrics,
    clock,
    sessionTimeoutMs,
    createBadShare: createBadShares(clickhouse, shardOf, {
      percent: settings.BAD_SHARE_PERCENT,
      window: settings.BAD_SHARE_WINDOW,
      pauseSeconds: settings.BAD_SHARE_PAUSE_SECONDS,
    }),
    createStore: (topic, partition) => {
      const source = sourceOf.get(topic)!;
      const shard = (): Promise<ClickHouse> => shardOf(topic, partition);
      return createStore({
        ...today,
        clickhouse: ofPartition(clickhouse, shardOf, topic, partition),
        shard,
        group: settings.KAFKA_GROUP_ID,
        register,
        ledger: async (row) => await ledgers.get(await shard())!(row),
        takeoverRead: async (read) => await few.get(await shard())!.use('', read),
        metrics,
        source,
        topic,
        partition,
        rawAvro: settings.KAFKA_RAW_AVRO_TOPICS.includes(topic),
        avro: decoders.get(source)!,
      });
    },
  });
  const stopping = new AbortController();
  const replaying = { ...today, decoders, rawAvroTopics: settings.KAFKA_RAW_AVRO_TOPICS };
  for (const shard of shards) void keepReplaysComplete({ ...replaying, clickhouse: shard }, logger, stopping.signal);
  return {
    name: 'ingest',
    ...consumer,
    stop: async () => {
      stopping.abort();
      await consumer.stop();
    },
  };
}

/** Batches that are sent to a server at a time; those that take long do not count. */
const SERVER_BATCHES_AT_ONCE = 16;

/** A larger difference from ClickHouse's clock turns events in range into dead letters, milliseconds. */
const CLOCK_TOLERANCE_MS = 60_000;
const CLOCK_REPORT_MS = 60_000;

/**
 * Returns a function that records how far our clock is ahead of ClickHouse's, and logs a large difference once a
 * minute.
 */
function createClockWatch(
  { clockAhead }: Pick<IngestMetrics, 'clockAhead'>,
  logger: Logger,
): (aheadMs: number) => void {
  let reportedAt = -Infinity;
  return (aheadMs) => {
    clockAhead.set(aheadMs / 1000);
    if (Math.abs(aheadMs) <= CLOCK_TOLERANCE_MS || performance.now() - reportedAt < CLOCK_REPORT_MS) return;
    reportedAt = performance.now();
    logger.error({ ahead_seconds: Math.round(aheadMs / 1000) }, 'clock_differs');
  };
}
