-- Periods that a raw table has rows of. Parameters: source. One row per period, ascending (unix seconds).
SELECT DISTINCT toUnixTimestamp(period) AS period
FROM {source:Identifier}
ORDER BY period
