-- The least period that the ledger has of batches and replays with rows in a period (unix seconds). Parameters: source, period (unix seconds). One row.
--   A batch that was announced before the register knew the period has an older one, but was evaluated since the period's begin: no event is more than an
--   hour ahead of its evaluation, and none counts in a period less than an hour before it.
SELECT toUnixTimestamp(min(since)) AS since
FROM
(
    SELECT toDateTime({period:UInt32}, 'UTC') AS since
    UNION ALL
    SELECT b.period
    FROM batches AS b
    WHERE b.source = {source:String} AND b.period < toDateTime({period:UInt32}, 'UTC') AND b.evaluated_at >= toDateTime64({period:UInt32}, 3, 'UTC')
    UNION ALL
    SELECT d.period
    FROM dead_letter_replays AS d
    WHERE d.period < toDateTime({period:UInt32}, 'UTC') AND d.evaluated_at >= toDateTime64({period:UInt32}, 3, 'UTC')
)
