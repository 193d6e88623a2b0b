-- Periods of a raw table or its rollup that ingest has left: before the newest one, and not older than a moment.
-- Parameters: source, table, from, before (unix seconds). One row per period, ascending.
SELECT DISTINCT toUnixTimestamp(period) AS period
FROM
(
    SELECT period
    FROM {source:Identifier}
    WHERE period >= toDateTime({from:UInt32}, 'UTC') AND period < toDateTime({before:UInt32}, 'UTC')
    UNION ALL
    SELECT period
    FROM {table:Identifier}
    WHERE period >= toDateTime({from:UInt32}, 'UTC') AND period < toDateTime({before:UInt32}, 'UTC')
)
ORDER BY period
