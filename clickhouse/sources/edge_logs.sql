-- edge_logs: edge request logs. Project: `project`; an event that carries a url is stored without one.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to edge_logs or to dead_letters.
INSERT INTO edge_logs_landing
WITH
    -- include envelope.sql
    JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), request Tuple(item Nullable(String), url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String)), response Tuple(item Nullable(String), status_code Nullable(String))))') AS event,
    event.metadata.request AS request,
    -- a list stands where an object is usual, or a value that may not be a string: read these few with a look at every type
    isNotNull(event.metadata.item) OR isNotNull(request.item) OR isNotNull(event.metadata.response.item)
        OR (NOT startsWith(request.url, 'http') AND (looks_structured(request.url) OR looks_numeric(request.url)))
        OR (NOT startsWith(request.path, '/') AND (looks_structured(request.path) OR looks_numeric(request.path)))
        OR looks_structured(request.host) OR looks_numeric(request.host)
        OR looks_structured(request.method) OR looks_numeric(request.method) AS unusual,
    object_at(json, 'metadata') AS metadata_object,
    object_at(metadata_object, 'request') AS request_object,
    if(unusual, string_at(request_object, 'url'), request.url) AS url_text,
    if(unusual, string_at(request_object, 'path'), request.path) AS path_text,
    -- each distinct window of 20 lower-case letters. ngrams, because a lambda over positions holds a copy of its run for every window: the square of its length.
    -- Each window is 28 bytes, several times over: where so many letters stand in runs, none is made, and the event is one of the overflow
    extractAll(ifNull(url_text, ''), '[a-z]{20,}') AS runs,
    arraySum(run -> length(run), runs) > 256 AS too_many_letters,
    CAST(arrayDistinct(arrayFlatten(arrayMap(run -> ngrams(run, 20), if(too_many_letters, [], runs)))), 'Array(FixedString(20))') AS windows,
    ifNull(if(looks_structured(event.project), text_at(json, 'project'), event.project), '') AS project_text,
    if(looks_structured(event.id), text_at(json, 'id'), event.id) AS id_text,
    to_micros(event.timestamp) AS micros,
    isNotNull(event.timestamp) OR isNotNull(event.id) OR isNotNull(event.project) OR isValidJSON(json) AS valid,
    judge(valid, project_text != '' OR isNotNull(url_text), micros) AS verdict
SELECT
    project_text AS project,
    fromUnixTimestamp64Micro(if(verdict = '', assumeNotNull(micros), 0), 'UTC') AS timestamp,
    if(ifNull(id_text, '') = '', concat({topic:String}, '-', toString({partition:UInt32}), '-', toString(offset)), assumeNotNull(id_text)) AS id,
    url_text AS url,
    if(unusual, string_at(request_object, 'host'), request.host) AS host,
    path_text AS path,
    if(unusual, string_at(request_object, 'method'), request.method) AS method,
    to_status(if(unusual, text_at(object_at(metadata_object, 'response'), 'status_code'), event.metadata.response.status_code)) AS status_code,
    ifNull(toUInt8((position(path_text, '/rest') > 0) + 2 * (position(path_text, '/storage') > 0) + 4 * (position(path_text, '/auth') > 0) + 8 * (position(path_text, '/realtime') > 0)), 0) AS families,
    if(length(windows) > 64, [], windows) AS refs,
    too_many_letters OR length(windows) > 64 AS refs_overflow,
    value AS message,
    original,
    {topic:String} AS kafka_topic,
    {incarnation:UInt32} AS kafka_incarnation,
    {partition:UInt32} AS kafka_partition,
    offset AS kafka_offset,
    {batch_last:UInt64} AS batch_last,
    {judged_at:DateTime64(3, 'UTC')} AS judged_at,
    record_time,
    verdict AS reason,
    detail_of(verdict, event.timestamp) AS detail,
    key,
    headers
FROM frames
WHERE NOT throwIf(needs_exact(valid, event.id, event.timestamp, project_text), 'needs exact')
