-- The usual way: JSON is read from the message itself. The engine's reader (simdjson) refuses some valid documents (integers beyond 64 bits, doubles
-- out of range, lone surrogate escapes), prints numbers in its own notation, turns every type into text, and takes the elements of a list for the
-- fields of an object in their order. Whatever any of that could decide wrongly is odd: the insert throws before its block is written, and
-- ingest repeats it the exact way.
    (value, probe) -> value AS document_of,
    (text) -> text AS string_of,
    (text) -> text AS text_of,
    (text) -> text AS time_of,
    (odd) -> odd AS odd_of,
    -- may be the text of a number, boolean, object or list instead of a string
    (text) -> match(text, '^(?:-?[0-9][-+.e0-9]*$|true$|false$|[\\[{])') AS is_doubtful,
    -- no string and no integer; a number 0 may be written -0. The type is asked for only where it matters, as that reads the document once more
    (text, type) -> is_doubtful(text) AND (text = '0' OR type NOT IN ('String', 'Int64', 'UInt64')) AS is_inexact,
    -- the number at the only key "timestamp" of the document, which ends at this position, in its own digits; else ''
    (document, key_end) -> if(position(document, '"timestamp"', key_end) + position(document, '\\u') = 0, extract(substring(document, key_end, 48), '^[ \\t\\r\\n]*:[ \\t\\r\\n]*(-?[0-9][-+.0-9eE]*)[ \\t\\r\\n]*[,}]'), '') AS number_written,
