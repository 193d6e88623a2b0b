-- The event time up to which retention has dropped days of a raw table. Earlier rows may be gone, even if a longer retention is set now.
--   period: the newest one when the day was dropped. Rows of later periods were stored after that, so the drop took none of them
CREATE TABLE expired_days
(
    source LowCardinality(String),
    before SimpleAggregateFunction(max, DateTime('UTC')),
    period DateTime('UTC')
)
ENGINE = AggregatingMergeTree
ORDER BY (source, period);
