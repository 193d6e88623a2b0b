-- usage.api-counts: edge requests whose url contains @project, by bucket and API family; buckets without a request are left out.
-- Parameters: @project, a literal reference (exactly 20 lower-case letters) or any RE2 pattern, `.` not matching a newline;
--   @interval, a window: minutely, 15min, 30min, 3hr (minute buckets), hourly, 1day, 3day (hour buckets), daily (day buckets); @now.
-- The window is half open: it starts exactly at @now minus its length, that instant included, and has no end of its own.
-- Reads: of a literal reference the hour tier, at the start of the window the minute tier up to its first whole hour and single
--   events up to its first whole minute, and the few events with too many references; of any other pattern the window's raw edge_logs.
--   Branches of the other kind are not sent (`-- only`), or folded away before anything is read.
-- An event is judged at most an hour before its time: periods before first_period have nothing of the window (docs/rollups.md, Periods), and are not planned over.
-- A DateTime64 column is compared with DateTime64 only: against a DateTime, the engine's index takes `< 00:00:01` as `<= 00:00:00` and loses rows.
-- Rows: at most one per bucket of the window and of the hour that events may lie ahead: 242 (3hr).
WITH
    match(@project, '^[a-z]{20}\\z') AS literal,
    toFixedString(substring(@project, 1, 20), 20) AS reference,
    concat('(?-s)', @project) AS pattern,
    indexOf(['minutely', '15min', '30min', '3hr', 'hourly', '1day', '3day', 'daily'], @interval) AS chosen,
    chosen > 4 AS hours_suffice,
    [60, 60, 60, 60, 3600, 3600, 3600, 86400][chosen] AS width,
    @now - toIntervalSecond([3600, 900, 1800, 10800, 3600, 86400, 259200, 604800][chosen]) AS window_start,
    toStartOfMinute(window_start + toIntervalMicrosecond(59999999)) AS first_minute,
    toStartOfHour(first_minute + 3599) AS first_hour,
    -- the window starts less than a minute before first_minute
    toStartOfDay(first_minute - 3660, 'UTC') AS first_period
SELECT
    toStartOfInterval(at, toIntervalSecond(width), 'UTC') AS timestamp,
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
      AND ref = reference
      AND bucket >= first_hour
      AND period >= first_period

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT bucket AS at, rest, storage, auth, realtime
    FROM api_requests_1m
    WHERE literal
      AND ref = reference
      AND bucket >= first_minute
      AND period >= first_period
      AND (NOT hours_suffice OR bucket < first_hour)

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT toDateTime(timestamp, 'UTC') AS at, bitTest(families, 0) AS rest, bitTest(families, 1) AS storage, bitTest(families, 2) AS auth, bitTest(families, 3) AS realtime
    FROM api_request_events
    WHERE literal
      AND ref = reference
      AND period >= first_period
      AND timestamp >= window_start
      AND timestamp < toDateTime64(first_minute, 6, 'UTC')

    UNION ALL

    -- only project ~ ^[a-z]{20}$
    SELECT toDateTime(timestamp, 'UTC') AS at, bitTest(families, 0) AS rest, bitTest(families, 1) AS storage, bitTest(families, 2) AS auth, bitTest(families, 3) AS realtime
    FROM api_requests_overflow
    WHERE literal
      AND period >= first_period
      AND timestamp >= window_start
      AND position(url, @project) > 0

    UNION ALL

    -- only project !~ ^[a-z]{20}$
    -- match('', pattern) is always true or false, and refuses a wrong pattern also where there is nothing to scan
    SELECT toDateTime(timestamp, 'UTC') AS at, bitTest(families, 0) AS rest, bitTest(families, 1) AS storage, bitTest(families, 2) AS auth, bitTest(families, 3) AS realtime
    FROM edge_logs
    PREWHERE timestamp >= window_start
      AND match(url, pattern)
    WHERE NOT literal
      AND match('', pattern) IN (0, 1)
)
GROUP BY timestamp
ORDER BY timestamp
