-- The ledger: one row per finished batch, written last, after every row of the batch is in its table.
-- For ingest it is the position of truth; for `reconcile` the account of every offset ever taken.
-- The same row may be written twice (a retry): ReplacingMergeTree and readers that take one row per `first`.
--   ranges of one topic, incarnation and partition follow each other without a hole: first = previous last + 1
--   consumed = last - first + 1 = stored + dead_lettered + null_values + no_records + gap
--   end_record_time, end_checksum: record time (ms, -1 = none) and CRC-32 of the value of the record at `last`, to notice a topic made anew;
--   end_checksum is NULL where no record stands at `last` (control record, compacted, gap)
CREATE TABLE batches
(
    topic            LowCardinality(String),
    incarnation      UInt32,
    partition        UInt32,
    first            UInt64 CODEC(Delta, ZSTD(1)),
    last             UInt64 CODEC(Delta, ZSTD(1)),
    source           LowCardinality(String),
    stored           UInt32 CODEC(T64, ZSTD(1)),
    dead_lettered    UInt32 CODEC(T64, ZSTD(1)),
    null_values      UInt32 CODEC(T64, ZSTD(1)),
    no_records       UInt64 CODEC(T64, ZSTD(1)),
    gap              UInt64 CODEC(T64, ZSTD(1)),
    judged_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    end_record_time  Int64 CODEC(Delta, ZSTD(1)),
    end_checksum     Nullable(UInt32),
    -- of its rows; NULL where it has none. Rows past retention are gone, so only batches with nothing before it are compared with their raw table
    min_timestamp    Nullable(DateTime64(6, 'UTC')) CODEC(Delta, ZSTD(1)),
    written_at       DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(judged_at)
ORDER BY (topic, partition, incarnation, first)
TTL toDateTime(judged_at, 'UTC') + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
