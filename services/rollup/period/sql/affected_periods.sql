-- Periods in which a raw table or its rollup has events of a span of time. Parameters: source, table, from, to (unix seconds). One row per period, ascending.
SELECT DISTINCT toUnixTimestamp(period) AS period
FROM
(
    SELECT period
    FROM {source:Identifier}
    WHERE timestamp >= toDateTime64({from:UInt32}, 6, 'UTC') AND timestamp < toDateTime64({to:UInt32}, 6, 'UTC')
    UNION ALL
    SELECT period
    FROM {table:Identifier}
    WHERE at >= toDateTime64({from:UInt32}, 6, 'UTC') AND at < toDateTime64({to:UInt32}, 6, 'UTC')
)
ORDER BY period
