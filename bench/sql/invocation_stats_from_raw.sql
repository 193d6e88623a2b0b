-- functions.invocation-stats with the interval 7day from the raw logs: what its rollups save. Parameters: project, now_micros.
-- Rows: at most 8, ascending.
SELECT
    toStartOfDay(timestamp, 'UTC') AS day,
    count() AS count,
    countIf(status_code >= 400) AS error_count,
    min(execution_time_ms),
    max(execution_time_ms),
    avg(execution_time_ms),
    quantilesTDigest(0.95, 0.99)(execution_time_ms)
FROM function_edge_logs
WHERE project = {project:String}
  AND is_invocation
  AND timestamp >= toDateTime64(toStartOfDay(fromUnixTimestamp64Micro({now_micros:Int64}, 'UTC'), 'UTC') - 7 * 86400, 6, 'UTC')
GROUP BY day
ORDER BY day
