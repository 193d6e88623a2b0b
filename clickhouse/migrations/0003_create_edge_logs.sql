-- Edge request logs. message is the original event as JSON text; everything else is derived from it by clickhouse/sources/edge_logs.sql.
--   families: bits of the API families whose mark the path contains: 1 /rest, 2 /storage, 4 /auth, 8 /realtime
--   refs: each distinct window of 20 lower-case letters in the url; empty with refs_overflow where there are more than 64
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
    judged_at         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX judged_at_minmax judged_at TYPE minmax GRANULARITY 1024
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
ORDER BY (project, timestamp, id)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

-- What one insert of ingest writes to: keeps nothing, the views below route every message to exactly one table.
--   original: the message's bytes where they are not its JSON text (Avro), else ''; a dead letter keeps them
CREATE TABLE edge_logs_landing
(
    project           String,
    timestamp         DateTime64(6, 'UTC'),
    id                String,
    url               Nullable(String),
    host              LowCardinality(Nullable(String)),
    path              Nullable(String),
    method            LowCardinality(Nullable(String)),
    status_code       Nullable(UInt16),
    families          UInt8,
    refs              Array(FixedString(20)),
    refs_overflow     Bool,
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

CREATE MATERIALIZED VIEW edge_logs_mv TO edge_logs AS
SELECT * EXCEPT (original, record_time, reason, detail, key, headers)
FROM edge_logs_landing
WHERE reason = '';

CREATE MATERIALIZED VIEW dead_letters_of_edge_logs_mv TO dead_letters AS
SELECT
    'edge_logs' AS source, kafka_topic, kafka_incarnation, kafka_partition, kafka_offset, batch_last, judged_at,
    record_time, reason, detail, key, headers, if(original = '', message, original) AS value
FROM edge_logs_landing
WHERE reason != '';
