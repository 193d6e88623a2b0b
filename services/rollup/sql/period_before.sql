-- The newest period of the register that is not later than a period (unix seconds, 0 = none). Parameters: period (unix seconds). One row.
SELECT toUnixTimestamp(max(p.begin)) AS since
FROM rollup_periods AS p
WHERE p.begin <= toDateTime({period:UInt32}, 'UTC')
