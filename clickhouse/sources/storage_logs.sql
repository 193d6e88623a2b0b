-- storage_logs: object storage logs. Project: `metadata.project`.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to storage_logs or to dead_letters.
INSERT INTO storage_logs_landing
WITH
    -- include envelope.sql
    JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), project Nullable(String), level Nullable(String)))') AS event,
    isNotNull(event.metadata.item) OR looks_structured(event.metadata.project) OR looks_structured(event.metadata.level) AS unusual,
    ifNull(if(unusual, text_at(object_at(json, 'metadata'), 'project'), event.metadata.project), '') AS project_text,
    if(looks_structured(event.id), text_at(json, 'id'), event.id) AS id_text,
    to_micros(event.timestamp) AS micros,
    isNotNull(event.timestamp) OR isNotNull(event.id) OR isNotNull(event.project) OR isValidJSON(json) AS valid,
    judge(valid, project_text != '', micros) AS verdict
SELECT
    project_text AS project,
    fromUnixTimestamp64Micro(if(verdict = '', assumeNotNull(micros), 0), 'UTC') AS timestamp,
    if(ifNull(id_text, '') = '', concat({topic:String}, '-', toString({partition:UInt32}), '-', toString(offset)), assumeNotNull(id_text)) AS id,
    if(unusual, text_at(object_at(json, 'metadata'), 'level'), event.metadata.level) AS level,
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
