import { loadMigrations, type Migration } from '../../../common/clickhouse/migrations.ts';
import { splitStatements } from '../../../common/clickhouse/sql.ts';

/**
 * What a change of a rollup looks like: a new column (the sum of the squares of the times), and buckets of days.
 * Everything else of it is as in the first version.
 */
const TEXT = `
CREATE TABLE function_invocations_v2 AS function_invocations_v1;
ALTER TABLE function_invocations_v2 ADD COLUMN execution_squares SimpleAggregateFunction(sum, Float64);

CREATE MATERIALIZED VIEW function_invocations_v2_mv TO function_invocations_v2 AS
SELECT
    period, toUInt32(arrayJoin([60, 3600, 86400])) AS width, project, function_id,
    multiIf(width = 60, toStartOfMinute(timestamp, 'UTC'), width = 3600, toStartOfHour(timestamp, 'UTC'), toStartOfDay(timestamp, 'UTC')) AS at,
    count() AS count, countIf(status_code >= 400) AS error_count,
    countIf(status_code >= 100 AND status_code < 200) AS status_1xx, countIf(status_code >= 200 AND status_code < 300) AS status_2xx,
    countIf(status_code >= 300 AND status_code < 400) AS status_3xx, countIf(status_code >= 400 AND status_code < 500) AS status_4xx,
    countIf(status_code >= 500 AND status_code < 600) AS status_5xx,
    count(execution_time_ms) AS execution_count, ifNull(sum(execution_time_ms), 0) AS execution_sum, ifNull(sum(execution_time_ms * execution_time_ms), 0) AS execution_squares,
    min(execution_time_ms) AS execution_min, max(execution_time_ms) AS execution_max, quantilesTDigestState(0.95, 0.99)(execution_time_ms) AS execution_quantiles
FROM function_edge_logs
WHERE is_invocation
GROUP BY period, width, project, function_id, at;

INSERT INTO rollups (name, version, source, widest, from_raw) VALUES ('function_invocations', 2, 'function_edge_logs', 86400, 3600);
`;

const before = loadMigrations();

/** All migrations, and behind them one that makes the second version of a rollup. */
export const SECOND_VERSION: readonly Migration[] = [
  ...before,
  {
    version: before.length + 1,
    name: `${String(before.length + 1).padStart(4, '0')}_change_function_invocations.sql`,
    checksum: 'of the test',
    statements: splitStatements(TEXT),
  },
];
