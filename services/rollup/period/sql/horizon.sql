-- Event time (unix seconds) before which retention may have dropped rows of a raw table, 0 = none. Reads expired_days; one row.
-- Parameters: source; since (unix seconds): drops before this period do not count.
SELECT toUnixTimestamp(max(before)) AS horizon
FROM expired_days
WHERE source = {source:String} AND period >= toDateTime({since:UInt32}, 'UTC')
