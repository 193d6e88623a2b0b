-- Edge request logs. message is the event as JSON text; the columns from project to refs_overflow are read from it by services/ingest/evaluate.
--   id, timestamp: where the event has none, of its place and its record
--   families: bits of the API families whose mark the path contains: 1 /rest, 2 /storage, 4 /auth, 8 /realtime
--   refs: each distinct text of 20 lower-case letters in the url; empty with refs_overflow where there are more than 64, or more than 256 letters
--     in runs of 20 and more
--   evaluated_at, rules: when, and by which version of the rules, the batch was evaluated; a retry keeps both
--   period: the partition of the rollups that the row counts in (docs/rollups.md)
--   inserted_at: by the engine's clock; orders rows by when they came, whatever the clocks of ingest say
CREATE TABLE edge_logs
(
    project           String CODEC(ZSTD(1)),
    timestamp         DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    id                String CODEC(ZSTD(1)),
    url               Nullable(String) CODEC(ZSTD(1)),
    host              LowCardinality(Nullable(String)),
    path              Nullable(String) CODEC(ZSTD(1)),
    method            LowCardinality(Nullable(String)),
    status_code       Nullable(UInt16),
    families          UInt8,
    refs              Array(FixedString(20)) CODEC(ZSTD(1)),
    refs_overflow     Bool,
    message           String CODEC(ZSTD(1)),
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32 CODEC(T64, ZSTD(1)),
    kafka_partition   UInt32 CODEC(T64, ZSTD(1)),
    kafka_offset      UInt64 CODEC(Delta, ZSTD(1)),
    batch_last        UInt64 CODEC(Delta, ZSTD(1)),
    evaluated_at      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    rules             UInt16 CODEC(T64, ZSTD(1)),
    period            DateTime('UTC') CODEC(Delta, ZSTD(1)),
    inserted_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX inserted_at_minmax inserted_at TYPE minmax GRANULARITY 1024,
    INDEX period_minmax period TYPE minmax GRANULARITY 1024
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
PRIMARY KEY (project, timestamp)
ORDER BY (project, timestamp, id)
SETTINGS non_replicated_deduplication_window = 10000, ttl_only_drop_parts = 1,
    -- by default the index drops the time where nearly every granule has another project: then an answer reads all of a busy project
    primary_key_ratio_of_unique_prefix_values_to_skip_suffix_columns = 1,
    -- a smaller part is one file: with a file per column, ext4 takes 5 us of CPU an edge event to create and delete them under full ingest
    min_bytes_for_wide_part = 134217728,
    -- merges work column after column: all columns side by side take up to 370 MB for ten parts of large rows, this 139 MB
    vertical_merge_algorithm_min_rows_to_activate = 1, vertical_merge_algorithm_min_bytes_to_activate = 0,
    -- ten parts at once where the default takes five: 9 instead of 16 us of CPU an edge event
    merge_selector_base = 10;
