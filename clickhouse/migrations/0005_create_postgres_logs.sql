-- Database logs. level is metadata.parsed.error_severity; in the other sources of this shape it is metadata.level.
CREATE TABLE postgres_logs
(
    project           String CODEC(ZSTD(1)),
    timestamp         DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    id                String CODEC(ZSTD(1)),
    level             LowCardinality(Nullable(String)),
    message           String CODEC(ZSTD(1)),
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32 CODEC(T64, ZSTD(1)),
    kafka_partition   UInt32 CODEC(T64, ZSTD(1)),
    kafka_offset      UInt64 CODEC(Delta, ZSTD(1)),
    batch_last        UInt64 CODEC(Delta, ZSTD(1)),
    judged_at         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX judged_at_minmax judged_at TYPE minmax GRANULARITY 1024
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
ORDER BY (project, timestamp, id)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

-- What one insert of ingest writes to: keeps nothing, the views below route every message to exactly one table.
CREATE TABLE postgres_logs_landing
(
    project           String,
    timestamp         DateTime64(6, 'UTC'),
    id                String,
    level             LowCardinality(Nullable(String)),
    message           String,
    original          String,
    kafka_topic       LowCardinality(String),
    kafka_incarnation UInt32,
    kafka_partition   UInt32,
    kafka_offset      UInt64,
    batch_last        UInt64,
    judged_at         DateTime64(3, 'UTC'),
    record_time       Int64,
    reason            LowCardinality(String),
    detail            String,
    key               Nullable(String),
    headers           Array(Tuple(name String, value Nullable(String)))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW postgres_logs_mv TO postgres_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM postgres_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_postgres_logs_mv TO dead_letters AS
SELECT
    'postgres_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM postgres_logs_landing
WHERE reason != '';
