    judged AS
    (
        SELECT
            * EXCEPT (odd, valid, has_project),
            -- a parser of dates takes more than the grammar (10:00 is a time of today), and the grammar takes the 31st of every month
            parseDateTime64BestEffortOrNull(extract(time_text, '^((?:[1-9][0-9]{3}|0[0-9]{2}[1-9]|0[0-9][1-9]0|0[1-9]00)-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{0,9})?)?)?(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?)$'), 6, 'UTC') AS date,
            -- digits of seconds, milliseconds, microseconds or nanoseconds, or of seconds with decimals: the first 16 are microseconds
            ifNull(date, fromUnixTimestamp64Micro(toInt64OrZero(substring(rightPad(replaceOne(time_text, '.', ''), 16, '0'), 1, 16)), 'UTC')) AS timestamp,
            toDateTime64({judged_at:DateTime64(3, 'UTC')}, 6, 'UTC') AS judged_micros,
            multiIf(
                given_reason != '', given_reason,
                throwIf(odd, 'odd message'), '',
                NOT valid, 'malformed_json',
                NOT has_project, 'missing_project',
                isNull(date) AND NOT match(time_text, '^(?:[0-9]{10}(?:[.][0-9]+)?|[0-9]{13}|[0-9]{16}|[0-9]{19})$'), 'bad_timestamp',
                timestamp BETWEEN judged_micros - toIntervalDay({retention_days:Int64}) AND judged_micros + toIntervalHour(1), '',
                'timestamp_out_of_range') AS reason
        FROM fields
    )
