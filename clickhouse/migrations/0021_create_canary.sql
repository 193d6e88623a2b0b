-- Ingest tests the engine here at its start, before it takes a message: an insert under the same token must count once, in a table and in its view, and a
-- failing one must leave nothing. It has two partitions, a day each, so a canary batch makes parts like any batch. Its rows expire after a day.
CREATE TABLE canary
(
    attempt  String,
    number   UInt64,
    text     String,
    tried_at DateTime('UTC') DEFAULT now('UTC')
)
ENGINE = MergeTree
PARTITION BY (toDate(tried_at, 'UTC'), number % 2)
ORDER BY (attempt, number)
TTL tried_at + INTERVAL 1 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE canary_counts
(
    attempt  String,
    tried_at DateTime('UTC'),
    number   UInt64
)
ENGINE = SummingMergeTree
PARTITION BY toDate(tried_at, 'UTC')
ORDER BY (attempt, tried_at)
TTL tried_at + INTERVAL 1 HOUR
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW canary_counts_mv TO canary_counts AS
SELECT attempt, min(tried_at) AS tried_at, count() AS number
FROM canary
GROUP BY attempt;
