-- What every source's mapping shares: included by each <source>.sql in place of its line `-- include envelope.sql`.
-- Names for use in one SELECT over frames; nothing here is a column of a table.
--
-- Frames (RowBinary): offset UInt64, record_time Int64 (unix ms, -1 = none), given_reason String ('' = to be judged here), given_detail String,
--   key Nullable(String), headers Array(Tuple(String, Nullable(String))), probe String,
--   original String (the message where value is another text of it: JSON made of Avro; else ''), value String
-- Parameters: topic, incarnation, partition, batch_last, judged_at, retention_days, exact
--
-- exact = false is the usual way: JSON is read from value by simdjson, which refuses some valid documents (integers beyond 64 bits, doubles
-- out of range, lone surrogate escapes) and reads decimals as doubles. Whatever that could decide wrongly stops the insert before
-- its block is written (throwIf below), and ingest repeats it with exact = true and, for the messages concerned, a probe: the same
-- document with every number written as a string, from which the engine reads the same fields by their text.
    if({exact:Bool}, if(probe = '', value, probe), value) AS json,

    -- the JSON texts true, false, {...}, [...] and numbers come out of a Nullable(String) like strings: only these need a look at the type
    (text) -> text IN ('true', 'false') OR startsWith(text, '{') OR startsWith(text, '[') AS looks_structured,
    (text) -> match(text, '^-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]+)?$') AS looks_numeric,

    -- an object, or the first of a list of objects, as text; '{}' for anything else
    (document, name) -> multiIf(
        JSONType(document, name) = 'Object', JSONExtractRaw(document, name),
        JSONType(document, name) = 'Array' AND JSONType(document, name, 1) = 'Object', JSONExtractRaw(document, name, 1),
        '{}') AS object_at,
    (document, name) -> if(JSONType(document, name) = 'String', JSONExtract(document, name, 'Nullable(String)'), NULL) AS string_at,
    -- of a number or a string, NULL for anything else
    (document, name) -> if(JSONType(document, name) IN ('String', 'Int64', 'UInt64', 'Double'), JSONExtract(document, name, 'Nullable(String)'), NULL) AS text_at,

    -- a number or a numeric string, else NULL
    (text) -> accurateCastOrNull(toFloat64OrNull(text), 'UInt16') AS to_status,
    (text) -> if(isFinite(toFloat64OrNull(text)) AND toFloat64OrNull(text) >= 0, toFloat64OrNull(text), NULL) AS to_milliseconds,

    -- a double is printed in its shortest form; where that is not what the message says, its own digits decide
    (text) -> (position(text, '.') > 0 OR position(text, 'e') > 0) AND looks_numeric(text) AND position(value, text) = 0 AS is_inexact,

    -- unix microseconds by the grammar of the README, NULL where it is not met; absent = the time of the Kafka record
    (digits, size) -> multiIf(size = 10, digits * 1000000, size = 13, digits * 1000, size = 16, digits, intDiv(digits, 1000)) AS integer_to_micros,
    (text) -> multiIf(
        isNull(text), if(record_time < 0, NULL, record_time * 1000),
        length(text) IN (10, 13, 16, 19) AND match(text, '^[0-9]+$'), integer_to_micros(toInt64OrZero(text), length(text)),
        match(text, '^[0-9]{10}[.][0-9]+$'), toInt64OrZero(substring(text, 1, 10)) * 1000000 + toInt64OrZero(rightPad(substring(text, 12, 6), 6, '0')),
        match(text, '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{0,9})?)?)?(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?$'),
            toUnixTimestamp64Micro(parseDateTime64BestEffortOrNull(text, 6, 'UTC')),
        NULL) AS to_micros,

    -- the verdict: the first of these that holds, else ''. valid: simdjson read the whole document (it also refuses bytes that are not UTF-8)
    (valid, has_project, micros) -> multiIf(
        given_reason != '', given_reason,
        NOT valid, 'malformed_json',
        NOT has_project, 'missing_project',
        isNull(micros), 'bad_timestamp',
        micros < toUnixTimestamp64Milli({judged_at:DateTime64(3, 'UTC')}) * 1000 - {retention_days:Int64} * 86400000000
            OR micros > toUnixTimestamp64Milli({judged_at:DateTime64(3, 'UTC')}) * 1000 + 3600000000, 'timestamp_out_of_range',
        '') AS judge,

    (verdict, timestamp_text) -> multiIf(
        verdict = given_reason, given_detail,
        verdict IN ('bad_timestamp', 'timestamp_out_of_range'), concat('timestamp ', substring(ifNull(timestamp_text, 'of the record'), 1, 100)),
        '') AS detail_of,
    (valid, id, timestamp_text, project) -> NOT {exact:Bool} AND given_reason = ''
        AND (NOT valid OR is_inexact(ifNull(id, '')) OR is_inexact(ifNull(timestamp_text, '')) OR is_inexact(project)) AS needs_exact,
