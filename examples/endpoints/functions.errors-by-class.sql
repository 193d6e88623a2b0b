-- functions.errors-by-class: failed invocations of one function, by minute and status class, of the last @hours hours.
-- Parameters: @project, @function_id, @hours (1 to 24); @now.
-- Reads: function_invocations, one function's minutes.
-- Rows: at most one per minute with an error, ascending: 1441.
WITH toStartOfMinute(@now - toIntervalHour(@hours), 'UTC') AS first_bucket
SELECT
    at AS timestamp,
    sum(status_4xx) AS client_errors,
    sum(status_5xx) AS server_errors
FROM function_invocations
WHERE width = 60
  AND project = @project
  AND function_id = @function_id
  AND at >= first_bucket
  -- every row of an event at X has period >= the start of the day of X - 1 h: so older periods are skipped
  AND period >= toStartOfDay(first_bucket - 3600, 'UTC')
  AND at <= @now
GROUP BY at
HAVING client_errors + server_errors > 0
ORDER BY at
