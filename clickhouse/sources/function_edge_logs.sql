-- function_edge_logs: serverless function gateway logs. Project: `metadata.project_ref`.
-- An invocation record is an event whose metadata.response is an object or a list that begins with one.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to function_edge_logs or to dead_letters.
INSERT INTO function_edge_logs_landing
WITH
    -- include envelope.sql
    JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), project_ref Nullable(String), function_id Nullable(String), execution_time_ms Nullable(String), response Tuple(item Nullable(String), status_code Nullable(String))))') AS event,
    isNotNull(event.metadata.item) OR isNotNull(event.metadata.response.item)
        OR looks_structured(event.metadata.project_ref) OR looks_structured(event.metadata.function_id) AS unusual,
    object_at(json, 'metadata') AS metadata_object,
    ifNull(if(unusual, text_at(metadata_object, 'project_ref'), event.metadata.project_ref), '') AS project_text,
    if(unusual, text_at(object_at(metadata_object, 'response'), 'status_code'), event.metadata.response.status_code) AS status_text,
    if(looks_structured(event.id), text_at(json, 'id'), event.id) AS id_text,
    to_micros(event.timestamp) AS micros,
    isNotNull(event.timestamp) OR isNotNull(event.id) OR isNotNull(event.project) OR isValidJSON(json) AS valid,
    judge(valid, project_text != '', micros) AS verdict
SELECT
    project_text AS project,
    fromUnixTimestamp64Micro(if(verdict = '', assumeNotNull(micros), 0), 'UTC') AS timestamp,
    if(ifNull(id_text, '') = '', concat({topic:String}, '-', toString({partition:UInt32}), '-', toString(offset)), assumeNotNull(id_text)) AS id,
    ifNull(if(unusual, text_at(metadata_object, 'function_id'), event.metadata.function_id), '') AS function_id,
    if(isNotNull(status_text), true, JSONType(metadata_object, 'response') = 'Object' OR JSONType(metadata_object, 'response', 1) = 'Object' AND JSONType(metadata_object, 'response') = 'Array') AS is_invocation,
    to_status(status_text) AS status_code,
    to_milliseconds(if(unusual, text_at(metadata_object, 'execution_time_ms'), event.metadata.execution_time_ms)) AS execution_time_ms,
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
