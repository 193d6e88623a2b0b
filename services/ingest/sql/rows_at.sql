-- Whether an offset is a row of its raw table. Parameters: source, topic, incarnation, partition, offset. Reads the Kafka coordinates of the raw table.
SELECT count() AS rows
FROM {source:Identifier}
WHERE kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32} AND kafka_offset = {offset:UInt64}
