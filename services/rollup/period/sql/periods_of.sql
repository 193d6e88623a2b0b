-- Periods that a raw table or a rollup has rows of. Parameters: table. One row per period, ascending (unix seconds).
SELECT DISTINCT toUnixTimestamp(period) AS period
FROM {table:Identifier}
ORDER BY period
