-- The period that ingest writes to (unix seconds, 0 = none yet). Reads rollup_periods; one row.
SELECT toUnixTimestamp(max(begin)) AS begin
FROM rollup_periods
