import { Counter, Gauge, Histogram, type Registry } from '../../common/metrics.ts';

export function createIngestMetrics(registry: Registry) {
  const registers = [registry];
  return {
    partitions: new Gauge({ name: 'sluice_ingest_partitions', help: 'Partitions this process has taken', registers }),
    position: new Gauge({
      name: 'sluice_ingest_position_offset',
      help: 'First offset of a partition that is not yet in the ledger',
      labelNames: ['topic', 'partition'],
      registers,
    }),
    paused: new Gauge({
      name: 'sluice_ingest_partition_paused',
      help: '1 while a partition is paused because too many of its last messages were bad',
      labelNames: ['topic', 'partition'],
      registers,
    }),
    waiting: new Gauge({
      name: 'sluice_ingest_partition_waits_for_group',
      help: '1 while a partition waits because members of another consumer group still consume it',
      labelNames: ['topic', 'partition'],
      registers,
    }),
    unavailable: new Counter({
      name: 'sluice_ingest_unavailable_total',
      help: 'Attempts that failed because a service was unavailable: kafka, registry or clickhouse',
      labelNames: ['service'],
      registers,
    }),
    clockAhead: new Gauge({
      name: 'sluice_ingest_clock_ahead_seconds',
      help: 'How far the clock of this process is ahead of the clock of ClickHouse; negative when it is behind',
      registers,
    }),
    commitsRefused: new Counter({
      name: 'sluice_ingest_commits_refused_total',
      help: 'Commits that Kafka did not take; they are repeated',
      registers,
    }),
    lag: new Gauge({
      name: 'sluice_ingest_lag_records',
      help: 'Records of a partition that wait in Kafka or in memory',
      labelNames: ['topic', 'partition'],
      registers,
    }),
    events: new Counter({
      name: 'sluice_ingest_events_total',
      help: 'Events written: rows and dead letters',
      labelNames: ['source'],
      registers,
    }),
    batchEvents: new Histogram({
      name: 'sluice_ingest_batch_events',
      help: 'Events of one batch',
      buckets: [1, 10, 100, 1_000, 10_000, 50_000],
      registers,
    }),
    insertSeconds: new Histogram({
      name: 'sluice_ingest_insert_seconds',
      help: 'One insert of a batch, its views included',
      labelNames: ['source'],
      buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
      registers,
    }),
    schemaLookups: new Counter({
      name: 'sluice_ingest_schema_lookups_total',
      help: 'Questions to the schema registry',
      labelNames: ['outcome'],
      registers,
    }),
    freshness: new Gauge({
      name: 'sluice_ingest_freshness_seconds',
      help: 'Age of the newest record of a source at the moment at which it became visible',
      labelNames: ['source'],
      registers,
    }),
  };
}

export type IngestMetrics = ReturnType<typeof createIngestMetrics>;
