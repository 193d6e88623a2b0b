-- function_edge_logs: serverless function gateway logs. Project: `metadata.project_ref`.
-- An invocation record is an event whose metadata.response is an object or a list that begins with one.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to function_edge_logs or to dead_letters.
INSERT INTO function_edge_logs_landing
WITH
    -- include envelope.sql
    (text) -> if(isFinite(toFloat64OrNull(text)) AND toFloat64OrNull(text) >= 0, toFloat64OrNull(text), NULL) AS to_milliseconds,
    extracted AS (SELECT *, JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), project_ref Nullable(String), function_id Nullable(String), execution_time_ms Nullable(String), response Tuple(item Nullable(String), status_code Nullable(String))))') AS event FROM documents),
    fields AS (
        SELECT *,
            isNotNull(event.metadata.item) OR isNotNull(event.metadata.response.item)
            OR looks_structured(event.metadata.project_ref) OR looks_structured(event.metadata.function_id) AS unusual,
            object_at(json, 'metadata') AS metadata_object,
            if(unusual, text_at(object_at(metadata_object, 'response'), 'status_code'), event.metadata.response.status_code) AS status_text,
            ifNull(if(unusual, text_at(metadata_object, 'function_id'), event.metadata.function_id), '') AS function_id,
            if(isNotNull(status_text), true, JSONType(metadata_object, 'response') = 'Object' OR JSONType(metadata_object, 'response', 1) = 'Object' AND JSONType(metadata_object, 'response') = 'Array') AS is_invocation,
            to_status(status_text) AS status_code,
            to_milliseconds(if(unusual, text_at(metadata_object, 'execution_time_ms'), event.metadata.execution_time_ms)) AS execution_time_ms,
            ifNull(if(unusual, text_at(metadata_object, 'project_ref'), event.metadata.project_ref), '') AS project,
            project != '' AS has_project
        FROM extracted
    ),
    -- include verdict.sql
SELECT
    -- include key.sql
    function_id,
    is_invocation,
    status_code,
    execution_time_ms,
    -- include row.sql
FROM judged
