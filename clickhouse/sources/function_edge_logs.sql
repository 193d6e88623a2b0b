-- function_edge_logs: serverless function gateway logs. Project: `metadata.project_ref`.
-- An invocation record is an event whose metadata.response is an object or a list that begins with one.
-- Reads frames (envelope/README.md); writes one landing row per message, which the views route to function_edge_logs or to dead_letters.
INSERT INTO function_edge_logs_landing
WITH
    -- include reading
    events AS
    (
        SELECT
            *,
            document_of(value, probe) AS document,
            position(document, '"timestamp"') + 11 AS timestamp_end,
            JSONExtract(document, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Variant(String, Tuple(item Nullable(String), project_ref Nullable(String), function_id Nullable(String), execution_time_ms Nullable(String), response Variant(String, Tuple(item Nullable(String), status_code Nullable(String))))))') AS event,
            variantElement(event.4, 'Tuple(item Nullable(String), project_ref Nullable(String), function_id Nullable(String), execution_time_ms Nullable(String), response Variant(String, Tuple(item Nullable(String), status_code Nullable(String))))') AS metadata,
            variantElement(metadata.5, 'Tuple(item Nullable(String), status_code Nullable(String))') AS response
        FROM frames
    ),
    fields AS
    (
        SELECT
            -- include fields
            text_of(metadata.2) AS project_text,
            text_of(metadata.3) AS function_text,
            toFloat64OrNull(text_of(metadata.4)) AS execution_time,
            text_of(response.2) AS status_text,
            variantElement(metadata.5, 'String') AS response_text,
            -- text = neither with a status code nor a list: an empty object, or no object
            isNotNull(metadata.5) AND (isNull(response_text) OR (startsWith(ifNull(response_text, ''), '{') AND JSONType(document, 'metadata', 'response') = 'Object')) AS is_invocation,
            coalesce(metadata.1, response.1) AS item,
            is_inexact(metadata.2, JSONType(document, 'metadata', 'project_ref')) OR is_inexact(metadata.3, JSONType(document, 'metadata', 'function_id')) AS is_odd_text,
            ifNull(project_text, '') != '' AS has_project
        FROM events
    ),
    -- include judged
SELECT
    -- include identity
    ifNull(function_text, '') AS function_id,
    is_invocation,
    accurateCastOrNull(toFloat64OrNull(status_text), 'UInt16') AS status_code,
    if(isFinite(execution_time) AND execution_time >= 0, execution_time, NULL) AS execution_time_ms,
    -- include record
FROM judged
