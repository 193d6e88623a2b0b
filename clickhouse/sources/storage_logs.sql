-- storage_logs: object storage logs. Project: `metadata.project`.
-- Reads frames (envelope/README.md); writes one landing row per message, which the views route to storage_logs or to dead_letters.
INSERT INTO storage_logs_landing
WITH
    -- include reading
    events AS
    (
        SELECT
            *,
            document_of(value, probe) AS document,
            position(document, '"timestamp"') + 11 AS timestamp_end,
            JSONExtract(document, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Variant(String, Tuple(item Nullable(String), project Nullable(String), level Nullable(String))))') AS event,
            variantElement(event.4, 'Tuple(item Nullable(String), project Nullable(String), level Nullable(String))') AS metadata
        FROM frames
    ),
    fields AS
    (
        SELECT
            -- include fields
            text_of(metadata.2) AS project_text,
            text_of(metadata.3) AS level,
            metadata.1 AS item,
            is_inexact(metadata.2, JSONType(document, 'metadata', 'project')) OR is_inexact(metadata.3, JSONType(document, 'metadata', 'level')) AS is_odd_text,
            ifNull(project_text, '') != '' AS has_project
        FROM events
    ),
    -- include judged
SELECT
    -- include identity
    level,
    -- include record
FROM judged
