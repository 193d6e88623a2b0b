-- What ingest tries at its start, before it takes a message: that an insert under the same token counts once, in a table and in its view, and that one which
-- fails leaves nothing. Two partitions, a day each, so that a batch of the canary makes parts as batches of messages do. Nothing of it is kept for longer than a day.
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
