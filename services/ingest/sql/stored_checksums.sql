-- CRC-32 of what is stored at some offsets of one life of a topic: of a row its message, of a dead letter its value. Ascending; at most two rows an offset.
-- Parameters: source (the raw table), topic, partition, incarnation, first, last. Reads of the raw table the Kafka coordinates of every row.
SELECT kafka_offset AS offset, CRC32(message) AS checksum, false AS is_dead
FROM {source:Identifier}
WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
UNION ALL
SELECT kafka_offset AS offset, CRC32(value) AS checksum, true AS is_dead
FROM dead_letters
WHERE kafka_topic = {topic:String} AND kafka_partition = {partition:UInt32} AND kafka_incarnation = {incarnation:UInt32} AND kafka_offset BETWEEN {first:UInt64} AND {last:UInt64}
