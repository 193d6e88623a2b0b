-- postgrest_logs: REST API layer logs. Project: `project`.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to postgrest_logs or to dead_letters.
INSERT INTO postgrest_logs_landing
WITH
    -- include envelope.sql
    extracted AS (SELECT *, JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), level Nullable(String)))') AS event FROM documents),
    fields AS (
        SELECT *,
            isNotNull(event.metadata.item) OR looks_structured(event.metadata.level) AS unusual,
            if(unusual, text_at(object_at(json, 'metadata'), 'level'), event.metadata.level) AS level,
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
