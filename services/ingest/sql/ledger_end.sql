-- The last batch of one partition in the ledger. Parameters: topic, partition. Reads batches, backwards in its sorting order; at most one row.
SELECT
    incarnation,
    last,
    toUInt32(period) AS period,
    consumer_group,
    end_offset,
    end_record_time,
    end_checksum,
    closes
FROM batches
WHERE topic = {topic:String} AND partition = {partition:UInt32}
ORDER BY topic DESC, partition DESC, incarnation DESC, first DESC
LIMIT 1
