-- Event time (unix seconds) before which retention has dropped days of a raw table, 0 = none. Parameters: source. Reads expired_days; one row.
SELECT toUnixTimestamp(max(before)) AS horizon
FROM expired_days
WHERE source = {source:String}
