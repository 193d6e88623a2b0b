-- The newest period of the register that is not later than a period (unix seconds, 0 = none). Parameters: period (unix seconds). One row.
SELECT toUnixTimestamp(max(begin)) AS begin
FROM rollup_periods
WHERE begin <= toDateTime({period:UInt32}, 'UTC')
