import { loadMigrations, type Migration } from '../../../common/clickhouse/migrations.ts';
import { splitStatements } from '../../../common/clickhouse/sql.ts';

/**
 * What a change of a rollup looks like: a new column in the minute and hour tiers (the sum of the squares of the times), and a tier of days.
 * Everything else of it is as in the first version.
 */
const TEXT = `
CREATE TABLE function_invocations_1m_v2 AS function_invocations_1m_v1;
ALTER TABLE function_invocations_1m_v2 ADD COLUMN execution_squares SimpleAggregateFunction(sum, Float64);
CREATE TABLE function_invocations_1h_v2 AS function_invocations_1m_v2;
CREATE TABLE function_invocations_1d_v2 AS function_invocations_1m_v2;

CREATE MATERIALIZED VIEW function_invocations_1m_v2_mv TO function_invocations_1m_v2 AS
WITH (SELECT groupArray(at) FROM rollup_cuts) AS cuts
SELECT
    arrayMax(arrayFilter(c -> c <= judged_at, arrayPushBack(cuts, toStartOfDay(judged_at, 'UTC')))) AS period,
    project, function_id, toStartOfMinute(timestamp, 'UTC') AS bucket,
    count() AS count, countIf(status_code >= 400) AS error_count,
    countIf(status_code >= 100 AND status_code < 200) AS status_1xx, countIf(status_code >= 200 AND status_code < 300) AS status_2xx,
    countIf(status_code >= 300 AND status_code < 400) AS status_3xx, countIf(status_code >= 400 AND status_code < 500) AS status_4xx,
    countIf(status_code >= 500 AND status_code < 600) AS status_5xx,
    count(execution_time_ms) AS execution_count, ifNull(sum(execution_time_ms), 0) AS execution_sum, ifNull(sum(execution_time_ms * execution_time_ms), 0) AS execution_squares,
    min(execution_time_ms) AS execution_min, max(execution_time_ms) AS execution_max, quantilesTDigestState(0.95, 0.99)(execution_time_ms) AS execution_quantiles
FROM function_edge_logs
WHERE is_invocation
GROUP BY period, project, function_id, bucket;

CREATE MATERIALIZED VIEW function_invocations_1h_v2_mv TO function_invocations_1h_v2 AS
SELECT
    period, project, function_id, toStartOfHour(m.bucket, 'UTC') AS bucket, sum(m.count) AS count, sum(m.error_count) AS error_count,
    sum(m.status_1xx) AS status_1xx, sum(m.status_2xx) AS status_2xx, sum(m.status_3xx) AS status_3xx, sum(m.status_4xx) AS status_4xx, sum(m.status_5xx) AS status_5xx,
    sum(m.execution_count) AS execution_count, sum(m.execution_sum) AS execution_sum, sum(m.execution_squares) AS execution_squares,
    min(m.execution_min) AS execution_min, max(m.execution_max) AS execution_max, quantilesTDigestMergeState(0.95, 0.99)(m.execution_quantiles) AS execution_quantiles
FROM function_invocations_1m_v2 AS m
GROUP BY period, project, function_id, bucket;

CREATE MATERIALIZED VIEW function_invocations_1d_v2_mv TO function_invocations_1d_v2 AS
SELECT
    period, project, function_id, toStartOfDay(h.bucket, 'UTC') AS bucket, sum(h.count) AS count, sum(h.error_count) AS error_count,
    sum(h.status_1xx) AS status_1xx, sum(h.status_2xx) AS status_2xx, sum(h.status_3xx) AS status_3xx, sum(h.status_4xx) AS status_4xx, sum(h.status_5xx) AS status_5xx,
    sum(h.execution_count) AS execution_count, sum(h.execution_sum) AS execution_sum, sum(h.execution_squares) AS execution_squares,
    min(h.execution_min) AS execution_min, max(h.execution_max) AS execution_max, quantilesTDigestMergeState(0.95, 0.99)(h.execution_quantiles) AS execution_quantiles
FROM function_invocations_1h_v2 AS h
GROUP BY period, project, function_id, bucket;

INSERT INTO rollups (name, version, source, tables)
VALUES ('function_invocations', 2, 'function_edge_logs', ['function_invocations_1m', 'function_invocations_1h', 'function_invocations_1d']);
`;

const before = loadMigrations();

/** All migrations, and behind them one that makes the second version of a rollup. */
export const SECOND_VERSION: readonly Migration[] = [
  ...before,
  { version: before.length + 1, name: `${String(before.length + 1).padStart(4, '0')}_change_function_invocations.sql`, checksum: 'of the test', statements: splitStatements(TEXT) },
];
