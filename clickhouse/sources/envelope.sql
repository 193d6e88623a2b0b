-- What every source's mapping begins with: included by each <source>.sql in place of its line `-- include envelope.sql`.
--
-- A mapping is a chain of named steps, each a SELECT over the one before, so that an expression is planned once and then read as a column; planning is
-- most of what a small batch costs (an alias in one WITH is planned again wherever it is used: 72 ms for edge_logs, against 32 so).
--   documents -> extracted (one JSONExtract for all fields) -> fields (the source's own) -> envelopes -> judged (verdict.sql) -> row.sql
-- What only an unusual message needs stands in one step with its if(unusual, ...): there it is not computed for the others.
--
-- Frames (RowBinary): offset UInt64, record_time Int64 (unix ms, -1 = none), given_reason String ('' = to be judged here), given_detail String,
--   key Nullable(String), headers Array(Tuple(String, Nullable(String))), probe String,
--   original String (the message where value is another text of it: JSON made of Avro; else ''), value String
-- Parameters: topic, incarnation, partition, batch_last, judged_at, retention_days, exact
--
-- exact = false is the usual way: JSON is read from value by simdjson, which refuses some valid documents (integers beyond 64 bits, doubles
-- out of range, lone surrogate escapes) and reads decimals as doubles. Whatever that could decide wrongly stops the insert before
-- its block is written (throwIf of verdict.sql), and ingest repeats it with exact = true and, for the messages concerned, a probe: the same
-- document with every number written as a string, from which the engine reads the same fields by their text.

    -- the JSON texts true, false, {...}, [...] and numbers come out of a Nullable(String) like strings: only these need a look at the type
    (text) -> text IN ('true', 'false') OR startsWith(text, '{') OR startsWith(text, '[') AS looks_structured,
    (text) -> match(text, '^-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]+)?$') AS looks_numeric,

    -- an object, or the first of a list of objects, as text; '{}' for anything else
    (document, name) -> multiIf(
        JSONType(document, name) = 'Object', JSONExtractRaw(document, name),
        JSONType(document, name) = 'Array' AND JSONType(document, name, 1) = 'Object', JSONExtractRaw(document, name, 1),
        '{}') AS object_at,
    -- of a number or a string, NULL for anything else
    (document, name) -> if(JSONType(document, name) IN ('String', 'Int64', 'UInt64', 'Double'), JSONExtract(document, name, 'Nullable(String)'), NULL) AS text_at,

    -- a number or a numeric string, else NULL
    (text) -> accurateCastOrNull(toFloat64OrNull(text), 'UInt16') AS to_status,

    -- a double is printed in its shortest form; where that is not what the message says, its own digits decide
    (text) -> (position(text, '.') > 0 OR position(text, 'e') > 0) AND looks_numeric(text) AND position(value, text) = 0 AS is_inexact,

    documents AS (SELECT *, if({exact:Bool}, if(probe = '', value, probe), value) AS json FROM frames),
