import { metricsIn, type Registry } from '../../common/metrics.ts';

const PLACE = ['topic', 'partition'] as const;

export function createIngestMetrics(registry: Registry) {
  const { counter, gauge, histogram } = metricsIn(registry);
  return {
    partitions: gauge('sluice_ingest_partitions', 'Partitions that the group has assigned to this process'),
    position: gauge(
      'sluice_ingest_position_offset',
      'First offset of a partition that is not yet in the ledger',
      ...PLACE,
    ),
    untaken: gauge(
      'sluice_ingest_partition_untaken',
      '1 once a takeover of an assigned partition has lasted a minute; normally it needs seconds',
      ...PLACE,
    ),
    paused: gauge(
      'sluice_ingest_partition_paused',
      '1 while a partition is paused because too many of its last messages were bad',
      ...PLACE,
    ),
    waiting: gauge(
      'sluice_ingest_partition_waits_for_group',
      '1 while a partition waits because members of another consumer group still consume it',
      ...PLACE,
    ),
    unavailable: counter(
      'sluice_ingest_unavailable_total',
      'Attempts that failed because a service was unavailable: kafka, registry or clickhouse',
      'service',
    ),
    clockAhead: gauge(
      'sluice_ingest_clock_ahead_seconds',
      'How far the clock of this process is ahead of the clock of ClickHouse; negative when it is behind',
    ),
    commitsRefused: counter(
      'sluice_ingest_commits_refused_total',
      'Commits that Kafka did not take; they are repeated',
    ),
    lag: gauge(
      'sluice_ingest_lag_records',
      'Records of a partition that wait in Kafka or in memory, as of its last fetch. While it is not fetched, its lag is read every 30 s',
      ...PLACE,
    ),
    gone: counter(
      'sluice_ingest_gone_offsets_total',
      'Offsets that Kafka no longer had when ingest wanted them, by the ledger: their events are lost. Those of a topic that was recreated may have had none (null values, transactions)',
      'topic',
    ),
    events: counter('sluice_ingest_events_total', 'Events of batches in the ledger: rows and dead letters', 'source'),
    batchEvents: histogram('sluice_ingest_batch_events', 'Events of one batch', [1, 10, 100, 1_000, 10_000, 50_000]),
    insertSeconds: histogram(
      'sluice_ingest_insert_seconds',
      'Storing a batch, or the rest of one: dead letters, rows, views, and the wait for a joint insert',
      [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
      'source',
    ),
    schemaLookups: counter(
      'sluice_ingest_schema_lookups_total',
      'Lookups in the schema registry, by outcome (found, refused, failed)',
      'outcome',
    ),
    freshness: gauge(
      'sluice_ingest_freshness_seconds',
      'Age of the newest record of a source at the moment at which it became visible',
      'source',
    ),
  };
}

export type IngestMetrics = ReturnType<typeof createIngestMetrics>;
