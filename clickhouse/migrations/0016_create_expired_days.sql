-- The event time up to which retention has dropped days of a raw table. Earlier rows may be gone, even if a longer retention is set now.
CREATE TABLE expired_days
(
    source LowCardinality(String),
    before SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY source;
