-- How often an offset is a row of its raw table. Parameters: source, topic, incarnation, partition, first (the offset), period (unix s: its row is of no earlier one).
-- Reads the Kafka coordinates of the raw table. One row.
SELECT toUInt32(count()) AS rows
FROM {source:Identifier}
WHERE period >= toDateTime({period:UInt32}, 'UTC') AND kafka_topic = {topic:String} AND kafka_incarnation = {incarnation:UInt32} AND kafka_partition = {partition:UInt32} AND kafka_offset = {first:UInt64}
