-- postgres_logs: database logs. Project: `project`. level is metadata.parsed.error_severity.
-- Reads frames (envelope/README.md); writes one landing row per message, which the views route to postgres_logs or to dead_letters.
INSERT INTO postgres_logs_landing
WITH
    -- include reading
    events AS
    (
        SELECT
            *,
            document_of(value, probe) AS document,
            position(document, '"timestamp"') + 11 AS timestamp_end,
            JSONExtract(document, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Variant(String, Tuple(item Nullable(String), parsed Variant(String, Tuple(item Nullable(String), error_severity Nullable(String))))))') AS event,
            variantElement(event.4, 'Tuple(item Nullable(String), parsed Variant(String, Tuple(item Nullable(String), error_severity Nullable(String))))') AS metadata,
            variantElement(metadata.2, 'Tuple(item Nullable(String), error_severity Nullable(String))') AS parsed
        FROM frames
    ),
    fields AS
    (
        SELECT
            -- include fields
            text_of(event.3) AS project_text,
            text_of(parsed.2) AS level,
            coalesce(metadata.1, parsed.1) AS item,
            is_inexact(event.3, JSONType(document, 'project')) OR is_inexact(parsed.2, JSONType(document, 'metadata', 'parsed', 'error_severity')) AS is_odd_text,
            ifNull(project_text, '') != '' AS has_project
        FROM events
    ),
    -- include judged
SELECT
    -- include identity
    level,
    -- include record
FROM judged
