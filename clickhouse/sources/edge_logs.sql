-- edge_logs: edge request logs. Project: `project`; an event that carries a url is stored without one.
-- Reads frames (envelope.sql); writes one landing row per message, which the views route to edge_logs or to dead_letters.
INSERT INTO edge_logs_landing
WITH
    -- include envelope.sql
    (document, name) -> if(JSONType(document, name) = 'String', JSONExtract(document, name, 'Nullable(String)'), NULL) AS string_at,
    extracted AS (SELECT *, JSONExtract(json, 'Tuple(id Nullable(String), timestamp Nullable(String), project Nullable(String), metadata Tuple(item Nullable(String), request Tuple(item Nullable(String), url Nullable(String), host Nullable(String), path Nullable(String), method Nullable(String)), response Tuple(item Nullable(String), status_code Nullable(String))))') AS event FROM documents),
    fields AS (
        SELECT *,
            event.metadata.request AS request,
            -- a list stands where an object is usual, or a value that may not be a string: read these few with a look at every type
            isNotNull(event.metadata.item) OR isNotNull(request.item) OR isNotNull(event.metadata.response.item)
                OR (NOT startsWith(request.url, 'http') AND (looks_structured(request.url) OR looks_numeric(request.url)))
                OR (NOT startsWith(request.path, '/') AND (looks_structured(request.path) OR looks_numeric(request.path)))
                OR looks_structured(request.host) OR looks_numeric(request.host)
                OR looks_structured(request.method) OR looks_numeric(request.method) AS unusual,
            object_at(json, 'metadata') AS metadata_object,
            object_at(metadata_object, 'request') AS request_object,
            if(unusual, string_at(request_object, 'url'), request.url) AS url,
            if(unusual, string_at(request_object, 'path'), request.path) AS path,
            if(unusual, string_at(request_object, 'host'), request.host) AS host,
            if(unusual, string_at(request_object, 'method'), request.method) AS method,
            to_status(if(unusual, text_at(object_at(metadata_object, 'response'), 'status_code'), event.metadata.response.status_code)) AS status_code,
            ifNull(if(looks_structured(event.project), text_at(json, 'project'), event.project), '') AS project,
            project != '' OR isNotNull(url) AS has_project
        FROM extracted
    ),
    -- include verdict.sql
    , shaped AS (
        SELECT *,
            -- each distinct window of 20 lower-case letters. ngrams, because a lambda over positions holds a copy of its run for every window: the square of its length.
            -- Each window is 28 bytes, several times over: where so many letters stand in runs, none is made, and the event is one of the overflow
            extractAll(ifNull(url, ''), '[a-z]{20,}') AS runs,
            arraySum(run -> length(run), runs) > 256 AS too_many_letters,
            CAST(arrayDistinct(arrayFlatten(arrayMap(run -> ngrams(run, 20), if(too_many_letters, [], runs)))), 'Array(FixedString(20))') AS windows
        FROM judged
    )
SELECT
    -- include key.sql
    url,
    host,
    path,
    method,
    status_code,
    ifNull(toUInt8((position(path, '/rest') > 0) + 2 * (position(path, '/storage') > 0) + 4 * (position(path, '/auth') > 0) + 8 * (position(path, '/realtime') > 0)), 0) AS families,
    if(length(windows) > 64, [], windows) AS refs,
    too_many_letters OR length(windows) > 64 AS refs_overflow,
    -- include row.sql
FROM shaped
