-- functions.invocation-stats: invocations of one project's functions as a series of buckets, including empty ones.
-- Parameters: @project; @function_id, '' = all; @interval 5min, 15min, 1hr, 1day or 7day; @now.
-- Reads: 5min raw function_edge_logs (five minutes of one project), the others function_invocations (columns:
--   clickhouse/migrations/0018_create_function_invocations.sql): minutes for 15min and 1hr, hours for 1day, days for 7day;
--   the branch of other intervals is not sent (`-- only`).
-- Every row of an event at X has period >= the start of the day of X - 1 h: so older periods have nothing of the series and are skipped (docs/rollups.md).
-- One SELECT and short expressions: planning is most of what an answer costs.
-- A DateTime64 column is compared with DateTime64 only: against a DateTime, the engine's index takes `< 00:00:01` as `<= 00:00:00` and loses rows.
-- Rows: 301, 16, 61, 25 or 8, ascending; the last bucket contains @now.
WITH
    indexOf(['5min', '15min', '1hr', '1day', '7day'], @interval) AS chosen,
    toUInt32([1, 60, 60, 3600, 86400][chosen]) AS bucket_width,
    toUInt32([300, 900, 3600, 86400, 604800][chosen]) AS span,
    toUnixTimestamp(@now) AS now_second,
    toDateTime(now_second - now_second % bucket_width, 'UTC') AS last_bucket,
    last_bucket - span AS first_bucket,
    last_bucket + bucket_width AS series_end,
    toStartOfDay(first_bucket - 3600, 'UTC') AS first_period,
    quantilesTDigestMerge(0.95, 0.99)(pieces.execution_quantiles) AS quantiles
SELECT
    toStartOfInterval(pieces.bucket, toIntervalSecond(bucket_width), 'UTC') AS timestamp,
    min(pieces.execution_min) AS min_execution_time,
    max(pieces.execution_max) AS max_execution_time,
    least(greatest(sum(pieces.execution_sum) / nullIf(sum(pieces.execution_count), 0), min_execution_time), max_execution_time) AS avg_execution_time,
    least(greatest(quantiles[1], min_execution_time), max_execution_time) AS p95_execution_time,
    least(greatest(quantiles[2], p95_execution_time), max_execution_time) AS p99_execution_time,
    sum(pieces.count) AS count,
    sum(pieces.error_count) AS error_count
FROM
(
    -- only interval: 5min
    SELECT
        toDateTime(timestamp, 'UTC') AS bucket,
        count() AS count,
        countIf(status_code >= 400) AS error_count,
        count(execution_time_ms) AS execution_count,
        ifNull(sum(execution_time_ms), 0) AS execution_sum,
        min(execution_time_ms) AS execution_min,
        max(execution_time_ms) AS execution_max,
        quantilesTDigestState(0.95, 0.99)(execution_time_ms) AS execution_quantiles
    FROM function_edge_logs
    PREWHERE project = @project
      AND timestamp >= toDateTime64(first_bucket, 6, 'UTC')
      AND timestamp < toDateTime64(series_end, 6, 'UTC')
    WHERE @interval = '5min'
      AND (@function_id = '' OR function_id = @function_id)
      AND is_invocation
    GROUP BY bucket

    UNION ALL

    -- only interval: 15min, 1hr, 1day, 7day
    SELECT at AS bucket, count, error_count, execution_count, execution_sum, execution_min, execution_max, execution_quantiles
    FROM function_invocations
    WHERE @interval IN ('15min', '1hr', '1day', '7day')
      AND width = bucket_width
      AND project = @project
      AND (@function_id = '' OR function_id = @function_id)
      AND at >= first_bucket
      AND period >= first_period
      AND at < series_end
) AS pieces
GROUP BY timestamp
ORDER BY timestamp WITH FILL FROM first_bucket TO series_end STEP bucket_width
