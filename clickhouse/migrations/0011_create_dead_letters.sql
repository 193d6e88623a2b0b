-- Every message that is not a row of its raw table: its original bytes, where it stood, and why.
--   reason: not_an_event, malformed_json, unknown_schema, malformed_avro, missing_project, bad_timestamp,
--           timestamp_out_of_range, too_large
--   inserted_at: by the engine's clock; letters expire by it, because a host whose clock is far behind would write letters that have expired
CREATE TABLE dead_letters
(
    source            LowCardinality(String),
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32,
    kafka_partition   UInt32,
    kafka_offset      UInt64,
    batch_last        UInt64,
    evaluated_at      DateTime64(3, 'UTC'),
    rules             UInt16,
    record_time       Int64,
    reason            LowCardinality(String),
    detail            String,
    key               Nullable(String),
    headers           Array(Tuple(name String, value Nullable(String))),
    value             String CODEC(ZSTD(1)),
    inserted_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX inserted_at_minmax inserted_at TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(evaluated_at)
ORDER BY (kafka_topic, kafka_incarnation, kafka_partition, kafka_offset)
TTL toDateTime(inserted_at, 'UTC') + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
