import { metricsIn, type Registry } from '../../../common/metrics.ts';

/** Without a registry nobody reads them. */
export function createRollupMetrics(registry: Registry | undefined) {
  const { counter, gauge } = metricsIn(registry);
  return {
    periodsLeft: gauge(
      'sluice_rollup_build_periods_left',
      'Periods of history that a rollup does not contain yet',
      'rollup',
      'version',
    ),
    built: counter('sluice_rollup_build_rows_total', 'Raw rows read to build rollups', 'rollup'),
    auditedTo: gauge(
      'sluice_rollup_audited_to_seconds',
      'Event time up to which closed minutes have been compared with the raw table, unix time; before the first comparison, the time of the first attempt; it stays while a closed period cannot be compared',
      'rollup',
    ),
    differences: gauge(
      'sluice_rollup_differences',
      'Open repairs after which a rollup still differs from the raw table',
      'rollup',
    ),
    sourceIncomplete: gauge(
      'sluice_rollup_source_incomplete',
      '1 while a repair, or the build of a version, is refused because the raw table has fewer rows than the ledger counts, or fails because ClickHouse refuses a statement',
      'rollup',
      'version',
    ),
    failures: counter(
      'sluice_rollup_failures_total',
      'Times that ClickHouse refused work on one rollup or period: a comparison, repair, build, or retention',
      'work',
    ),
    repairs: counter('sluice_rollup_repairs_total', 'Spans of periods that were rebuilt', 'rollup'),
    tableFullestPartition: gauge(
      'sluice_rollup_table_fullest_partition_parts',
      'Active parts of the fullest partition of a table; ClickHouse slows inserts down from 1,000 and refuses them from 3,000',
      'table',
    ),
    tableBytes: gauge('sluice_rollup_table_bytes', 'Bytes of a table on disk', 'table'),
    tableRows: gauge('sluice_rollup_table_rows', 'Rows of a table', 'table'),
    deadLetterShare: gauge(
      'sluice_rollup_dead_letter_share',
      'Share of dead letters among the messages of the last ten minutes, 0 to 1, by the ledger',
      'source',
    ),
  };
}

export type RollupMetrics = ReturnType<typeof createRollupMetrics>;
