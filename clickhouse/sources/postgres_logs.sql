-- postgres_logs: database logs. Project: `project`. level is metadata.parsed.error_severity.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to postgres_logs or to dead_letters.
INSERT INTO postgres_logs_landing
WITH
    -- include envelope.sql
    extracted AS (SELECT *, JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), parsed Tuple(item Nullable(String), error_severity Nullable(String))))') AS event FROM documents),
    fields AS (
        SELECT *,
            isNotNull(event.metadata.item) OR isNotNull(event.metadata.parsed.item) OR looks_structured(event.metadata.parsed.error_severity) AS unusual,
            if(unusual, text_at(object_at(object_at(json, 'metadata'), 'parsed'), 'error_severity'), event.metadata.parsed.error_severity) AS level,
            ifNull(if(looks_structured(event.project), text_at(json, 'project'), event.project), '') AS project,
            project != '' AS has_project
        FROM extracted
    ),
    -- include verdict.sql
SELECT
    -- include key.sql
    level,
    -- include row.sql
FROM judged
