-- id, time and verdict of a message, the same for every source: included in place of `-- include verdict.sql`.
-- Reads the step fields: the frame, json, event (a tuple with id, timestamp, project), project, has_project.
    envelopes AS (
        SELECT *,
            event.timestamp AS timestamp_text,
            if(looks_structured(event.id), text_at(json, 'id'), event.id) AS id_text,
            -- unix microseconds by the grammar of the README, NULL where it is not met; absent = the time of the Kafka record
            multiIf(
                isNull(event.timestamp), if(record_time < 0, NULL, record_time * 1000),
                length(event.timestamp) IN (10, 13, 16, 19) AND match(event.timestamp, '^[0-9]+$'), multiIf(
                    length(event.timestamp) = 10, toInt64OrZero(event.timestamp) * 1000000,
                    length(event.timestamp) = 13, toInt64OrZero(event.timestamp) * 1000,
                    length(event.timestamp) = 16, toInt64OrZero(event.timestamp),
                    intDiv(toInt64OrZero(event.timestamp), 1000)),
                match(event.timestamp, '^[0-9]{10}[.][0-9]+$'),
                    toInt64OrZero(substring(event.timestamp, 1, 10)) * 1000000 + toInt64OrZero(rightPad(substring(event.timestamp, 12, 6), 6, '0')),
                match(event.timestamp, '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{0,9})?)?)?(Z|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])?$'),
                    toUnixTimestamp64Micro(parseDateTime64BestEffortOrNull(event.timestamp, 6, 'UTC')),
                NULL) AS micros,
            -- simdjson read the whole document; it also refuses bytes that are not UTF-8
            isNotNull(event.timestamp) OR isNotNull(event.id) OR isNotNull(event.project) OR isValidJSON(json) AS valid
        FROM fields
    ),
    judged AS (
        SELECT *,
            -- the first of these that holds, else ''
            multiIf(
                given_reason != '', given_reason,
                NOT valid, 'malformed_json',
                NOT has_project, 'missing_project',
                isNull(micros), 'bad_timestamp',
                micros < toUnixTimestamp64Milli({judged_at:DateTime64(3, 'UTC')}) * 1000 - {retention_days:Int64} * 86400000000
                    OR micros > toUnixTimestamp64Milli({judged_at:DateTime64(3, 'UTC')}) * 1000 + 3600000000, 'timestamp_out_of_range',
                '') AS verdict
        FROM envelopes
        WHERE NOT throwIf(NOT {exact:Bool} AND given_reason = ''
            AND (NOT valid OR is_inexact(ifNull(event.id, '')) OR is_inexact(ifNull(timestamp_text, '')) OR is_inexact(project)), 'needs exact')
    )
