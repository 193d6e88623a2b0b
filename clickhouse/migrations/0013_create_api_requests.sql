-- Edge requests per project reference (a window of 20 lower-case letters anywhere in the url) and API family.
CREATE TABLE api_requests_1m
(
    ref      FixedString(20),
    bucket   DateTime('UTC') CODEC(Delta, ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    rest     SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    storage  SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    auth     SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    realtime SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (ref, bucket)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE TABLE api_requests_1h AS api_requests_1m;

-- Single events of one reference at one moment, for the partial minute at the start of a window.
CREATE TABLE api_request_events
(
    ref       FixedString(20),
    timestamp DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    families  UInt8
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
ORDER BY (ref, timestamp)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

-- Events whose url has more than 64 windows: not in the tables above; a literal reference adds what matches here.
CREATE TABLE api_requests_overflow
(
    timestamp DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    url       String CODEC(ZSTD(1)),
    families  UInt8
)
ENGINE = MergeTree
PARTITION BY toDate(timestamp)
ORDER BY timestamp
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW api_requests_1m_mv TO api_requests_1m AS
SELECT
    arrayJoin(refs) AS ref,
    toStartOfMinute(timestamp, 'UTC') AS bucket,
    count() AS requests,
    countIf(bitTest(families, 0)) AS rest,
    countIf(bitTest(families, 1)) AS storage,
    countIf(bitTest(families, 2)) AS auth,
    countIf(bitTest(families, 3)) AS realtime
FROM edge_logs
GROUP BY ref, bucket;

CREATE MATERIALIZED VIEW api_requests_1h_mv TO api_requests_1h AS
SELECT
    ref,
    toStartOfHour(m.bucket, 'UTC') AS bucket,
    sum(m.requests) AS requests,
    sum(m.rest) AS rest,
    sum(m.storage) AS storage,
    sum(m.auth) AS auth,
    sum(m.realtime) AS realtime
FROM api_requests_1m AS m
GROUP BY ref, bucket;

CREATE MATERIALIZED VIEW api_request_events_mv TO api_request_events AS
SELECT arrayJoin(refs) AS ref, timestamp, families
FROM edge_logs;

CREATE MATERIALIZED VIEW api_requests_overflow_mv TO api_requests_overflow AS
SELECT timestamp, assumeNotNull(url) AS url, families
FROM edge_logs
WHERE refs_overflow;
