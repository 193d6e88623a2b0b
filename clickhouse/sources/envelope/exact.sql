-- The exact way: fields are read from the probe (services/ingest/probe.ts), the same document in a form that leaves nothing open: keys are unique, a
-- list of objects is its first object, any other list is empty, a string begins with s and a number is a string that begins with n.
    (value, probe) -> probe AS document_of,
    (text) -> if(startsWith(text, 's'), substring(text, 2), NULL) AS string_of,
    (text) -> if(startsWith(text, 's') OR startsWith(text, 'n'), substring(text, 2), NULL) AS text_of,
    (text) -> if(startsWith(text, 's') OR startsWith(text, 'n'), substring(text, 2), text) AS time_of,
    (odd) -> false AS odd_of,
    (text) -> false AS is_doubtful,
    (text, type) -> false AS is_inexact,
    (document, key_end) -> '' AS number_written,
