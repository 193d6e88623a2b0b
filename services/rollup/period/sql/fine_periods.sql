-- Periods before a moment of which a rollup has buckets narrower than an hour. Parameters: table, before (unix seconds). One row per period, ascending (unix seconds).
SELECT DISTINCT toUnixTimestamp(period) AS period
FROM {table:Identifier}
WHERE period < toDateTime({before:UInt32}, 'UTC') AND width < 3600
ORDER BY period
