-- The columns that every landing table ends with: included in place of `-- include row.sql`.
    value AS message,
    original,
    {topic:String} AS kafka_topic,
    {incarnation:UInt32} AS kafka_incarnation,
    {partition:UInt32} AS kafka_partition,
    offset AS kafka_offset,
    {batch_last:UInt64} AS batch_last,
    {judged_at:DateTime64(3, 'UTC')} AS judged_at,
    record_time,
    verdict AS reason,
    multiIf(
        verdict = given_reason, given_detail,
        verdict IN ('bad_timestamp', 'timestamp_out_of_range'), concat('timestamp ', substring(ifNull(timestamp_text, 'of the record'), 1, 100)),
        '') AS detail,
    key,
    headers
