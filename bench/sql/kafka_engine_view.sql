-- Edge events of ClickHouse's own Kafka engine into the same raw table, from where the same views fill the same rollups. As one would write it who knows that every
-- event is well formed: one JSONExtract, no odd case, no dead letter, no guard against doubles.
CREATE MATERIALIZED VIEW edge_queue_mv TO edge_logs AS
WITH
    JSONExtract(value, 'Tuple(id String, timestamp Int64, project String, metadata Tuple(request Tuple(url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String)), response Tuple(status_code Nullable(UInt16))))') AS event,
    event.metadata.request AS request,
    arrayDistinct(arrayFlatten(arrayMap(run -> ngrams(run, 20), extractAll(ifNull(request.url, ''), '[a-z]{20,}')))) AS windows
SELECT
    event.project AS project,
    fromUnixTimestamp64Micro(event.timestamp, 'UTC') AS timestamp,
    event.id AS id,
    request.url AS url,
    request.host AS host,
    request.path AS path,
    request.method AS method,
    event.metadata.response.status_code AS status_code,
    ifNull(toUInt8((position(path, '/rest') > 0) + 2 * (position(path, '/storage') > 0) + 4 * (position(path, '/auth') > 0) + 8 * (position(path, '/realtime') > 0)), 0) AS families,
    CAST(windows, 'Array(FixedString(20))') AS refs,
    false AS refs_overflow,
    value AS message,
    _topic AS kafka_topic,
    1 AS kafka_incarnation,
    toUInt32(_partition) AS kafka_partition,
    _offset AS kafka_offset,
    _offset AS batch_last,
    now64(3, 'UTC') AS evaluated_at,
    1 AS rules,
    toStartOfDay(timestamp - INTERVAL 1 HOUR, 'UTC') AS period
FROM edge_queue
