-- CRC-32 of what is stored at some offsets of one life of a topic: of a row its message, of a dead letter its value, with the record's time (ms; NULL of a row,
-- which does not hold it). Ascending; at most two rows an offset.
-- Parameters: source (the raw table), topic, partition, incarnation, first, last, checked_bytes (a checksum is of so many at most). Reads of the raw table the Kafka coordinates of every row.
SELECT kafka_offset AS offset, CRC32(substring(message, 1, {checked_bytes:UInt32})) AS checksum, CAST(NULL, 'Nullable(Int64)') AS dead_time
FROM {source:Identifier}
WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
UNION ALL
SELECT kafka_offset AS offset, CRC32(substring(value, 1, {checked_bytes:UInt32})) AS checksum, record_time AS dead_time
FROM dead_letters
WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
