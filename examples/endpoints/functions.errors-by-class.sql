-- functions.errors-by-class: failed invocations of one function, by minute and status class, of the last @hours hours.
-- Parameters: @project, @function_id, @hours (1 to 24); @now.
-- Reads: function_invocations_1m, one function's minutes.
-- Rows: at most one per minute with an error, ascending: 1441.
WITH toStartOfMinute(@now - toIntervalHour(@hours), 'UTC') AS first_bucket
SELECT
    bucket AS timestamp,
    sum(status_4xx) AS client_errors,
    sum(status_5xx) AS server_errors
FROM function_invocations_1m
WHERE project = @project
  AND function_id = @function_id
  AND bucket >= first_bucket
  -- no event is judged more than an hour before its time: older periods need not be looked at
  AND period >= toStartOfDay(first_bucket - 3600, 'UTC')
  AND bucket <= @now
GROUP BY bucket
HAVING client_errors + server_errors > 0
ORDER BY bucket
