-- usage.api-counts: edge requests whose url contains @project, by bucket and API family; without empty buckets.
-- Parameters: @project, a literal reference (exactly 20 lower-case letters) or any RE2 pattern, `.` not matching a newline;
--   @interval, a window: minutely, 15min, 30min, 3hr (minute buckets), hourly, 1day, 3day (hour buckets), daily (day buckets); @now.
-- The window begins exactly at @now minus its length, that instant included, and has no end.
-- Reads: of a literal reference its buckets in api_requests (columns: clickhouse/migrations/0019_create_api_requests.sql): hours (or minutes),
--   single requests (width 0) up to the first whole one, and the few requests with too many references (width 0, ref of zero bytes);
--   of any other pattern the window's raw edge_logs (columns url and families: clickhouse/migrations/0001_create_edge_logs.sql).
--   Each branch is sent for its kind of @project only (`-- only`).
-- Every row of an event at X has period >= the start of the day of X - 1 h: so older periods have nothing of the window and are skipped (docs/rollups.md).
-- A DateTime64 column is compared with DateTime64 only: against a DateTime, the engine's index takes `< 00:00:01` as `<= 00:00:00` and loses rows.
-- Rows: at most one per bucket of the window and of the hour that events may lie ahead: 242 (3hr).
WITH
    match(@project, '^[a-z]{20}\\z') AS literal,
    toFixedString(substring(@project, 1, 20), 20) AS reference,
    -- ClickHouse first searches for a text that it finds in the pattern, and misreads a class that begins with ], an optional character beyond ASCII, and
    -- in 25.8 \x61: then it loses rows. An alternative that never matches stops that search.
    -- With it a search takes up to half longer, so plain patterns do not get it
    concat(if(match(@project, '^(?:[\\w:/.^$-]|\\\\[./-])*\\z'), '(?-s)', '(?-s)[^\\x00-\\x{10FFFF}]|'), @project) AS pattern,
    indexOf(['minutely', '15min', '30min', '3hr', 'hourly', '1day', '3day', 'daily'], @interval) AS chosen,
    [60, 60, 60, 60, 3600, 3600, 3600, 86400][chosen] AS bucket_width,
    if(chosen > 4, 3600, 60) AS rollup_width,
    @now - toIntervalSecond([3600, 900, 1800, 10800, 3600, 86400, 259200, 604800][chosen]) AS window_start,
    -- the start of the first bucket of rollup_width that lies in the window as a whole
    toDateTime64((intDiv(toUnixTimestamp64Micro(window_start) - 1, rollup_width * 1000000) + 1) * rollup_width, 6, 'UTC') AS first_whole,
    toStartOfDay(window_start - 3600, 'UTC') AS first_period
SELECT
    toStartOfInterval(moment, toIntervalSecond(bucket_width), 'UTC') AS timestamp,
    sum(rest) AS total_rest_requests,
    sum(storage) AS total_storage_requests,
    sum(auth) AS total_auth_requests,
    sum(realtime) AS total_realtime_requests
FROM
(
    -- only project ~ ^[a-z]{20}$
    SELECT toDateTime(at, 'UTC') AS moment, rest, storage, auth, realtime
    FROM api_requests
    WHERE literal
      AND period >= first_period
      AND (
        (ref = reference AND width = rollup_width AND at >= first_whole)
        OR (ref = reference AND width = 0 AND at >= window_start AND at < first_whole)
        OR (ref = toFixedString('', 20) AND width = 0 AND at >= window_start AND position(url, @project) > 0)
      )

    UNION ALL

    -- only project !~ ^[a-z]{20}$
    -- match('', pattern) is constant, and refuses a wrong pattern even if there is nothing to scan
    SELECT toDateTime(timestamp, 'UTC') AS moment, bitTest(families, 0) AS rest, bitTest(families, 1) AS storage, bitTest(families, 2) AS auth, bitTest(families, 3) AS realtime
    FROM edge_logs
    PREWHERE timestamp >= window_start
      AND match(url, pattern)
    WHERE NOT literal
      AND match('', pattern) IN (0, 1)
)
GROUP BY timestamp
ORDER BY timestamp
