-- Edge requests per project reference (20 lower-case letters anywhere in the url) and API family, in buckets of `width` seconds that begin
-- at `at`: hours (3600), minutes (60), and single requests (0, for the part of a bucket at the start of a window).
--   A url with more than 64 of them, or more than 256 letters in runs of 20 and more, has one row instead: width 0, ref of zero bytes, its url.
--   An answer for a reference searches the urls of these rows too. refs, families: 0001_create_edge_logs.sql
-- One table for all widths: an insert of nine events takes half the CPU of four tables, an answer has one branch to plan instead of four.
CREATE TABLE api_requests_v1
(
    period   DateTime('UTC'),
    width    UInt32,
    ref      FixedString(20),
    at       DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    url      String CODEC(ZSTD(1)),
    requests SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    rest     SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    storage  SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    auth     SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
    realtime SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1))
)
ENGINE = AggregatingMergeTree
PARTITION BY period
PRIMARY KEY (ref, width, at)
ORDER BY (ref, width, at, url)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 10000, min_age_to_force_merge_seconds = 7200, min_age_to_force_merge_on_partition_only = 1,
    -- as in the raw tables: width and time stay in the index
    primary_key_ratio_of_unique_prefix_values_to_skip_suffix_columns = 1,
    min_bytes_for_wide_part = 1073741824,
    -- ten parts at once where the default takes five: under full ingest half as many rows are merged, for 2 us less CPU an edge event
    merge_selector_base = 10;

-- A row per request, width and reference: the insert itself merges those that are alike (optimize_on_insert), for less than a GROUP BY.
-- edge_logs has no alias here: a RESTORE into a database of another name drops it (25.8 and 26.7)
CREATE MATERIALIZED VIEW api_requests_v1_mv TO api_requests_v1 AS
SELECT
    period,
    toUInt32(arrayJoin(if(refs_overflow, [0], [0, 60, 3600]))) AS width,
    arrayJoin(if(refs_overflow, [toFixedString('', 20)], refs)) AS ref,
    if(width = 0, timestamp, toDateTime64(if(width = 60, toStartOfMinute(timestamp, 'UTC'), toStartOfHour(timestamp, 'UTC')), 6, 'UTC')) AS at,
    if(refs_overflow, assumeNotNull(url), '') AS url,
    toUInt64(1) AS requests,
    toUInt64(bitTest(families, 0)) AS rest,
    toUInt64(bitTest(families, 1)) AS storage,
    toUInt64(bitTest(families, 2)) AS auth,
    toUInt64(bitTest(families, 3)) AS realtime
FROM edge_logs;

CREATE VIEW api_requests AS SELECT * FROM api_requests_v1;

INSERT INTO rollups (name, version, source, widest) VALUES ('api_requests', 1, 'edge_logs', 3600);
