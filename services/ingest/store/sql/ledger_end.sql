-- The last batch of one partition in the ledger. Parameters: topic, partition. Reads batches, backwards in its sorting order; at most one row.
SELECT
    incarnation,
    last,
    toUInt32(period) AS period,
    consumer_group AS group,
    closes AS isClosed,
    end_offset AS offset,
    end_record_time AS time,
    end_checksum AS checksum
FROM batches
WHERE topic = {topic:String} AND partition = {partition:UInt32}
ORDER BY topic DESC, partition DESC, incarnation DESC, first DESC
LIMIT 1
