-- logs.all: the newest edge logs of one project, at most @limit.
-- Parameters: @project; @project_tier FREE, PRO, PAYG or ENTERPRISE; @iso_timestamp_start (exclusive) and @iso_timestamp_end
--   (inclusive), NULL = open; @limit, 1 to 100; @now.
-- Reads: edge_logs by (project, timestamp): backwards for the time of the oldest entry to show, first in the last six hours, which opens a partition or two,
--   then in the window from there on; then the rows since that time. Where those hours have fewer, every part of the window gives its newest granule.
--   The other eight sources have their filters below, but the result does not select from them, so they are not read.
-- Rows: at most @limit, newest first; ties by id, partition, offset, all descending.
WITH
    @now - toIntervalDay(multiIf(@project_tier IN ('PAYG', 'ENTERPRISE'), 90, @project_tier = 'PRO', 7, 1)) AS retained_from,
    edge AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM edge_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    -- ordered by time alone, which is the order of the key: with more columns, all rows of the window would be read and sorted, half a million for one page
    oldest_of_late AS
    (
        SELECT timestamp
        FROM edge
        WHERE timestamp > least(@now, ifNull(@iso_timestamp_end, @now)) - toIntervalHour(6)
        ORDER BY timestamp DESC
        LIMIT 1 OFFSET @limit - 1
    ),
    oldest AS
    (
        SELECT timestamp
        FROM edge
        WHERE timestamp >= ifNull((SELECT timestamp FROM oldest_of_late), retained_from)
        ORDER BY timestamp DESC
        LIMIT 1 OFFSET @limit - 1
    ),
    postgres AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM postgres_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    function_edge AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM function_edge_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    function_events AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM function_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    auth AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM auth_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    realtime AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM realtime_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    storage AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM storage_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    postgrest AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM postgrest_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    ),
    pgbouncer AS
    (
        SELECT id, timestamp, message, kafka_partition, kafka_offset
        FROM pgbouncer_logs
        WHERE project = @project
          AND timestamp > retained_from
          AND (isNull(@iso_timestamp_start) OR timestamp > @iso_timestamp_start)
          AND (isNull(@iso_timestamp_end) OR timestamp <= @iso_timestamp_end)
    )
SELECT id, timestamp, message
FROM edge
WHERE timestamp >= ifNull((SELECT timestamp FROM oldest), retained_from)
ORDER BY timestamp DESC, id DESC, kafka_partition DESC, kafka_offset DESC
LIMIT @limit
