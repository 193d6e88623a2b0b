-- The ledger: one row per finished batch, written last, after every row of the batch is in its table.
-- Ingest resumes each partition at its end. `reconcile` reads it as the account of every offset ever taken.
-- The same row may be written twice (a retry): ReplacingMergeTree and readers that take one row per `first`.
--   ranges of one topic, incarnation and partition follow each other without a gap: first = previous last + 1
--   consumed = last - first + 1 = stored + dead_lettered + null_values + no_records + gap
--   consumer_group: who wrote it; another group takes over only when this one has no members
--   evaluated_at, rules: when, and by which version of the rules, the messages were evaluated
--   period: the least one that its rows may have (docs/rollups.md)
--   begin_offset, begin_record_time, begin_checksum: its first record; NULL where it has none
--   end_offset, end_record_time, end_checksum: the last record at or before `last` (record time in ms, -1 = none; CRC-32 of the value), which
--     identifies the topic; control records, compaction or a gap may follow it. NULL if this incarnation had no record yet
--   closes: nothing follows in this incarnation
--   min_timestamp: of its rows; NULL where it has none. Rows past retention are gone, so only batches with nothing before it are compared with their raw table
CREATE TABLE batches
(
    topic            LowCardinality(String),
    incarnation      UInt32,
    partition        UInt32,
    first            UInt64 CODEC(Delta, ZSTD(1)),
    last             UInt64 CODEC(Delta, ZSTD(1)),
    source           LowCardinality(String),
    consumer_group   LowCardinality(String),
    stored           UInt32 CODEC(T64, ZSTD(1)),
    dead_lettered    UInt32 CODEC(T64, ZSTD(1)),
    null_values      UInt32 CODEC(T64, ZSTD(1)),
    no_records       UInt64 CODEC(T64, ZSTD(1)),
    gap              UInt64 CODEC(T64, ZSTD(1)),
    evaluated_at     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    rules            UInt16,
    period           DateTime('UTC') CODEC(Delta, ZSTD(1)),
    begin_offset     Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    begin_record_time Int64 CODEC(Delta, ZSTD(1)),
    begin_checksum   Nullable(UInt32),
    end_offset       Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    end_record_time  Int64 CODEC(Delta, ZSTD(1)),
    end_checksum     Nullable(UInt32),
    closes           Bool DEFAULT false,
    min_timestamp    Nullable(DateTime64(6, 'UTC')) CODEC(Delta, ZSTD(1)),
    written_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX written_at_minmax written_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(written_at)
ORDER BY (topic, partition, incarnation, first)
TTL toDateTime(written_at, 'UTC') + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
