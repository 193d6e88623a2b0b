-- usage.api-counts: edge requests whose url contains @project, by bucket and API family; buckets without a request are left out.
-- Parameters: @project, a literal reference (exactly 20 lower-case letters) or any RE2 pattern, `.` not matching a newline;
--   @interval, a window: minutely, 15min, 30min, 3hr (minute buckets), hourly, 1day, 3day (hour buckets), daily (day buckets); @now.
-- The window is half open: it starts exactly at @now minus its length, that instant included, and has no end of its own.
-- Reads: of a literal reference the hour tier, at the start of the window the minute tier up to its first whole hour and single
--   events up to its first whole minute, and the few events with too many references; of any other pattern the window's raw edge_logs.
--   Branches of the other kind are not sent (`-- only`), or folded away before anything is read.
-- A DateTime64 column is compared with DateTime64 only: against a DateTime, the engine's index takes `< 00:00:01` as `<= 00:00:00` and loses rows.
-- Rows: at most one per bucket of the window and of the hour that events may lie ahead: 242 (3hr).
WITH
    match(@project, '^[a-z]{20}\\z') AS literal,
    @interval IN ('hourly', '1day', '3day', 'daily') AS hours_suffice,
    concat('(?-s)', @project) AS pattern,
    toUInt32(multiIf(@interval = 'daily', 86400, hours_suffice, 3600, 60)) AS width,
    @now - toIntervalSecond(multiIf(
        @interval = '15min', 900,
        @interval = '30min', 1800,
        @interval IN ('minutely', 'hourly'), 3600,
        @interval = '3hr', 10800,
        @interval = '1day', 86400,
        @interval = '3day', 259200,
        604800)) AS window_start,
    toDateTime(ceil(toUnixTimestamp64Micro(window_start) / 60000000) * 60, 'UTC') AS first_minute,
    toDateTime(ceil(toUnixTimestamp(first_minute) / 3600) * 3600, 'UTC') AS first_hour
SELECT
    toDateTime(intDiv(toUnixTimestamp(at), width) * width, 'UTC') AS timestamp,
    sum(rest) AS total_rest_requests,
    sum(storage) AS total_storage_requests,
    sum(auth) AS total_auth_requests,
    sum(realtime) AS total_realtime_requests
FROM
(
    -- only project ~ ^[a-z]{20}$ and interval: hourly, 1day, 3day, daily
    SELECT bucket AS at, rest, storage, auth, realtime
    FROM api_requests_1h
    WHERE literal
      AND hours_suffice
      AND ref = toFixedString(substring(@project, 1, 20), 20)
      AND bucket >= first_hour

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT bucket AS at, rest, storage, auth, realtime
    FROM api_requests_1m
    WHERE literal
      AND ref = toFixedString(substring(@project, 1, 20), 20)
      AND bucket >= first_minute
      AND (NOT hours_suffice OR bucket < first_hour)

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT toDateTime(timestamp, 'UTC') AS at, toUInt64(bitTest(families, 0)) AS rest, toUInt64(bitTest(families, 1)) AS storage, toUInt64(bitTest(families, 2)) AS auth, toUInt64(bitTest(families, 3)) AS realtime
    FROM api_request_events
    WHERE literal
      AND ref = toFixedString(substring(@project, 1, 20), 20)
      AND timestamp >= window_start
      AND timestamp < toDateTime64(first_minute, 6, 'UTC')

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT toDateTime(timestamp, 'UTC') AS at, toUInt64(bitTest(families, 0)) AS rest, toUInt64(bitTest(families, 1)) AS storage, toUInt64(bitTest(families, 2)) AS auth, toUInt64(bitTest(families, 3)) AS realtime
    FROM api_requests_overflow
    WHERE literal
      AND timestamp >= window_start
      AND position(url, @project) > 0

    UNION ALL

    -- only project !~ ^[a-z]{20}$
    -- match('', pattern) is always true or false, and refuses a wrong pattern also where there is nothing to scan
    SELECT toDateTime(timestamp, 'UTC') AS at, toUInt64(bitTest(families, 0)) AS rest, toUInt64(bitTest(families, 1)) AS storage, toUInt64(bitTest(families, 2)) AS auth, toUInt64(bitTest(families, 3)) AS realtime
    FROM edge_logs
    WHERE NOT literal
      AND match('', pattern) IN (0, 1)
      AND timestamp >= window_start
      AND match(url, pattern)
)
GROUP BY timestamp
ORDER BY timestamp
