import { Counter, Gauge, type Registry } from '../../common/metrics.ts';

/** Without a registry (in commands) nobody reads them. */
export function createRollupMetrics(registry: Registry | undefined) {
  const registers = registry === undefined ? [] : [registry];
  return {
    periodsLeft: new Gauge({
      name: 'sluice_rollup_build_periods_left',
      help: 'Periods of history that a rollup does not contain yet',
      labelNames: ['rollup', 'version'],
      registers,
    }),
    built: new Counter({
      name: 'sluice_rollup_build_rows_total',
      help: 'Raw rows read to build rollups',
      labelNames: ['rollup'],
      registers,
    }),
    auditedTo: new Gauge({
      name: 'sluice_rollup_audited_to_seconds',
      help: 'Event time up to which closed minutes have been compared with the raw table, unix time',
      labelNames: ['rollup'],
      registers,
    }),
    auditSeconds: new Counter({
      name: 'sluice_rollup_audit_seconds_total',
      help: 'Time spent comparing',
      labelNames: ['rollup'],
      registers,
    }),
    differences: new Gauge({
      name: 'sluice_rollup_differences',
      help: 'Minutes in which a rollup still differs from the raw table after a rebuild',
      labelNames: ['rollup'],
      registers,
    }),
    sourceIncomplete: new Gauge({
      name: 'sluice_rollup_source_incomplete',
      help: '1 while a repair is refused because the raw table has fewer rows than the ledger counts',
      labelNames: ['rollup'],
      registers,
    }),
    repairs: new Counter({
      name: 'sluice_rollup_repairs_total',
      help: 'Spans of periods that were rebuilt',
      labelNames: ['rollup'],
      registers,
    }),
    dropped: new Counter({
      name: 'sluice_rollup_dropped_partitions_total',
      help: 'Partitions dropped because they are older than their retention',
      labelNames: ['table'],
      registers,
    }),
    tableParts: new Gauge({
      name: 'sluice_rollup_table_parts',
      help: 'Active parts of a table',
      labelNames: ['table'],
      registers,
    }),
    tableFullestPartition: new Gauge({
      name: 'sluice_rollup_table_fullest_partition_parts',
      help: 'Active parts of the fullest partition of a table; ClickHouse slows inserts down from 1,000 and refuses them from 3,000',
      labelNames: ['table'],
      registers,
    }),
    tableBytes: new Gauge({
      name: 'sluice_rollup_table_bytes',
      help: 'Bytes of a table on disk',
      labelNames: ['table'],
      registers,
    }),
    tableRows: new Gauge({
      name: 'sluice_rollup_table_rows',
      help: 'Rows of a table',
      labelNames: ['table'],
      registers,
    }),
    deadLetterShare: new Gauge({
      name: 'sluice_rollup_dead_letter_share',
      help: 'Share of dead letters among the messages of the last ten minutes, 0 to 1, by the ledger',
      labelNames: ['source'],
      registers,
    }),
  };
}

export type RollupMetrics = ReturnType<typeof createRollupMetrics>;
