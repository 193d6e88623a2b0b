-- auth_logs: authentication logs. Project: `project`; metadata.project may hold another value and is not the key.
-- Reads frames (envelope/README.md); writes one landing row per message, which the views route to auth_logs or to dead_letters.
INSERT INTO auth_logs_landing
WITH
    -- include reading
    events AS
    (
        SELECT
            *,
            document_of(value, probe) AS document,
            position(document, '"timestamp"') + 11 AS timestamp_end,
            JSONExtract(document, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Variant(String, Tuple(item Nullable(String), level Nullable(String))))') AS event,
            variantElement(event.4, 'Tuple(item Nullable(String), level Nullable(String))') AS metadata
        FROM frames
    ),
    fields AS
    (
        SELECT
            -- include fields
            text_of(event.3) AS project_text,
            text_of(metadata.2) AS level,
            metadata.1 AS item,
            is_inexact(event.3, JSONType(document, 'project')) OR is_inexact(metadata.2, JSONType(document, 'metadata', 'level')) AS is_odd_text,
            ifNull(project_text, '') != '' AS has_project
        FROM events
    ),
    -- include judged
SELECT
    -- include identity
    level,
    -- include record
FROM judged
