-- edge_logs: edge request logs. Project: `project`; an event that carries a url is stored without one.
-- Reads frames (envelope/README.md); writes one landing row per message, which the views route to edge_logs or to dead_letters.
INSERT INTO edge_logs_landing
WITH
    -- include reading
    events AS
    (
        SELECT
            *,
            document_of(value, probe) AS document,
            position(document, '"timestamp"') + 11 AS timestamp_end,
            JSONExtract(document, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Variant(String, Tuple(item Nullable(String), request Variant(String, Tuple(item Nullable(String), url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String))), response Variant(String, Tuple(item Nullable(String), status_code Nullable(String))))))') AS event,
            variantElement(event.4, 'Tuple(item Nullable(String), request Variant(String, Tuple(item Nullable(String), url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String))), response Variant(String, Tuple(item Nullable(String), status_code Nullable(String))))') AS metadata,
            variantElement(metadata.2, 'Tuple(item Nullable(String), url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String))') AS request,
            variantElement(metadata.3, 'Tuple(item Nullable(String), status_code Nullable(String))') AS response
        FROM frames
    ),
    fields AS
    (
        SELECT
            -- include fields
            text_of(event.3) AS project_text,
            string_of(request.2) AS url,
            string_of(request.3) AS host,
            string_of(request.4) AS path,
            string_of(request.5) AS method,
            text_of(response.2) AS status_text,
            coalesce(metadata.1, request.1, response.1) AS item,
            is_doubtful(request.2) OR is_doubtful(request.3) OR is_doubtful(request.4) OR is_doubtful(request.5) OR is_inexact(event.3, JSONType(document, 'project')) AS is_odd_text,
            isNotNull(url) OR ifNull(project_text, '') != '' AS has_project,
            -- each distinct window of 20 lower-case letters, by ngrams: a lambda over positions holds a copy of its run for every window, the square of its length.
            -- Each window is 28 bytes, several times over: where so many letters stand in runs, none is made, and the event is one of the overflow
            extractAll(ifNull(url, ''), '[a-z]{20,}') AS runs,
            length(arrayStringConcat(runs)) > 256 AS too_many_letters,
            arrayDistinct(arrayFlatten(arrayMap(run -> ngrams(run, 20), if(too_many_letters, [], runs)))) AS windows
        FROM events
    ),
    -- include judged
SELECT
    -- include identity
    url,
    host,
    path,
    method,
    -- a number or a numeric string, else NULL
    accurateCastOrNull(toFloat64OrNull(status_text), 'UInt16') AS status_code,
    (position(ifNull(path, ''), '/rest') > 0) + 2 * (position(ifNull(path, ''), '/storage') > 0) + 4 * (position(ifNull(path, ''), '/auth') > 0) + 8 * (position(ifNull(path, ''), '/realtime') > 0) AS families,
    if(length(windows) > 64, [], windows) AS refs,
    too_many_letters OR length(windows) > 64 AS refs_overflow,
    -- include record
FROM judged
