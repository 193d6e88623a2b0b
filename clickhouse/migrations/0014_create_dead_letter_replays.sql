-- Dead letters that were replayed and are rows of their raw table now. Marked twice is marked once.
CREATE TABLE dead_letter_replays
(
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32,
    kafka_partition   UInt32,
    kafka_offset      UInt64,
    replayed_at       DateTime64(3, 'UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset)
TTL toDateTime(replayed_at, 'UTC') + INTERVAL 400 DAY;
