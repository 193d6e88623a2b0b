-- Up to where retention has dropped the days of a raw table: rows of events before this may be gone, also where a longer retention is set by now.
CREATE TABLE expired_days
(
    source LowCardinality(String),
    before SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY source;
