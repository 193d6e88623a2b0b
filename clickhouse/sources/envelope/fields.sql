            -- of the record, and of the event what all sources share: event.1 id, event.2 timestamp, event.3 project
            offset, record_time, given_reason, given_detail, key, headers, value, original,
            text_of(event.1) AS id_text,
            time_of(event.2) AS timestamp_text,
            number_written(document, timestamp_end) AS written,
            -- absent = the time of the record in milliseconds, whose -1 (none) is no time in this form either; 13 digits reach to the year 2286
            ifNull(if(written != '' AND isNotNull(timestamp_text), written, timestamp_text), leftPad(toString(least(record_time, toInt64(9999999999999))), 13, '0')) AS time_text,
            -- the reader has read the whole document where it gives anything of it
            isNotNull(coalesce(event.1, event.2, event.3)) OR isValidJSON(document) AS valid,
            odd_of(
                -- a list that begins with null in the place of an object: its next elements pass for fields
                match(document, ':[ \\t\\r\\n]*\\[[ \\t\\r\\n]*n')
                -- the first element of a list
                OR isNotNull(item)
                OR ifNull(is_odd_text OR is_inexact(event.1, JSONType(document, 'id')) OR (written = '' AND is_doubtful(event.2) AND JSONType(document, 'timestamp') = 'Double'), false)
                -- refused, but perhaps valid
                OR (NOT valid AND match(document, '[0-9]{19}|[0-9][eE][+]?[0-9]{3}|\\\\u[dD][89a-fA-F]'))) AS odd,
